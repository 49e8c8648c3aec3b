"""OpenAI's Responses API over the same chat: text in, text out, without state between requests."""

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from raydebm.service.core import TriageService
from raydebm.service.routes import bodies, chat, streams
from raydebm.service.routes.bodies import ChatMessage, ChatRequest, TriageResponse
from raydebm.service.routes.openapi import examples_of
from raydebm.service.settings import Data, Text


class InputItem(BaseModel, extra="allow"):
    """One turn. Content may be a text or a list of parts, of which only text can be read."""

    type: Text = "message"
    role: Text | None = None
    content: Text | list[bodies.ContentPart] | None = None


class TextFormat(bodies.ResponseFormat):
    """Output format, as ``response_format`` of a chat, but with the schema one level higher."""

    json_schema: Data | None = Field(None, alias="schema")


class TextSettings(BaseModel, extra="allow"):
    format: TextFormat = TextFormat(type="text")


class ResponseRequest(bodies.OpenAIBody):
    """OpenAI's body."""

    input: Text | list[InputItem] = Field(min_length=1)
    """A text, or the whole conversation, because the service stores no conversations (``store`` is false)."""
    instructions: Text | None = None
    """System message before the conversation."""
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextSettings = TextSettings()
    metadata: Data | None = None
    """Returned unchanged."""


_STATE = ("previous_response_id", "conversation")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tool_choice": chat.FREE_TOOL_CHOICES,
    "background": (False,),
    "store": (False,),
    "include": ([],),
    "reasoning": ({},),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    **dict.fromkeys((*_STATE, "prompt", "max_tool_calls"), ()),
    **dict.fromkeys(ChatRequest.model_fields.keys() - ResponseRequest.model_fields.keys(), ()),
}
"""Accepted values of unsupported fields, including those that only a chat has: values that change nothing."""


def chat_of(request: ResponseRequest) -> ChatRequest:
    """Translate into a chat. Raises ServiceError 400 for an unsupported field."""
    further, wanted = request.model_extra or {}, request.text.format
    for name, value in further.items():
        instead = " and send the whole conversation as 'input'" if name in _STATE else ""
        chat.require_neutral(name, value, _NEUTRAL, instead=instead)
    items = [InputItem(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    turns = [  # the type of an item that is not a message takes the place of its role, so that the chat refuses it
        ChatMessage(role=item.role if item.role and item.type == "message" else item.type, content=item.content)
        for item in items
    ]
    system = [] if request.instructions is None else [ChatMessage(role="system", content=request.instructions)]
    schema = None if wanted.json_schema is None else {"name": "answer", "schema": wanted.json_schema}
    return ChatRequest(
        messages=[*system, *turns],
        max_completion_tokens=request.max_output_tokens,
        response_format=bodies.ResponseFormat(type=wanted.type, json_schema=schema),
        **{name: getattr(request, name) for name in ("model", "stream", "temperature", "top_p", "raydebm")},
        **{name: value for name, value in further.items() if name not in _NEUTRAL},
    )


def begun(request: ResponseRequest, request_id: str) -> dict[str, Any]:
    """Body of a response without its answer."""
    return {
        "id": f"resp_{request_id}", "object": "response", "created_at": int(time.time()), "status": "in_progress",
        "output": [], "parallel_tool_calls": True, "store": False,
        "text": {"format": request.text.format.model_dump(by_alias=True, exclude_none=True)},
        "tool_choice": "auto", "tools": [], "truncation": "disabled", "metadata": request.metadata or {},
        **dict.fromkeys(("error", "incomplete_details", "previous_response_id", "reasoning", "usage", "raydebm")),
        **request.model_dump(include={"instructions", "max_output_tokens", "model", "temperature", "top_p"}),
    }  # fmt: skip


def response_body(answer: TriageResponse, request: ResponseRequest, reply: chat.Reply) -> dict[str, Any]:
    """Body of a finished response."""
    status, usage = "incomplete" if reply.is_cut else "completed", answer.usage
    text = {"type": "output_text", "text": reply.content or "", "annotations": [], "logprobs": []}
    part = text if reply.refusal is None else {"type": "refusal", "refusal": reply.refusal}
    message = {"id": f"msg_{answer.request_id}", "type": "message", "role": "assistant", "status": status}
    return {
        **begun(request, answer.request_id),
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_cut else None,
        "output": [{**message, "content": [part]}],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_tokens,
        },
        "raydebm": answer.chat_object,
    }


def answer_events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Events of the answer: its item, its text in pieces, the end with the whole response."""
    (item,) = body["output"]
    (part,) = item["content"]
    kind, field = part["type"], "text" if part["type"] == "output_text" else "refusal"
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    started = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": started}
    yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
    for piece in chat.pieces_of(part[field]):
        yield {"type": f"response.{kind}.delta", **at, "delta": piece, **more}
    yield {"type": f"response.{kind}.done", **at, field: part[field], **more}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def response_routes(service: TriageService) -> APIRouter:
    """The Responses API."""
    router = APIRouter(tags=["chat"])

    @router.post(
        "/v1/responses",
        summary="Create a response",
        response_model=None,
        responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
        openapi_extra=examples_of("responses", service.bundle),
    )
    async def response(body: ResponseRequest, request: Request) -> Response:
        """OpenAI's Responses API for text: the same chat in another shape. No conversation is stored, so `input`
        must contain all of it.

        An abstention is a message with a `refusal`. With `stream`, the response is OpenAI's events, of which the last
        one has the whole response."""
        context, overrides, form = await chat.read_request(service, chat_of(body), request)
        numbers = count()

        async def written(answer: TriageResponse) -> dict[str, Any]:
            reply = await chat.run_write(form, lambda: chat.reply_of(answer, overrides.on_abstain, form))
            return response_body(answer, body, reply)

        def numbered(events: Iterable[dict[str, Any]]) -> list[str]:
            return [streams.event_text({**event, "sequence_number": next(numbers)}, event["type"]) for event in events]

        async def answered(answer: TriageResponse) -> list[str]:
            return numbered(answer_events(await written(answer)))

        def failed(failure: dict[str, Any]) -> str:
            error = {name: failure["error"][name] for name in ("code", "message")}
            ended = {**begun(body, context.request_id), "status": "failed", "error": error}
            facts = {name: failure[name] for name in ("status", "should_retry")}
            return "".join(numbered([{"type": "response.failed", "response": ended, **facts}]))

        if body.stream:
            opening = begun(body, context.request_id)
            first = ({"type": f"response.{kind}", "response": opening} for kind in ("created", "in_progress"))
            ends: dict[str, Any] = {"opening": "".join(numbered(first)), "ending": ""}
            return streams.EventStream(
                streams.request_events(service, context, answered=answered, failed=failed, **ends)
            )
        return JSONResponse(await written(bodies.triage_answer(await service.triage(context))))

    return router
