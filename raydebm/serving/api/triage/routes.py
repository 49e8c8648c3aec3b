"""``POST /v1/triage`` and ``POST /v1/triage/batch``."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from raydebm.serving.api.connection import EventStream, while_connected
from raydebm.serving.api.example_requests import examples_of
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.schema.request_bodies import TriageRequest
from raydebm.serving.api.triage.bodies import triage_body
from raydebm.serving.api.triage.event_stream import triage_events
from raydebm.serving.api.triage.problem_batch import BatchRequest, BatchResponse, triage_batch, triage_context
from raydebm.serving.core.request import charged_to
from raydebm.serving.core.service import TriageService


def triage_routes(service: TriageService) -> APIRouter:
    """One problem, and many."""
    router = APIRouter(tags=["triage"])

    @router.post(
        "/v1/triage",
        summary="Triage a problem",
        response_model=TriageResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("triage"),
    )
    async def triage(body: TriageRequest, request: Request) -> TriageResponse | Response:
        """Draw candidates, check and score them, and accept, try again or abstain. The full record of one decision.

        With `stream` come events: `raydebm.progress` while it works, `raydebm.result` with the record (or
        `raydebm.error`), then `[DONE]`."""
        state = request.state
        context = triage_context(
            service, body, request_id=state.request_id, headers=request.headers, received=state.received
        )
        context = charged_to(context, state.key_use.account)
        if body.stream:
            return EventStream(triage_events(service, context))
        return triage_body(await while_connected(request, service.triage(context)))

    @router.post(
        "/v1/triage/batch",
        summary="Triage many problems",
        response_model=BatchResponse,
        openapi_extra=examples_of("batch"),
    )
    async def batch(body: BatchRequest, request: Request) -> BatchResponse:
        """Many of them; each is answered or failed by itself, and the status is 200."""
        state = request.state
        work = triage_batch(
            service,
            body,
            request_id=state.request_id,
            headers=request.headers,
            received=state.received,
            key_use=state.key_use,
            places=state.places,
        )
        return await while_connected(request, work)

    return router
