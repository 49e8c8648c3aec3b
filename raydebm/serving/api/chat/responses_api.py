"""OpenAI's Responses API over the same chat: text in, text out, nothing kept between requests."""

import time
from collections.abc import Iterator
from typing import Any

from raydebm.errors import ServiceError
from raydebm.serving.api.chat.completions import (
    FREE_TOOL_CHOICES,
    Reply,
    decision_object,
    pieces_of,
    replies_of,
    require_neutral,
)
from raydebm.serving.api.chat.json_form import JsonForm
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.schema.request_bodies import ChatMessage, ChatRequest, ContentPart, ResponseFormat
from raydebm.serving.api.schema.response_bodies import (
    InputMessage,
    OutputRefusal,
    OutputText,
    ResponseBody,
    ResponseRequest,
    ResponseUsage,
    TextFormat,
)

TEXT_PARTS = ("text", "input_text", "output_text")
"""Kinds of parts that are text, in a user's turns and in the model's earlier ones."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tool_choice": FREE_TOOL_CHOICES,
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "store": (False,),
    "include": ([],),
    "reasoning": ({},),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "max_tool_calls": (),
    **dict.fromkeys(ChatRequest.model_fields.keys() - ResponseRequest.model_fields.keys(), ()),
}
"""Fields that would change the answer, or be relied on later, and cannot be honoured, those of a chat's body among
them; with the values that change nothing."""


def chat_of(request: ResponseRequest) -> ChatRequest:
    """The same as a chat.

    Raises:
        ServiceError: 400 for a field or an item that cannot be honoured.
    """
    for name, value in (request.model_extra or {}).items():
        require_neutral(name, value, _NEUTRAL, instead=_instead(name))
    given = [InputMessage(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    system = [] if request.instructions is None else [ChatMessage(role="system", content=request.instructions)]
    return ChatRequest(
        model=request.model,
        messages=[*system, *map(_message, given)],
        stream=request.stream,
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_output_tokens,
        response_format=None if request.text is None else _format(request.text.format),
        raydebm=request.raydebm,
        **_passed_on(request),
    )


def _passed_on(request: ResponseRequest) -> dict[str, Any]:
    """Further fields, which a chat refuses where they would change the answer."""
    return {name: value for name, value in (request.model_extra or {}).items() if name not in _NEUTRAL}


def _instead(name: str) -> str:
    if name in ("previous_response_id", "conversation"):
        return " and send the whole conversation as 'input'"
    return ": no response is kept here" if name in ("store", "background") else ""


def _message(input_message: InputMessage) -> ChatMessage:
    if input_message.type != "message" or input_message.role is None:
        message = f"an input item of type {input_message.type!r} cannot be used; only messages with a role can"
        raise ServiceError(message, 400, "unsupported_content", "input")
    if input_message.content is None or isinstance(input_message.content, str):
        return ChatMessage(role=input_message.role, content=input_message.content)
    return ChatMessage(role=input_message.role, content=[_part(part) for part in input_message.content])


def _part(part: ContentPart) -> ContentPart:
    """An earlier refusal is what the assistant said, too."""
    if part.type == "refusal":
        return ContentPart(type="text", text=part.refusal)
    if part.type not in TEXT_PARTS:
        message = f"content part of type {part.type!r} cannot be read; only text parts can"
        raise ServiceError(message, 400, "unsupported_content", "input")
    return ContentPart(type="text", text=part.text)


def _format(wanted: TextFormat) -> ResponseFormat:
    if wanted.type != "json_schema":
        return ResponseFormat(type=wanted.type)
    if wanted.json_schema is None:
        message = "text.format of type 'json_schema' needs the field 'schema', a JSON Schema"
        raise ServiceError(message, 400, "unsupported_response_format", "text")
    named = {"name": wanted.name or "answer", "schema": wanted.json_schema}
    strict = {} if wanted.strict is None else {"strict": wanted.strict}
    return ResponseFormat(type="json_schema", json_schema={**named, **strict})


def response_body(
    answer: TriageResponse, request: ResponseRequest, *, on_abstain: str, form: JsonForm | None = None
) -> dict[str, Any]:
    """The whole response. Raises ServiceError (see ``chat.replies_of``)."""
    (reply,) = replies_of(answer, on_abstain, form)
    usage = ResponseUsage(
        input_tokens=answer.usage.prompt_tokens,
        output_tokens=answer.usage.completion_tokens,
        total_tokens=answer.usage.total_tokens,
    )
    return {
        **begun(request, answer.request_id),
        "status": _status(reply),
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_cut else None,
        "model": request.model,
        "output": [_output(answer.request_id, reply)],
        "usage": usage.model_dump(),
        "raydebm": decision_object(answer),
    }


def begun(request: ResponseRequest, request_id: str) -> dict[str, Any]:
    """The response before there is any answer."""
    wanted = TextFormat() if request.text is None else request.text.format
    body = ResponseBody(
        id=f"resp_{request_id}",
        created_at=int(time.time()),
        status="in_progress",
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        model=request.model,
        temperature=request.temperature,
        text={"format": wanted.model_dump(by_alias=True, exclude_none=True)},
        top_p=request.top_p,
    )
    return body.model_dump(mode="json")


def _status(reply: Reply) -> str:
    return "incomplete" if reply.is_cut else "completed"


def _output(request_id: str, reply: Reply) -> dict[str, Any]:
    is_text = reply.refusal is None
    content = OutputText(text=reply.content or "") if is_text else OutputRefusal(refusal=reply.refusal or "")
    message = {"id": f"msg_{request_id}", "type": "message", "role": "assistant", "status": _status(reply)}
    return {**message, "content": [content.model_dump()]}


def opening_events(request: ResponseRequest, request_id: str) -> list[dict[str, Any]]:
    """The events before there is any answer."""
    body = begun(request, request_id)
    return [{"type": f"response.{kind}", "response": body} for kind in ("created", "in_progress")]


def answer_events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answer as events: its item, its text in pieces, the end with the whole response."""
    (output_item,) = body["output"]
    (part,) = output_item["content"]
    kind, field = part["type"], "text" if part["type"] == "output_text" else "refusal"
    at = {"item_id": output_item["id"], "output_index": 0, "content_index": 0}
    more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    started = {**output_item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": started}
    yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
    for piece in pieces_of(part[field]):
        yield {"type": f"response.{kind}.delta", **at, "delta": piece, **more}
    yield {"type": f"response.{kind}.done", **at, field: part[field], **more}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": output_item}
    yield {"type": f"response.{body['status']}", "response": body}


def failure_events(request: ResponseRequest, request_id: str, failure: dict[str, Any]) -> list[dict[str, Any]]:
    """The end of a stream without an answer.

    Args:
        request: what was asked.
        request_id: of the request.
        failure: see ``triage.event_stream.stream_error``.
    """
    facts = {"code": failure["error"]["code"], "message": failure["error"]["message"]}
    body = {**begun(request, request_id), "status": "failed", "error": facts}
    told = {name: failure[name] for name in ("status", "should_retry")}
    return [{"type": "response.failed", "response": body, **told}]
