"""``/v1/decisions``: stored decisions over HTTP. Records hold what users wrote, so these routes ask for a key where the
service does, and for one that may see them."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.datastructures import State

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.api.connection import EventStream, while_connected
from raydebm.serving.api.decisions.archive import DecisionArchive
from raydebm.serving.api.example_requests import named_examples
from raydebm.serving.api.record_access import NOT_ALLOWED, may_see_decisions
from raydebm.serving.api.schema.stored_bodies import (
    ChangesBody,
    DecisionList,
    ListQuery,
    Overview,
    Redecided,
    ReplayFigures,
    ReplayRequest,
    ReplayResult,
    StoredDecision,
    Where,
)
from raydebm.serving.api.triage.event_stream import event_text, stream_error
from raydebm.serving.failures import as_service_error

log = logging.getLogger(__name__)

REPLAY_EXAMPLES = {
    "stricter": {"theta_sigma": 0.4, "where": {"decision": "accept"}, "max_decisions": 1000},
    "half the candidates": {"budget": 4},
}
CHANGES_EXAMPLES = {"heavier constraints": {"lambda": 2.0}, "one pass": {"max_passes": 1}}


def decision_routes(decisions: DecisionArchive | None) -> APIRouter:
    """
    Args:
        decisions: None where the service stores none; then all of this is 404.
    """
    router = APIRouter(tags=["decisions"], prefix="/v1/decisions", dependencies=[Depends(may_see_decisions)])

    def stored() -> DecisionArchive:
        if decisions is None:
            raise ServiceError("this service stores no decisions; set `records.folder`", 404, "no_records")
        return decisions

    @router.get("", summary="List stored decisions", response_model=DecisionList, responses=NOT_ALLOWED)
    async def page(query: Annotated[ListQuery, Query()], request: Request) -> DecisionList:
        """Stored decisions that pass a filter, sorted, a page at a time."""
        return await while_connected(request, stored().page(query))

    @router.get("/overview", summary="Count stored decisions", response_model=Overview, responses=NOT_ALLOWED)
    async def overview(where: Annotated[Where, Query()], request: Request) -> Overview:
        """Counts, sums and distributions over all stored decisions that pass a filter."""
        return await while_connected(request, stored().overview(where))

    @router.post(
        "/replay",
        summary="Replay stored decisions",
        response_model=ReplayResult,
        responses={**NOT_ALLOWED, 200: {"content": {"text/event-stream": {}}}},
        openapi_extra=named_examples(REPLAY_EXAMPLES),
    )
    async def replay(body: ReplayRequest, request: Request) -> Any:
        """Decide stored decisions again under other settings, without asking any generator: what would change.

        With `stream` come `progress` events with the figures so far, then `result`, or `error`."""
        figures = stored().replay(body)
        if body.stream:
            return EventStream(_events(figures, request.state))
        return await while_connected(request, _last(figures))

    @router.get("/{record_id}", summary="Show a stored decision", response_model=StoredDecision, responses=NOT_ALLOWED)
    async def one(record_id: str, request: Request) -> StoredDecision:
        """Everything about one stored decision: problem, passes with feedback, candidates, settings, versions."""
        return await while_connected(request, stored().get(record_id))

    @router.post(
        "/{record_id}/replay",
        summary="Replay one stored decision",
        response_model=Redecided,
        responses=NOT_ALLOWED,
        openapi_extra=named_examples(CHANGES_EXAMPLES),
    )
    async def redecide(record_id: str, body: ChangesBody, request: Request) -> Redecided:
        """What would have been decided about one stored decision under other settings."""
        return await while_connected(request, stored().redecide(record_id, body))

    return router


async def _last(figures: AsyncGenerator[ReplayFigures, None]) -> ReplayResult:
    last: ReplayFigures | None = None
    async with aclosing(figures):
        async for so_far in figures:
            last = so_far
    assert isinstance(last, ReplayResult)
    return last


async def _events(figures: AsyncGenerator[ReplayFigures, None], state: State) -> AsyncGenerator[str, None]:
    """The status line is out, so errors are events."""
    try:
        async with aclosing(figures):
            async for step in figures:
                name = "result" if isinstance(step, ReplayResult) else "progress"
                yield f"event: {name}\ndata: {step.model_dump_json()}\n\n"
    except RaydebmError as error:
        yield event_text(stream_error(as_service_error(error)), "error")
    except Exception:
        log.exception("request %s failed", state.request_id)
        message = f"internal error; the log has it under request id {state.request_id}"
        yield event_text(stream_error(ServiceError(message, 500, "internal")), "error")
