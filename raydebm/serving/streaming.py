"""Server-sent events of one chat request: progress while candidates arrive, then the answer, then ``[DONE]``.

Progress goes out as comments by default: every SSE client skips them, while the ``openai`` client takes an event of any
name for a chunk.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from raydebm.errors import RaydebmError
from raydebm.serving.asking import Ask
from raydebm.serving.chat import completion_chunks
from raydebm.serving.errors import as_service_error, error_body
from raydebm.serving.schema import ChatOverrides, ChatRequest, TriageResponse
from raydebm.serving.service import TriageService

log = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
PROGRESS_EVENT = "raydebm.progress"


async def chat_events(
    service: TriageService, ask: Ask, request: ChatRequest, overrides: ChatOverrides
) -> AsyncGenerator[str, None]:
    """Run one request and yield its events. When the generator is closed, the work upstream is cancelled."""
    progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    work = asyncio.create_task(service.triage(ask, progress.put_nowait))
    try:
        async for facts in _until_done(progress, work):
            if overrides.progress != "none":
                yield progress_event(facts, named=overrides.progress == "events")
        for line in _answer_events(await work, request, overrides):
            yield line
    except RaydebmError as error:
        found = as_service_error(error)
        yield _data(error_body(str(found), status=found.status, code=found.code, param=found.param))
    except Exception:
        # The status line is out, so the guard could only cut the stream off.
        log.exception("request %s failed", ask.request_id)
        message = f"internal error; the log has it under request id {ask.request_id}"
        yield _data(error_body(message, status=500, code="internal"))
    finally:
        await _ended(work)
    yield DONE


async def _ended(work: "asyncio.Task[TriageResponse]") -> None:
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _answer_events(answer: TriageResponse, request: ChatRequest, overrides: ChatOverrides) -> list[str]:
    include_usage = request.stream_options is not None and request.stream_options.include_usage
    chunks = completion_chunks(
        answer, model=request.model, on_abstain=overrides.on_abstain, include_usage=include_usage
    )
    return [_data(chunk) for chunk in chunks]


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


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
