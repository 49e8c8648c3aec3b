"""Server-sent events of one request: progress while candidates arrive, then the answer, then ``[DONE]`` (but in the
Responses API, which has no such end).

A chat's progress goes out as comments by default: every SSE client skips them, while the ``openai`` client takes an
event of any name for a chunk. A triage request has no such clients, so all its events have names.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from itertools import count
from typing import Any

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.asking import Ask
from raydebm.serving.chat import completion_chunks
from raydebm.serving.errors import as_service_error, error_body
from raydebm.serving.response_schema import ResponseRequest
from raydebm.serving.responses import answer_events, failure_events, opening_events, response_body
from raydebm.serving.schema import ChatOverrides, ChatRequest, TriageResponse
from raydebm.serving.service import TriageService
from raydebm.serving.structured import json_form

log = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
PROGRESS_EVENT = "raydebm.progress"
RESULT_EVENT = "raydebm.result"
ERROR_EVENT = "raydebm.error"


def chat_events(
    service: TriageService, ask: Ask, request: ChatRequest, overrides: ChatOverrides
) -> AsyncGenerator[str, None]:
    """Progress as the overrides say, then the answer in OpenAI's chunks."""

    def answered(answer: TriageResponse) -> list[str]:
        include_usage = request.stream_options is not None and request.stream_options.include_usage
        chunks = completion_chunks(
            answer,
            model=request.model,
            on_abstain=overrides.on_abstain,
            include_usage=include_usage,
            form=json_form(request.response_format),
            n=request.n,
        )
        return [_event(chunk) for chunk in chunks]

    return _ended_by_done(_events(service, ask, told=_teller(overrides), answered=answered, failed=_event))


async def response_events(
    service: TriageService, ask: Ask, request: ResponseRequest, overrides: ChatOverrides
) -> AsyncGenerator[str, None]:
    """The events of the Responses API, numbered, with progress between the opening and the answer."""
    numbers = count()

    def written(events: Iterable[dict[str, Any]]) -> list[str]:
        return [_event({**event, "sequence_number": next(numbers)}, event["type"]) for event in events]

    def answered(answer: TriageResponse) -> list[str]:
        return written(answer_events(response_body(answer, request, on_abstain=overrides.on_abstain)))

    def failed(body: dict[str, Any]) -> str:
        return "".join(written(failure_events(request, ask.request_id, body["error"])))

    for text in written(opening_events(request, ask.request_id)):
        yield text
    async with aclosing(_events(service, ask, told=_teller(overrides), answered=answered, failed=failed)) as events:
        async for text in events:
            yield text


def triage_events(service: TriageService, ask: Ask) -> AsyncGenerator[str, None]:
    """Progress, then the full record as one event."""
    events = _events(
        service,
        ask,
        told=lambda facts: progress_event(facts, named=True),
        answered=lambda answer: [_event(answer.model_dump(mode="json"), RESULT_EVENT)],
        failed=lambda body: _event(body, ERROR_EVENT),
    )
    return _ended_by_done(events)


def _teller(overrides: ChatOverrides) -> Callable[[dict[str, Any]], str | None]:
    """Writes progress as the overrides say; None: not at all."""
    if overrides.progress == "none":
        return lambda facts: None
    return lambda facts: progress_event(facts, named=overrides.progress == "events")


async def _ended_by_done(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    async with aclosing(events):
        async for text in events:
            yield text
    yield DONE


async def _events(
    service: TriageService,
    ask: Ask,
    *,
    told: Callable[[dict[str, Any]], str | None],
    answered: Callable[[TriageResponse], list[str]],
    failed: Callable[[dict[str, Any]], str],
) -> AsyncGenerator[str, None]:
    """Run one request and yield its events. When the generator is closed, the work upstream is cancelled."""
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    work = asyncio.create_task(service.triage(ask, progress.put_nowait))
    try:
        async for facts in _until_done(progress, work):
            text = told(facts)
            if text is not None:
                yield text
        for text in answered(await work):
            yield text
    except RaydebmError as error:
        found = as_service_error(error)
        yield failed(stream_error(found))
    except Exception:
        # The status line is out, so the guard could only cut the stream off.
        log.exception("request %s failed", ask.request_id)
        message = f"internal error; the log has it under request id {ask.request_id}"
        yield failed(stream_error(ServiceError(message, 500, "internal")))
    finally:
        await _ended(work)


def stream_error(error: ServiceError) -> dict[str, Any]:
    """The error's body, and its status beside it: that of HTTP has been sent."""
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return {**body, "status": error.status}


async def _ended(work: "asyncio.Task[TriageResponse]") -> None:
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _until_done(
    progress: "asyncio.Queue[dict[str, Any]]", work: "asyncio.Task[TriageResponse]"
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
    text = json.dumps(facts, ensure_ascii=False)
    return f"event: {PROGRESS_EVENT}\ndata: {text}\n\n" if named else f": {PROGRESS_EVENT} {text}\n\n"


def _event(value: dict[str, Any], name: str | None = None) -> str:
    data = f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
    return data if name is None else f"event: {name}\n{data}"
