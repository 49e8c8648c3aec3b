"""OpenAI-compatible models and chat completions, answered by triage.

An abstention is HTTP 200 with ``refusal`` set and ``content`` null, as OpenAI's clients handle refusals. The reasons
are in the top-level ``raydebm`` object, which typed clients expose as ``model_extra``.

For clients that send ``response_format`` the content is the task's parsed, canonical answer as JSON. If they need an
object and the answer is not one, it is wrapped in one: under the schema's only property, else under ``answer``.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from raydebm.errors import ConstraintError, ServiceError
from raydebm.records import well_formed
from raydebm.service.core import ProblemBody, RequestContext, TriageService, request_context
from raydebm.service.routes.bodies import (
    ChatRequest,
    ResponseFormat,
    TriageResponse,
    merged_overrides,
    model_body,
    model_ids,
    parse_model,
    read_conversation,
    triage_answer,
)
from raydebm.service.routes.openapi import examples_of
from raydebm.service.routes.streams import EventStream, event_text, request_events
from raydebm.service.settings import Bundle, ChatOverrides
from raydebm.tasks.base import Task
from raydebm.tasks.constraints.expressions import EvaluationError
from raydebm.tasks.constraints.schemas import Steps, check_schema, faults_of, validator_of

T = TypeVar("T")
CHUNK_CHARS = 80
PARAM = "response_format"
MAX_SCHEMA_CHARS = 64_000
"""Maximum length of a client's schema, as JSON."""
MAX_FORM_STEPS = 5_000
"""Limit on validation steps per request, over all shapes of its answer."""
FREE_TOOL_CHOICES = ("auto", "none")
"""Values of ``tool_choice`` that leave a model free to answer in words."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tool_choice": FREE_TOOL_CHOICES,
    "function_call": FREE_TOOL_CHOICES,
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "audio": (),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "n": (1,),
}
"""Fields that would change the answer and are not supported, with the values that change nothing. Tools may be offered:
no candidate calls them, which is a valid reply to a request that does not require a call."""
_OURS = frozenset(field.alias or name for name, field in ChatOverrides.model_fields.items())
"""Fields of the ``raydebm`` object. At the top level they would be ignored silently."""


# ---- requests -------------------------------------------------------------------------------------------------------


async def read_request(
    service: TriageService, body: ChatRequest, request: Request
) -> tuple[RequestContext, ChatOverrides, "JsonForm | None"]:
    """Context, reply settings and JSON form of a chat. Raises ServiceError."""
    state, wanted = request.state, body.response_format
    # Checking a schema is slow, and other requests go on meanwhile.
    form = await asyncio.to_thread(json_form, wanted) if wanted and wanted.json_schema else json_form(wanted)
    facts = {"request_id": state.request_id, "received": state.received, "account": state.account}
    return *chat_context(service.bundle, body, **facts), form


def chat_context(bundle: Bundle, request: ChatRequest, **facts: Any) -> tuple[RequestContext, ChatOverrides]:
    """Context of the request, and its settings for the reply. Raises ServiceError for the first fault."""
    for name, value in (request.model_extra or {}).items():
        if name in _OURS:
            message = f"{name!r} belongs in the body's raydebm object: extra_body={{'raydebm': {{{name!r}: ...}}}}"
            raise ServiceError(message, 400, "misplaced_parameter", name)
        require_neutral(name, value, _NEUTRAL)
    task_name, policy = parse_model(bundle, request.model)
    overrides = merged_overrides(bundle, request.raydebm, policy=policy)
    conversation = read_conversation(request.messages)
    wanted = request.response_format
    if wanted is not None and wanted.type != "text" and overrides.on_abstain == "text":
        message = "on_abstain 'text' answers in words, which response_format rules out; use 'refuse', 'best' or 'error'"
        raise ServiceError(message, 400, "bad_override", "on_abstain")
    context = request_context(
        bundle,
        overrides if overrides.seed is not None else overrides.model_copy(update={"seed": request.seed}),
        task_name=task_name,
        problem=ProblemBody(prompt=conversation.problem, kind=overrides.kind),
        sampling=request.sampling(),
        conversation=conversation,
        **facts,
    )
    offered = format_for_endpoints(wanted, context.task)
    response_format = None if offered is None else json.dumps(offered, sort_keys=True)
    return replace(context, response_format=response_format), overrides


def require_neutral(name: str, value: Any, neutral: Mapping[str, tuple[Any, ...]], *, instead: str = "") -> None:
    """Raise ServiceError 400 for an unsupported field, unless its value changes nothing (``neutral``, by field).
    ``instead`` is further advice, after leaving the field out."""
    if name in neutral and value is not None and value not in neutral[name]:
        message = f"{name!r} with value {str(value)[:200]!r} is not supported; leave it out{instead}"
        raise ServiceError(message, 400, "unsupported_parameter", name)


# ---- answers as JSON ------------------------------------------------------------------------------------------------


class JsonForm:
    """JSON form requested by a client, made once per request. ``schema`` is None for any object."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self.schema, self.steps = schema, Steps(MAX_FORM_STEPS)
        self._validator = None if schema is None else validator_of(schema)

    def content(self, answer: str) -> str:
        """The canonical answer as JSON in this form. Raises ServiceError 400 if it does not fit."""
        faults = []
        for value in self._shapes(answer):
            fault = self._fault(value)
            if fault is None:
                return well_formed(json.dumps(value, ensure_ascii=False))
            faults.append(fault)
        message = f"the answer {answer[:200]!r} cannot be given in this response_format: {faults[0]}"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)

    def _shapes(self, answer: str) -> Iterator[Any]:
        """The answer's JSON value. Unless it is an object, also the answer's text, then both wrapped in an object."""
        try:
            value = json.loads(answer)
            json.dumps(value, allow_nan=False)  # Python's parser accepts more than others, and reads 1e999 as infinity
        except (ValueError, RecursionError):
            value = answer
        if isinstance(value, dict):
            yield value
            return
        plain = [value] if value == answer else [value, answer]
        yield from plain
        properties = {} if self.schema is None else self.schema.get("properties", {})
        name = next(iter(properties)) if isinstance(properties, dict) and len(properties) == 1 else "answer"
        yield from ({name: shape} for shape in plain)

    def _fault(self, value: Any) -> str | None:
        if self.schema is None:
            return None if isinstance(value, dict) else "it is not an object"
        try:
            faults = faults_of(self._validator, value, self.steps)
        except EvaluationError as error:
            return str(error)
        return f"{faults[0].path}: {faults[0].reason}".lstrip(": ") if faults else None


