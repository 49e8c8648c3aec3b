"""Server-sent events of a chat: progress while candidates arrive, then the answer, then ``[DONE]`` (but in the
Responses API, which has no such end).

Progress goes out as comments by default: every SSE client skips them, while the ``openai`` client takes an event of any
name for a chunk.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from itertools import count
from typing import Any

from raydebm.serving.api.chat.completions import completion_chunks
from raydebm.serving.api.chat.json_form import JsonForm, written_in
from raydebm.serving.api.chat.responses_api import answer_events, failure_events, opening_events, response_body
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.schema.request_bodies import ChatOverrides, ChatRequest
from raydebm.serving.api.schema.response_bodies import ResponseRequest
from raydebm.serving.api.triage.event_stream import ended_by_done, event_text, progress_event, request_events
from raydebm.serving.core.request import RequestContext
from raydebm.serving.core.service import TriageService


def chat_events(
    service: TriageService,
    context: RequestContext,
    request: ChatRequest,
    overrides: ChatOverrides,
    *,
    form: JsonForm | None = None,
) -> AsyncGenerator[str, None]:
    """Progress as the overrides say, then the answer in OpenAI's chunks."""

    def written(answer: TriageResponse) -> list[str]:
        include_usage = request.stream_options is not None and request.stream_options.include_usage
        chunks = completion_chunks(
            answer,
            model=request.model,
            on_abstain=overrides.on_abstain,
            include_usage=include_usage,
            form=form,
            n=request.n,
        )
        return [event_text(chunk) for chunk in chunks]

    async def answered(answer: TriageResponse) -> list[str]:
        return await written_in(form, lambda: written(answer))

    return ended_by_done(
        request_events(service, context, told=_progress_form(overrides), answered=answered, failed=event_text)
    )


async def response_events(
    service: TriageService,
    context: RequestContext,
    request: ResponseRequest,
    overrides: ChatOverrides,
    *,
    form: JsonForm | None = None,
) -> AsyncGenerator[str, None]:
    """The events of the Responses API, numbered, with progress between the opening and the answer."""
    numbers = count()

    def written(events: Iterable[dict[str, Any]]) -> list[str]:
        return [event_text({**event, "sequence_number": next(numbers)}, event["type"]) for event in events]

    async def answered(answer: TriageResponse) -> list[str]:
        body = await written_in(
            form, lambda: response_body(answer, request, on_abstain=overrides.on_abstain, form=form)
        )
        return written(answer_events(body))

    def failed(body: dict[str, Any]) -> str:
        return "".join(written(failure_events(request, context.request_id, body)))

    for text in written(opening_events(request, context.request_id)):
        yield text
    async with aclosing(
        request_events(service, context, told=_progress_form(overrides), answered=answered, failed=failed)
    ) as events:
        async for text in events:
            yield text


def _progress_form(overrides: ChatOverrides) -> Callable[[dict[str, Any]], str | None]:
    """Writes progress as the overrides say; None: not at all."""
    if overrides.progress == "none":
        return lambda facts: None
    return lambda facts: progress_event(facts, named=overrides.progress == "events")
