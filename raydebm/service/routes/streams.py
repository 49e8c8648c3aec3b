"""``POST /v1/triage``, and server-sent events of one request: progress while candidates arrive, the answer, ``[DONE]``.

Events of a triage request are named; a chat has its own forms. ``docs/service.md`` lists the facts of progress events.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.sampling.deadline import is_late
from raydebm.decision.sampling.waves import Wave
from raydebm.errors import RaydebmError, ServiceError, as_service_error
from raydebm.records import Candidate, GenerationRequest, PassRecord, ScoredCandidate
from raydebm.service.access import ended, error_body, should_retry
from raydebm.service.core import Activity, RequestContext, TriageService, internal_error, request_context
from raydebm.service.logs import redact
from raydebm.service.routes.bodies import (
    TriageRequest,
    TriageResponse,
    candidate_body,
    merged_overrides,
    pass_body,
    triage_answer,
)
from raydebm.service.routes.openapi import examples_of
from raydebm.service.spending import Affordable

log = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
PROGRESS_EVENT = "raydebm.progress"
KEEP_ALIVE = ": keep-alive\n\n"
KEEP_ALIVE_S = 15.0
"""Seconds without an event until a comment is sent, because proxies close idle connections."""
_LINE_ENDS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"})
"""JSON escapes of the characters that many readers, including httpx, take for line ends, although they do not end a
line of an event."""


class EventStream(Response):
    """Server-sent events of an async generator, which is closed if the client disconnects. Their data is JSON."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events):
            async for text in _kept_alive(self._events):
                body = text.translate(_LINE_ENDS).encode("utf-8", "replace")
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _kept_alive(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The events, with comments during pauses."""
    while True:
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while not (await asyncio.wait({coming}, timeout=KEEP_ALIVE_S))[0]:
                yield KEEP_ALIVE
        finally:
            await ended(coming)
        text = coming.result()
        if text is None:
            return
        yield text


# ---- events ---------------------------------------------------------------------------------------------------------


async def request_events(
    service: TriageService,
    context: RequestContext,
    *,
    answered: Callable[[TriageResponse], Awaitable[list[str]]],
    failed: Callable[[dict[str, Any]], str],
    named: bool = False,
    opening: str = "",
    ending: str = DONE,
) -> AsyncGenerator[str, None]:
    """Run one request and yield its events: opening, progress, answer or failure, ending. Closing the generator cancels
    the work upstream. Progress that is not ``named`` is sent as comments, because OpenAI's client parses every event as
    a chunk."""
    coming: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    work = asyncio.create_task(service.triage(context, _Progress(context, coming.put_nowait)))
    work.add_done_callback(lambda _: coming.put_nowait(None))
    try:
        if opening:
            yield opening
        while (facts := await coming.get()) is not None:
            if named:
                yield event_text(facts, PROGRESS_EVENT)
            else:
                yield f": {PROGRESS_EVENT} {json.dumps(facts, ensure_ascii=False)}\n\n"
        for text in await answered(triage_answer(await work)):
            yield text
    except RaydebmError as error:
        yield failed(stream_error(as_service_error(error)))
    except Exception:
        # The status line has been sent, so ``access.Guard`` could only cut the stream off.
        log.exception("request %s failed", context.request_id)
        yield failed(stream_error(internal_error(context.request_id)))
    finally:
        await ended(work)
    if ending:
        yield ending


def stream_error(error: ServiceError) -> dict[str, Any]:
    """The error's body with its status and ``X-Should-Retry``, because the HTTP headers have been sent."""
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return {**body, "status": error.status, "should_retry": should_retry(error)}


def event_text(value: dict[str, Any], name: str | None = None) -> str:
    """A server-sent event with a JSON value."""
    data = f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
    return data if name is None else f"event: {name}\n{data}"


class _Progress(Activity):
    """An activity that reports its events as facts."""

    def __init__(self, context: RequestContext, put: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._context, self._put = context, put
        problem = context.problem
        names = {"request_id": context.request_id, "task": problem.task, "problem_id": problem.problem_id}
        put({"event": "start", **names, "seed": context.seed, "policy": context.policy.to_json()})

    def planned(self, pass_index: int, plan: Affordable, feedback: str | None) -> None:
        super().planned(pass_index, plan, feedback)
        facts = {"event": "pass", "pass": pass_index, "requested": len(plan.requests), "feedback": feedback}
        counts = {"generators": _by_generator(plan.requests), "over_budget": _by_generator(plan.over_budget)}
        self._put({**facts, **counts})

    def arrived(self, candidate: Candidate, done: int, total: int) -> None:
        super().arrived(candidate, done, total)
        facts = {
            "event": "candidate",
            "pass": candidate.pass_index,
            "done": done,
            "total": total,
            "generator": candidate.generator,
            "failed": candidate.text is None,
            "candidate_id": candidate.candidate_id,
            "sample_index": candidate.sample_index,
            "error": None if candidate.error is None else redact(candidate.error),
            "late": is_late(candidate),
        }
        self._put({**facts, "text": candidate.text} if self._context.return_candidates else facts)

    def scored(self, scored: ScoredCandidate) -> None:
        super().scored(scored)
        body = candidate_body(scored, self._context.policy.lambda_).model_dump()
        if not self._context.return_candidates:
            body["text"] = None
        self._put({"event": "scored", "pass": scored.candidate.pass_index, "candidate": body})

    def waved(self, wave: Wave) -> None:
        reason, names = wave.decision.reason, ("num_planned", "num_samples", "num_cancelled")
        facts = {"event": "wave", "pass": wave.pass_index, "wave": wave.number}
        end = {"stop_reason": None if reason is None else reason.value, "stop_words": wave.decision.words}
        self._put({**facts, **{name: getattr(wave, name) for name in names}, **end})

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        super().decided(record, reason, beliefs)
        self._put({"event": "decision", **pass_body(record).model_dump(), "reason": reason})


def _by_generator(requests: Iterable[GenerationRequest]) -> dict[str, int]:
    return dict(Counter(request.generator for request in requests))


# ---- the route ------------------------------------------------------------------------------------------------------


def triage_routes(service: TriageService) -> APIRouter:
    """Route for triage."""
    router = APIRouter(tags=["triage"])

    async def result(answer: TriageResponse) -> list[str]:
        return [event_text(answer.model_dump(mode="json"), "raydebm.result")]

    @router.post(
        "/v1/triage",
        summary="Triage a problem",
        response_model=TriageResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("triage", service.bundle),
    )
    async def triage(body: TriageRequest, request: Request) -> Response:
        """Sample candidates, check and score them, and accept, try again or abstain; returns the full record.

        With `stream`, the response is events: `raydebm.progress` during the work, `raydebm.result` with the record (or
        `raydebm.error`), then `[DONE]`."""
        state = request.state
        context = request_context(
            service.bundle,
            merged_overrides(service.bundle, body),
            request_id=state.request_id,
            task_name=body.task,
            problem=body.problem,
            account=state.account,
            received=state.received,
        )
        if not body.stream:
            answer = triage_answer(await service.triage(context))
            return Response(answer.model_dump_json(), media_type="application/json")
        failed = partial(event_text, name="raydebm.error")
        return EventStream(request_events(service, context, answered=result, failed=failed, named=True))

    return router
