"""Server-sent events of one request: progress while candidates arrive, then the answer, then ``[DONE]``.

All events of a triage request have names; ``chat.routes`` has the forms of chats.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.triage.bodies import triage_body
from raydebm.serving.api.triage.progress import progress_facts
from raydebm.serving.core.request import RequestContext
from raydebm.serving.core.result import TriageResult
from raydebm.serving.core.service import TriageService
from raydebm.serving.error_form import error_body, should_retry
from raydebm.serving.failures import as_service_error

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
    """The events, and then OpenAI's end of a stream."""
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
    """Run one request and yield its events. When the generator is closed, the work upstream is cancelled.

    Args:
        service: answers the request.
        context: what to run.
        told: writes the facts of a progress event; None: it is left out.
        answered: writes the answer.
        failed: writes the body of an error.
    """
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    work = asyncio.create_task(service.triage(context, lambda event: progress.put_nowait(progress_facts(event))))
    try:
        async for facts in _until_done(progress, work):
            text = told(facts)
            if text is not None:
                yield text
        for text in await answered(triage_body(await work)):
            yield text
    except RaydebmError as error:
        service_error = as_service_error(error)
        yield failed(stream_error(service_error))
    except Exception:
        # The status line is out, so the guard could only cut the stream off.
        log.exception("request %s failed", context.request_id)
        message = f"internal error; the log has it under request id {context.request_id}"
        yield failed(stream_error(ServiceError(message, 500, "internal")))
    finally:
        await _ended(work)


def stream_error(error: ServiceError) -> dict[str, Any]:
    """The error's body with its status, and what ``X-Should-Retry`` would say: HTTP's own have been sent."""
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return {**body, "status": error.status, "should_retry": should_retry(error)}


async def _ended(work: "asyncio.Task[TriageResult]") -> None:
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _until_done(
    progress: "asyncio.Queue[dict[str, Any]]", work: "asyncio.Task[TriageResult]"
) -> AsyncIterator[dict[str, Any]]:
    """Progress as it comes; ends when the work has ended and everything it told has been handed on."""
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
    """A progress event as text: a named one, or a comment that every SSE client skips."""
    text = json.dumps(facts, ensure_ascii=False)
    return f"event: {PROGRESS_EVENT}\ndata: {text}\n\n" if named else f": {PROGRESS_EVENT} {text}\n\n"


def event_text(value: dict[str, Any], name: str | None = None) -> str:
    """A server-sent event with a JSON value."""
    data = f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
    return data if name is None else f"event: {name}\n{data}"
