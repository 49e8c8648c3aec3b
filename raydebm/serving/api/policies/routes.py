"""``/v1/policies``: which policies decide, how they compare, promotion and roll-back by the key of an admin."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from raydebm.errors import ServiceError
from raydebm.serving.api.connection import while_connected
from raydebm.serving.api.example_requests import named_examples
from raydebm.serving.api.policies.policy_desk import PolicyDesk
from raydebm.serving.api.record_access import NOT_ALLOWED, may_see_decisions
from raydebm.serving.api.schema.chat_bodies import ErrorBody
from raydebm.serving.api.schema.policy_bodies import (
    ChangeBody,
    ChangeRequest,
    ComparisonBody,
    ComparisonQuery,
    PoliciesBody,
)

CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorBody, "description": "The policies do not allow it, or a file of theirs is torn."}
}
ADMINS: dict[int | str, dict[str, Any]] = {
    **CONFLICT,
    403: {"model": ErrorBody, "description": "The key is not that of an admin."},
}
PROMOTE_EXAMPLES = {"a canary that won": {"reason": "right answers +3.1 %, p = 0.004, n = 812"}}
ROLLBACK_EXAMPLES = {"complaints": {"reason": "refuses too much since Tuesday"}}


def must_be_admin(request: Request) -> None:
    """Raises ServiceError 403 for every key but those with ``admin: true``, also where no key is asked for."""
    if not getattr(request.state, "is_admin", False):
        raise ServiceError(
            "only a key with `admin: true` in the keys file may change the policy; `raydebm policies` does it from the "
            "command line",
            403,
            "not_admin",
        )


def policy_routes(desk: PolicyDesk) -> APIRouter:
    """Routes over one desk."""
    router = APIRouter(tags=["policies"], prefix="/v1/policies")

    @router.get("", summary="Show the policies", response_model=PoliciesBody, responses=CONFLICT)
    async def policies(request: Request) -> PoliciesBody:
        """The policy in force, the one on trial as shadow or canary, and every promotion and roll-back."""
        return await while_connected(request, desk.policies())

    @router.get(
        "/comparison",
        summary="Compare two policies",
        response_model=ComparisonBody,
        responses={**CONFLICT, **NOT_ALLOWED},
        dependencies=[Depends(may_see_decisions)],
    )
    async def comparison(query: Annotated[ComparisonQuery, Query()], request: Request) -> ComparisonBody:
        """Paired tests on stored decisions that both policies made: right and wrong answers, coverage, cost."""
        return await while_connected(request, desk.comparison(query))

    @router.post(
        "/promote",
        summary="Promote the second policy",
        response_model=ChangeBody,
        responses=ADMINS,
        dependencies=[Depends(must_be_admin)],
        openapi_extra=named_examples(PROMOTE_EXAMPLES),
    )
    async def promote(body: ChangeRequest, request: Request) -> ChangeBody:
        """Make the second policy the first one, from now on. The replaced one is kept."""
        return await desk.promote(reason=body.reason, key=getattr(request.state, "key", None))

    @router.post(
        "/rollback",
        summary="Roll the newest promotion back",
        response_model=ChangeBody,
        responses=ADMINS,
        dependencies=[Depends(must_be_admin)],
        openapi_extra=named_examples(ROLLBACK_EXAMPLES),
    )
    async def rollback(body: ChangeRequest, request: Request) -> ChangeBody:
        """Bring back the policy that the newest promotion replaced, from now on."""
        return await desk.roll_back(reason=body.reason, key=getattr(request.state, "key", None))

    return router
