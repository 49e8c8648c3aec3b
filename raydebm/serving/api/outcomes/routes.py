"""``POST /v1/decisions/{record_id}/outcome`` and ``GET /v1/outcomes``, for those who may see stored decisions."""

from collections.abc import Collection

from fastapi import APIRouter, Depends, Request

from raydebm.errors import ServiceError
from raydebm.serving.api.connection import while_connected
from raydebm.serving.api.example_requests import named_examples
from raydebm.serving.api.outcomes.desk import OutcomeDesk
from raydebm.serving.api.record_access import NOT_ALLOWED, check_reporter, may_see_decisions
from raydebm.serving.api.schema.chat_bodies import ErrorBody
from raydebm.serving.api.schema.outcome_bodies import OutcomeFigures, OutcomeReceipt, OutcomeRequest

EXAMPLES = {
    "it was right": {"correct": True, "by": "billing-tests"},
    "it was wrong": {
        "correct": False,
        "by": "ada",
        "answer": '{"Ava": "knave", "Zoey": "knight"}',
        "note": "Zoey contradicts nobody.",
    },
}


def outcome_routes(desk: OutcomeDesk | None, *, watched: Collection[str] = ()) -> APIRouter:
    """
    Args:
        desk: None where the service stores no decisions; then all of this is 404.
        watched: names whose reports are bet on.
    """
    router = APIRouter(tags=["outcomes"], dependencies=[Depends(may_see_decisions)])

    def open_desk() -> OutcomeDesk:
        if desk is None:
            raise ServiceError("this service stores no decisions; set `records.folder`", 404, "no_records")
        return desk

    @router.post(
        "/v1/decisions/{record_id}/outcome",
        summary="Report an outcome",
        response_model=OutcomeReceipt,
        responses={**NOT_ALLOWED, 409: {"model": ErrorBody, "description": "Too many reports about this decision."}},
        openapi_extra=named_examples(EXAMPLES),
    )
    async def report(record_id: str, body: OutcomeRequest, request: Request) -> OutcomeReceipt:
        """Report that the selected candidate of a stored decision was right or wrong. It is stored when this answers.

        The same report again changes nothing. Another one by the same name takes its place, and both are kept as
        history. Of several names the report that arrived last counts. A name that a key reserves, or that the promise
        is watched by, needs a key that lists it (403)."""
        check_reporter(request, body.by, watched)
        key = getattr(request.state, "key", None)
        return await while_connected(request, open_desk().report(record_id, body, key=key))

    @router.get("/v1/outcomes", summary="Show live accuracy", response_model=OutcomeFigures, responses=NOT_ALLOWED)
    async def figures(request: Request) -> OutcomeFigures:
        """Coverage, live accuracy and the bet against the promised error rate, by policy."""
        return await while_connected(request, open_desk().figures())

    return router