def json_form(wanted: ResponseFormat | None) -> JsonForm | None:
    """Requested form, or None for plain text. Raises ServiceError 400 for a schema that is missing, too long, or not
    JSON Schema."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return JsonForm(None)
    schema = (wanted.json_schema or {}).get("schema")
    fault = ""
    if not isinstance(schema, dict):
        fault = "response_format.json_schema needs the field 'schema', a JSON Schema"
    elif (num_chars := len(json.dumps(schema))) > MAX_SCHEMA_CHARS:
        fault = f"response_format.json_schema.schema has {num_chars} characters; at most {MAX_SCHEMA_CHARS} are read"
    else:
        try:
            check_schema(schema)
        except ConstraintError as error:
            fault = f"response_format.json_schema.schema cannot be used: {error}"
    if fault:
        raise ServiceError(fault, 400, "unsupported_response_format", PARAM)
    return JsonForm(schema)


async def run_write(form: JsonForm | None, write: Callable[[], T]) -> T:
    """Run ``write``, in a thread if it validates against a client's schema."""
    return write() if form is None or form.schema is None else await asyncio.to_thread(write)


def format_for_endpoints(wanted: ResponseFormat | None, task: Task) -> dict[str, Any] | None:
    """``response_format`` for endpoints with constrained decoding: the task's own schema, if it has one, because
    ``parse`` reads its form; a client's schema may be another shape of the same answer."""
    if wanted is None or wanted.type == "text":
        return None
    schema = getattr(task, "answer_schema", None)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": task.name, "schema": dict(schema)}}
    return {"type": "json_object"} if wanted.type == "json_object" else None


# ---- answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One choice of a chat: exactly one of content and refusal is a text."""

    content: str | None = None
    refusal: str | None = None
    is_cut: bool = False
    """The text was cut at ``max_tokens``."""

    def choice(self, **fields: Any) -> dict[str, Any]:
        """The finished choice. Its ``finish_reason`` is ``length`` if the text was cut; a refusal is never cut."""
        return {"index": 0, **fields, "logprobs": None, "finish_reason": "length" if self.is_cut else "stop"}


