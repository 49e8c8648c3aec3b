"""``/v1/policies``: which policies decide, how they compare, promotion and roll-back by the key of an admin."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from raydebm.errors import ServiceError
from raydebm.serving.api.connection import to_its_end, while_connected
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
    PolicyQuery,
    TrialBody,
    TrialRequest,
)

CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorBody, "description": "The policies do not allow it, or a file of theirs is torn."}
}
ADMINS: dict[int | str, dict[str, Any]] = {
    **CONFLICT,
    403: {"model": ErrorBody, "description": "The key is not that of an admin."},
}
PROMOTE_EXAMPLES = {"a canary that won": {"reason": "right answers +3.1 %, p = 0.004, n = 812"}}
TRY_EXAMPLES = {
    "a shadow": {"policy": {"rule": "paper", "theta_sigma": 0.4}, "percent": 0, "reason": "a stricter threshold"}
}
DROP_EXAMPLES: dict[str, dict[str, str]] = {"the first run's": {}, "another task's": {"task": "support_reply"}}
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


Desks = Mapping[str, PolicyDesk]
"""By task, the first run's first."""


def desk_of(desks: Desks, task: str | None) -> PolicyDesk:
    """The desk of a task; None: the first one. Raises ServiceError 404 for a task that is not served."""
    if task is None:
        return next(iter(desks.values()))
    if task not in desks:
        raise ServiceError(f"task {task!r} is not served here; served: {', '.join(desks)}", 404, "unknown_task", "task")
    return desks[task]


def policy_routes(desks: Desks) -> APIRouter:
    """Routes over the desks of the served tasks."""
    router = APIRouter(tags=["policies"], prefix="/v1/policies")

    @router.get("", summary="Show the policies", response_model=PoliciesBody, responses=CONFLICT)
    async def policies(query: Annotated[PolicyQuery, Query()], request: Request) -> PoliciesBody:
        """The policy in force, the one on trial as shadow or canary, and every promotion and roll-back."""
        return await while_connected(request, desk_of(desks, query.task).policies(tuple(desks)))

    @router.get(
        "/comparison",
        summary="Compare two policies",
        response_model=ComparisonBody,
        responses={**CONFLICT, **NOT_ALLOWED},
        dependencies=[Depends(may_see_decisions)],
    )
    async def comparison(query: Annotated[ComparisonQuery, Query()], request: Request) -> ComparisonBody:
        """Paired tests on stored decisions that both policies made: right and wrong answers, coverage, cost."""
        return await while_connected(request, desk_of(desks, query.task).comparison(query))

    router.include_router(_changes(desks))
    return router


def _changes(desks: Desks) -> APIRouter:
    """The routes that change a policy, for admins alone."""
    router = APIRouter(dependencies=[Depends(must_be_admin)], responses=ADMINS)

    @router.post(
        "/try",
        summary="Try a policy",
        response_model=TrialBody,
        openapi_extra=named_examples(TRY_EXAMPLES),
    )
    async def try_policy(body: TrialRequest) -> TrialBody:
        """Have a policy decide every request as a shadow from now on, or answer a share of the problems as a canary. It
        takes the place of the one that was on trial."""
        return await to_its_end(desk_of(desks, body.task).try_policy(body))

    @router.post(
        "/drop",
        summary="End the trial",
        response_model=TrialBody,
        openapi_extra=named_examples(DROP_EXAMPLES),
    )
    async def drop(body: PolicyQuery) -> TrialBody:
        """Take the policy off that is on trial, from now on."""
        return await to_its_end(desk_of(desks, body.task).drop())

    @router.post(
        "/promote",
        summary="Promote the second policy",
        response_model=ChangeBody,
        openapi_extra=named_examples(PROMOTE_EXAMPLES),
    )
    async def promote(body: ChangeRequest, request: Request) -> ChangeBody:
        """Make the second policy the first one, from now on. The replaced one is kept."""
        desk, key = desk_of(desks, body.task), getattr(request.state, "key", None)
        return await to_its_end(desk.promote(reason=body.reason, key=key))

    @router.post(
        "/rollback",
        summary="Roll the newest promotion back",
        response_model=ChangeBody,
        openapi_extra=named_examples(ROLLBACK_EXAMPLES),
    )
    async def rollback(body: ChangeRequest, request: Request) -> ChangeBody:
        """Bring back the policy that the newest promotion replaced, from now on."""
        desk, key = desk_of(desks, body.task), getattr(request.state, "key", None)
        return await to_its_end(desk.roll_back(reason=body.reason, key=key))

    return router
