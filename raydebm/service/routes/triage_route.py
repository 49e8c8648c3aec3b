"""``POST /v1/triage``."""

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import Response

from raydebm.errors import ServiceError
from raydebm.service.core.request import charged_to, request_context
from raydebm.service.core.service import TriageService
from raydebm.service.routes.answer_bodies import TriageResponse
from raydebm.service.routes.choices import triage_answer
from raydebm.service.routes.connection import EventStream, while_connected
from raydebm.service.routes.event_stream import triage_events
from raydebm.service.routes.openapi import examples_of
from raydebm.service.routes.request_bodies import TriageRequest, given_problem, merged_overrides, read_conversation


def triage_routes(service: TriageService) -> APIRouter:
    """The route of triage."""
    router = APIRouter(tags=["triage"])

    @router.post(
        "/v1/triage",
        summary="Triage a problem",
        response_model=TriageResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("triage", service.bundle),
    )
    async def triage(body: TriageRequest, request: Request) -> TriageResponse | Response:
        """Sample candidates, check and score them, and accept, try again or abstain; returns the full record.

        With `stream`, the response is events: `raydebm.progress` during the work, `raydebm.result` with the record (or
        `raydebm.error`), then `[DONE]`."""
        state = request.state
        overrides = merged_overrides(service.bundle, body)
        conversation = None if body.messages is None else read_conversation(body.messages)
        problem = body.problem if conversation is None else conversation.problem
        if problem is None:
            raise ServiceError("give exactly one of 'problem' and 'messages'", 400, "missing_text", "problem")
        context = request_context(
            service.bundle,
            overrides,
            request_id=state.request_id,
            task_name=body.task,
            problem=given_problem(problem),
            conversation=conversation,
        )
        context = charged_to(replace(context, num_choices=body.n, received=state.received), state.account)
        if body.stream:
            return EventStream(triage_events(service, context))
        return triage_answer(await while_connected(request, service.triage(context)))

    return router