def reply_of(answer: TriageResponse, on_abstain: str, form: JsonForm | None = None) -> Reply:
    """The accepted answer or a refusal. Raises ServiceError 422 for an abstention when the client asked for an error,
    400 for an answer that does not fit the form."""
    selected = answer.candidate if answer.decision == "accept" or on_abstain == "best" else None
    if selected is None:
        words = f"No answer can be trusted: {answer.reason}."
        if on_abstain == "error":
            raise ServiceError(words, 422, "abstained")
        return Reply(content=words) if on_abstain == "text" else Reply(refusal=words)
    content = selected.text if form is None else form.content(selected.answer or "")
    return Reply(content=content, is_cut=selected.finish_reason == "length")


def _common(answer: TriageResponse, request: ChatRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "system_fingerprint": f"{answer.versions.get('checkpoint', '')}-{answer.versions.get('policy', '')}",
    }


def completion_body(
    answer: TriageResponse, request: ChatRequest, *, on_abstain: str, form: JsonForm | None
) -> dict[str, Any]:
    """Body of a chat completion without streaming. Raises ServiceError (see ``reply_of``)."""
    reply = reply_of(answer, on_abstain, form)
    message = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
    return {
        **_common(answer, request, "chat.completion"),
        "choices": [reply.choice(message=message)],
        "usage": answer.usage.model_dump(),
        "raydebm": answer.chat_object,
    }


def completion_chunks(
    answer: TriageResponse, request: ChatRequest, *, on_abstain: str, form: JsonForm | None
) -> Iterator[dict[str, Any]]:
    """Chunks of the answer: the role, the text in pieces, and the end with the ``raydebm`` object; the usage follows if
    requested. Raises ServiceError (see ``reply_of``)."""
    reply, common = reply_of(answer, on_abstain, form), _common(answer, request, "chat.completion.chunk")
    field, text = ("content", reply.content) if reply.refusal is None else ("refusal", reply.refusal)
    said: dict[str, Any] = {"role": "assistant", "content": "" if reply.refusal is None else None}
    for delta in (said, *({field: piece} for piece in pieces_of(text or ""))):
        yield {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    yield {**common, "choices": [reply.choice(delta={})], "raydebm": answer.chat_object}
    if request.stream_options is not None and request.stream_options.include_usage:
        yield {**common, "choices": [], "usage": answer.usage.model_dump()}


def pieces_of(text: str) -> Sequence[str]:
    """Pieces of the text for a stream."""
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


# ---- routes ---------------------------------------------------------------------------------------------------------


def chat_routes(service: TriageService) -> APIRouter:
    """Models and chat completions."""
    router, bundle = APIRouter(tags=["chat"]), service.bundle

    @router.get("/v1/models", summary="List models")
    async def models() -> dict[str, Any]:
        """One model per task and named policy."""
        return {"object": "list", "data": [model_body(bundle, name) for name in model_ids(bundle)]}

    @router.get("/v1/models/{model_id:path}", summary="Show a model")
    async def model(model_id: str) -> dict[str, Any]:
        """One model by its id."""
        return model_body(bundle, model_id)

    @router.post(
        "/v1/chat/completions",
        summary="Complete a chat",
        response_model=None,
        responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
        openapi_extra=examples_of("chat", bundle),
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        """OpenAI's chat completions. The last user message is the problem; earlier messages are context.

        An abstention is a refusal: status 200, `content` null, `refusal` set. The top-level `raydebm` object says why.
        With `stream`, the response is progress, then the answer's chunks, then `[DONE]`."""
        context, overrides, form = await read_request(service, body, request)
        settings: dict[str, Any] = {"on_abstain": overrides.on_abstain, "form": form}

        async def answered(answer: TriageResponse) -> list[str]:
            return await run_write(form, lambda: [*map(event_text, completion_chunks(answer, body, **settings))])

        if body.stream:
            return EventStream(request_events(service, context, answered=answered, failed=event_text))
        answer = triage_answer(await service.triage(context))
        return JSONResponse(await run_write(form, lambda: completion_body(answer, body, **settings)))

    return router
