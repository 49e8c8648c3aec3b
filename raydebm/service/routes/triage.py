"""``POST /v1/triage``, and server-sent events of one request: progress while candidates arrive, the answer, ``[DONE]``.

Events of a triage request are named; ``chat`` and ``responses`` have their own forms. ``docs/service.md`` lists the
facts of progress events.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from raydebm.decision.sampling.deadline import is_late
from raydebm.errors import RaydebmError, ServiceError, as_service_error
from raydebm.records import GenerationRequest
from raydebm.service.core.activity import (
    CandidateArrived,
    CandidateScored,
    Event,
    PassDecided,
    PassPlanned,
    Started,
    WaveEnded,
)
from raydebm.service.core.request import RequestContext, charged_to, request_context
from raydebm.service.core.result import TriageResult
from raydebm.service.core.service import TriageService
from raydebm.service.error_form import error_body, should_retry
from raydebm.service.logs import redact
from raydebm.service.routes.answers import TriageResponse, candidate_body, pass_body, triage_answer
from raydebm.service.routes.connection import EventStream, while_connected
from raydebm.service.routes.openapi import examples_of
from raydebm.service.routes.requests import TriageRequest, merged_overrides, read_conversation

log = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
PROGRESS_EVENT = "raydebm.progress"
RESULT_EVENT = "raydebm.result"
ERROR_EVENT = "raydebm.error"


def triage_events(service: TriageService, context: RequestContext) -> AsyncGenerator[str, None]:
    """Progress, then the full record as one event."""
    events = request_events(
        service,
        context,
        told=lambda facts: progress_event(facts, named=True),
        answered=_result_event,
        failed=lambda body: event_text(body, ERROR_EVENT),
    )
    return ended_by_done(events)


async def _result_event(answer: TriageResponse) -> list[str]:
    return [event_text(answer.model_dump(mode="json"), RESULT_EVENT)]


async def ended_by_done(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The events, followed by OpenAI's end of a stream."""
    async with aclosing(events):
        async for text in events:
            yield text
    yield DONE


async def request_events(
    service: TriageService,
    context: RequestContext,
    *,
    told: Callable[[dict[str, Any]], str | None],
    answered: Callable[[TriageResponse], Awaitable[list[str]]],
    failed: Callable[[dict[str, Any]], str],
) -> AsyncGenerator[str, None]:
    """Run one request and yield its events. Closing the generator cancels the work upstream.

    Args:
        service: service that answers the requests.
        context: the request.
        told: formats the facts of a progress event; returns None to skip it.
        answered: formats the answer.
        failed: formats the body of an error.
    """
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    work = asyncio.create_task(service.triage(context, lambda event: progress.put_nowait(progress_facts(event))))
    try:
        async for facts in _until_done(progress, work):
            text = told(facts)
            if text is not None:
                yield text
        for text in await answered(triage_answer(await work)):
            yield text
    except RaydebmError as error:
        service_error = as_service_error(error)
        yield failed(stream_error(service_error))
    except Exception:
        # The status line has been sent, so the guard could only cut the stream off.
        log.exception("request %s failed", context.request_id)
        message = f"internal error; the log has it under request id {context.request_id}"
        yield failed(stream_error(ServiceError(message, 500, "internal")))
    finally:
        await _ended(work)


def stream_error(error: ServiceError) -> dict[str, Any]:
    """The error's body with its status and ``X-Should-Retry``, because the HTTP headers have been sent."""
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return {**body, "status": error.status, "should_retry": should_retry(error)}


async def _ended(work: "asyncio.Task[TriageResult]") -> None:
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _until_done(
    progress: "asyncio.Queue[dict[str, Any]]", work: "asyncio.Task[TriageResult]"
) -> AsyncIterator[dict[str, Any]]:
    """Progress events until the work has ended and all of them have been passed on."""
    while not (work.done() and progress.empty()):
        waiting = asyncio.create_task(progress.get())
        try:
            await asyncio.wait({waiting, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not waiting.done():
                waiting.cancel()
        if waiting.done() and not waiting.cancelled():
            yield waiting.result()


def progress_event(facts: dict[str, Any], *, named: bool) -> str:
    """A progress event as text: a named event, or a comment that every SSE client skips."""
    text = json.dumps(facts, ensure_ascii=False)
    return f"event: {PROGRESS_EVENT}\ndata: {text}\n\n" if named else f": {PROGRESS_EVENT} {text}\n\n"


def event_text(value: dict[str, Any], name: str | None = None) -> str:
    """A server-sent event with a JSON value."""
    data = f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
    return data if name is None else f"event: {name}\n{data}"


def progress_facts(event: Event) -> dict[str, Any]:
    """Name and facts of one event."""
    match event:
        case Started(context):
            return {
                "event": "start",
                "request_id": context.request_id,
                "task": context.problem.task,
                "problem_id": context.problem.problem_id,
                "seed": context.seed,
                "policy": context.policy.to_json(),
            }
        case PassPlanned():
            return {
                "event": "pass",
                "pass": event.pass_index,
                "requested": len(event.plan.asked),
                "feedback": event.feedback,
                "generators": _by_generator(event.plan.asked),
                "over_budget": _by_generator(event.plan.over_budget),
            }
        case CandidateArrived(candidate=candidate):
            return {
                "event": "candidate",
                "pass": candidate.pass_index,
                "done": event.done,
                "total": event.total,
                "generator": candidate.generator,
                "failed": candidate.text is None,
                "candidate_id": candidate.candidate_id,
                "sample_index": candidate.sample_index,
                "error": None if candidate.error is None else redact(candidate.error),
                "late": is_late(candidate),
                **({"text": candidate.text} if event.context.return_candidates else {}),
            }
        case CandidateScored(context, scored):
            body = candidate_body(scored, context.policy.lambda_).model_dump()
            if not context.return_candidates:
                body["text"] = None
            return {"event": "scored", "pass": scored.candidate.pass_index, "candidate": body}
        case WaveEnded(wave):
            return {
                "event": "wave",
                "pass": wave.pass_index,
                "wave": wave.number,
                "num_planned": wave.num_planned,
                "num_samples": wave.num_samples,
                "num_cancelled": wave.num_cancelled,
                "stop_reason": None if wave.decision.reason is None else wave.decision.reason.value,
                "stop_words": wave.decision.words,
            }
        case PassDecided(record=record, reason=reason):
            return {"event": "decision", **pass_body(record).model_dump(), "reason": reason}


def _by_generator(requests: Iterable[GenerationRequest]) -> dict[str, int]:
    return dict(Counter(request.generator for request in requests))


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
            problem=problem,
            conversation=conversation,
        )
        context = charged_to(replace(context, num_choices=body.n, received=state.received), state.account)
        if body.stream:
            return EventStream(triage_events(service, context))
        return triage_answer(await while_connected(request, service.triage(context)))

    return router
