"""The routes of OpenAI's clients: models, chat completions, and the Responses API."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from raydebm.serving.api.chat.completions import chat_context, completion_body
from raydebm.serving.api.chat.event_streams import chat_events, response_events
from raydebm.serving.api.chat.json_form import read_form, written_in
from raydebm.serving.api.chat.responses_api import chat_of, response_body
from raydebm.serving.api.connection import EventStream, while_connected
from raydebm.serving.api.example_requests import examples_of
from raydebm.serving.api.model_ids import model_body, models_body
from raydebm.serving.api.schema.chat_bodies import ChatCompletion, ModelBody, ModelsBody
from raydebm.serving.api.schema.request_bodies import ChatRequest
from raydebm.serving.api.schema.response_bodies import ResponseBody, ResponseRequest
from raydebm.serving.api.triage.bodies import triage_body
from raydebm.serving.core.request import charged_to
from raydebm.serving.core.service import TriageService


def model_routes(service: TriageService) -> APIRouter:
    """The models that a chat can name."""
    router = APIRouter(tags=["chat"])

    @router.get("/v1/models", response_model=ModelsBody, summary="List models")
    async def models() -> dict[str, Any]:
        """One model per task and named policy."""
        return models_body(service.bundle)

    @router.get("/v1/models/{model_id:path}", response_model=ModelBody, summary="Show a model")
    async def model(model_id: str) -> dict[str, Any]:
        """One of them."""
        return model_body(service.bundle, model_id)

    return router


def chat_routes(service: TriageService) -> APIRouter:
    """OpenAI's chat completions."""
    router = APIRouter(tags=["chat"])

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
        state, form = request.state, await read_form(body.response_format)
        context, overrides = chat_context(service.bundle, body, request_id=state.request_id, received=state.received)
        context = charged_to(context, state.account)
        if body.stream:
            return EventStream(chat_events(service, context, body, overrides, form=form))
        answer = triage_body(await while_connected(request, service.triage(context)))

        def completion() -> dict[str, Any]:
            return completion_body(answer, model=body.model, on_abstain=overrides.on_abstain, form=form, n=body.n)

        return JSONResponse(await written_in(form, completion))

    return router


def response_routes(service: TriageService) -> APIRouter:
    """OpenAI's Responses API."""
    router = APIRouter(tags=["chat"])

    @router.post(
        "/v1/responses",
        summary="Create a response",
        response_model=None,
        responses={200: {"model": ResponseBody, "content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("responses", service.bundle),
    )
    async def response(body: ResponseRequest, request: Request) -> Response:
        """OpenAI's Responses API for text: the same chat in another shape. Nothing is kept between requests, so `input`
        holds the whole conversation.

        An abstention is a message with a `refusal`. With `stream` come OpenAI's events, the last one with the whole
        response."""
        state, asked = request.state, chat_of(body)
        form = await read_form(asked.response_format)
        context, overrides = chat_context(
            service.bundle,
            asked,
            request_id=state.request_id,
            received=state.received,
        )
        context = charged_to(context, state.account)
        if body.stream:
            return EventStream(response_events(service, context, body, overrides, form=form))
        answer = triage_body(await while_connected(request, service.triage(context)))

        def written() -> dict[str, Any]:
            return response_body(answer, body, on_abstain=overrides.on_abstain, form=form)

        return JSONResponse(await written_in(form, written))

    return router
