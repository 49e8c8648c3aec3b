"""The routes of OpenAI's clients: models, chat completions, and the Responses API."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from itertools import count
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from raydebm.serving.api.chat.completions import chat_context, completion_body, completion_chunks
from raydebm.serving.api.chat.json_form import JsonForm, read_form, written_in
from raydebm.serving.api.chat.responses_api import (
    ResponseRequest,
    answer_events,
    begun,
    chat_of,
    failure_event,
    response_body,
)
from raydebm.serving.api.connection import EventStream, while_connected
from raydebm.serving.api.example_requests import examples_of
from raydebm.serving.api.model_ids import model_body, models_body
from raydebm.serving.api.schema.chat_bodies import ChatCompletion, ModelBody, ModelsBody
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.schema.request_bodies import ChatOverrides, ChatRequest
from raydebm.serving.api.triage.bodies import triage_body
from raydebm.serving.api.triage.event_stream import ended_by_done, event_text, progress_event, request_events
from raydebm.serving.core.request import RequestContext, charged_to
from raydebm.serving.core.service import TriageService


def chat_routes(service: TriageService) -> APIRouter:
    """Models, chat completions and responses."""
    router = APIRouter(tags=["chat"])

    @router.get("/v1/models", response_model=ModelsBody, summary="List models")
    async def models() -> dict[str, Any]:
        """One model per task and named policy."""
        return models_body(service.bundle)

    @router.get("/v1/models/{model_id:path}", response_model=ModelBody, summary="Show a model")
    async def model(model_id: str) -> dict[str, Any]:
        """One of them."""
        return model_body(service.bundle, model_id)

    @router.post(
        "/v1/chat/completions",
        summary="Complete a chat",
        response_model=None,
        responses={200: {"model": ChatCompletion, "content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("chat", service.bundle),
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        """OpenAI's chat completions. The last user message is the problem, what stands before it is context.

        An abstention is a refusal: status 200, `content` null, `refusal` set. The top-level `raydebm` object says why.
        With `stream` come progress, then the answer's chunks, then `[DONE]`."""
        context, overrides, form = await asked(body, request)

        def completion(answer: TriageResponse) -> dict[str, Any]:
            return completion_body(answer, model=body.model, on_abstain=overrides.on_abstain, form=form, n=body.n)

        def chunks(answer: TriageResponse) -> list[str]:
            include_usage = body.stream_options is not None and body.stream_options.include_usage
            texts = completion_chunks(
                answer,
                model=body.model,
                on_abstain=overrides.on_abstain,
                include_usage=include_usage,
                form=form,
                n=body.n,
            )
            return [event_text(chunk) for chunk in texts]

        if body.stream:
            events = request_events(
                service,
                context,
                told=_progress_form(overrides),
                answered=lambda answer: written_in(form, lambda: chunks(answer)),
                failed=event_text,
            )
            return EventStream(ended_by_done(events))
        answer = triage_body(await while_connected(request, service.triage(context)))
        return JSONResponse(await written_in(form, lambda: completion(answer)))

    @router.post(
        "/v1/responses",
        summary="Create a response",
        response_model=None,
        responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
        openapi_extra=examples_of("responses", service.bundle),
    )
    async def response(body: ResponseRequest, request: Request) -> Response:
        """OpenAI's Responses API for text: the same chat in another shape. Nothing is kept between requests, so `input`
        holds the whole conversation.

        An abstention is a message with a `refusal`. With `stream` come OpenAI's events, the last one with the whole
        response."""
        context, overrides, form = await asked(chat_of(body), request)

        def written(answer: TriageResponse) -> dict[str, Any]:
            return response_body(answer, body, on_abstain=overrides.on_abstain, form=form)

        if body.stream:
            return EventStream(_response_events(service, context, body, overrides, form, written))
        answer = triage_body(await while_connected(request, service.triage(context)))
        return JSONResponse(await written_in(form, lambda: written(answer)))

    async def asked(body: ChatRequest, request: Request) -> tuple[RequestContext, ChatOverrides, JsonForm | None]:
        state, form = request.state, await read_form(body.response_format)
        context, overrides = chat_context(service.bundle, body, request_id=state.request_id, received=state.received)
        return charged_to(context, state.account), overrides, form

    return router


async def _response_events(
    service: TriageService,
    context: RequestContext,
    request: ResponseRequest,
    overrides: ChatOverrides,
    form: JsonForm | None,
    written: Callable[[TriageResponse], dict[str, Any]],
) -> AsyncGenerator[str, None]:
    """Events of the Responses API, numbered, with progress between the opening and the answer."""
    numbers = count()

    def numbered(events: Iterable[dict[str, Any]]) -> list[str]:
        return [event_text({**event, "sequence_number": next(numbers)}, event["type"]) for event in events]

    async def answered(answer: TriageResponse) -> list[str]:
        return numbered(answer_events(await written_in(form, lambda: written(answer))))

    def failed(body: dict[str, Any]) -> str:
        return "".join(numbered([failure_event(request, context.request_id, body)]))

    opening = begun(request, context.request_id)
    for text in numbered({"type": f"response.{kind}", "response": opening} for kind in ("created", "in_progress")):
        yield text
    async with aclosing(
        request_events(service, context, told=_progress_form(overrides), answered=answered, failed=failed)
    ) as events:
        async for text in events:
            yield text


def _progress_form(overrides: ChatOverrides) -> Callable[[dict[str, Any]], str | None]:
    """Writes progress as comments, which every SSE client skips, as named events, or not at all. The ``openai`` client
    takes an event of any name for a chunk."""
    if overrides.progress == "none":
        return lambda facts: None
    return lambda facts: progress_event(facts, named=overrides.progress == "events")
