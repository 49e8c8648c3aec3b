"""OpenAI's models and chat completions, over triage.

An abstention is HTTP 200 with ``refusal`` set and ``content`` null, as OpenAI's clients handle refusals. The reasons
are in the top-level ``raydebm`` object, which typed clients expose as ``model_extra``.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from raydebm.errors import ServiceError
from raydebm.service.core.request import ProblemBody, RequestContext, charged_to, request_context
from raydebm.service.core.service import TriageService
from raydebm.service.routes.answers import ChoiceBody, TriageResponse, triage_answer
from raydebm.service.routes.connection import EventStream, while_connected
from raydebm.service.routes.json_form import JsonForm, format_for_endpoints, read_form, written_in
from raydebm.service.routes.openapi import examples_of
from raydebm.service.routes.requests import (
    ChatRequest,
    merged_overrides,
    model_body,
    models_body,
    parse_model,
    read_conversation,
)
from raydebm.service.routes.triage import ended_by_done, event_text, progress_event, request_events
from raydebm.service.settings.bundle import Bundle
from raydebm.service.settings.overrides import ChatOverrides

CHUNK_CHARS = 80
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
}
"""Fields that would change the answer and are not supported, with the values that change nothing. Tools may be offered:
candidates do not call them, as any model may choose unless it is forced to."""

_OURS = frozenset(field.alias or name for name, field in ChatOverrides.model_fields.items())
"""Fields of the ``raydebm`` object. At the top level they would be ignored silently."""


# ---- requests and answers --------------------------------------------------------------------------------------------


def chat_context(
    bundle: Bundle,
    request: ChatRequest,
    *,
    request_id: str,
    received: float | None = None,
) -> tuple[RequestContext, ChatOverrides]:
    """Context of the request, and its settings for the reply.

    Raises:
        ServiceError: an unknown model, unsupported fields, missing text, or an error of ``request_context``.
    """
    _check_supported(request)
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
        request_id=request_id,
        task_name=task_name,
        problem=ProblemBody(prompt=conversation.problem, kind=overrides.kind),
        sampling=request.sampling(),
        conversation=conversation,
    )
    offered = format_for_endpoints(wanted, context.task)
    response_format = None if offered is None else json.dumps(offered, sort_keys=True)
    return replace(context, response_format=response_format, num_choices=request.n, received=received), overrides


def _check_supported(request: ChatRequest) -> None:
    for name, value in (request.model_extra or {}).items():
        if name in _OURS:
            message = f"{name!r} belongs in the body's raydebm object: extra_body={{'raydebm': {{{name!r}: ...}}}}"
            raise ServiceError(message, 400, "misplaced_parameter", name)
        require_neutral(name, value, _NEUTRAL)


def require_neutral(name: str, value: Any, neutral: Mapping[str, tuple[Any, ...]], *, instead: str = "") -> None:
    """Refuse a field's value that would have to be ignored.

    Args:
        neutral: values without an effect, by field; other fields are not checked.
        instead: further advice for the message, after leaving the field out.

    Raises:
        ServiceError: 400.
    """
    if name in neutral and value is not None and value not in neutral[name]:
        message = f"{name!r} with value {str(value)[:200]!r} is not supported; leave it out{instead}"
        raise ServiceError(message, 400, "unsupported_parameter", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One choice of a chat: exactly one of content and refusal is a text."""

    content: str | None = None
    refusal: str | None = None
    is_cut: bool = False
    """The text was cut at ``max_tokens``."""
    facts: dict[str, Any] | None = None
    """Facts of one of several choices: its ``ChoiceBody`` without the text."""

    @property
    def end(self) -> dict[str, str]:
        """``length`` for a cut text, which clients look for; a refusal is never cut."""
        return {"finish_reason": "length" if self.is_cut else "stop"}


def replies_of(answer: TriageResponse, on_abstain: str, form: JsonForm | None = None) -> list[Reply]:
    """The choices of a chat: the accepted answer or a refusal, then the other requested ones.

    Args:
        answer: the decision.
        on_abstain: see ``ChatOverrides``.
        form: JSON form of the contents. Default: the candidates' own texts.

    Raises:
        ServiceError: 422 for an abstention when the client asked for an error; 400 for an answer that does not fit the
            form.
    """
    selected = answer.candidate if answer.decision == "accept" or on_abstain == "best" else None
    if selected is None:
        words = f"No answer can be trusted: {answer.reason}."
        if on_abstain == "error":
            raise ServiceError(words, 422, "abstained")
        return [Reply(content=words) if on_abstain == "text" else Reply(refusal=words)]
    choices = answer.choices or []
    first = Reply(
        content=selected.text if form is None else form.content(selected.answer or ""),
        is_cut=selected.finish_reason == "length",
        facts=_facts(choices[0]) if choices else None,
    )
    return [first, *(reply for choice in choices[1:] if (reply := _further(choice, form)) is not None)]


def _further(choice: ChoiceBody, form: JsonForm | None) -> Reply | None:
    """A further choice, or None if the answer does not fit the form."""
    try:
        content = choice.text if form is None else form.content(choice.answer or "")
    except ServiceError:
        return None
    return Reply(content=content, is_cut=choice.finish_reason == "length", facts=_facts(choice))


def _facts(choice: ChoiceBody) -> dict[str, Any]:
    return choice.model_dump(exclude={"text", "finish_reason"})


def completion_body(
    answer: TriageResponse, request: ChatRequest, *, on_abstain: str, form: JsonForm | None
) -> dict[str, Any]:
    """Body of a chat completion without streaming. Raises ServiceError (see ``replies_of``)."""
    replies = replies_of(answer, on_abstain, form)
    choices = []
    for index, reply in enumerate(replies):
        message = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
        choices.append(_with_facts(reply, {"index": index, "message": message, "logprobs": None, **reply.end}))
    return {
        **_head(answer, request.model, "chat.completion"),
        "choices": choices,
        "usage": answer.usage.model_dump(),
        "raydebm": answer.chat_object(choices=_count(answer, replies, request.n)),
    }


def completion_chunks(
    answer: TriageResponse, request: ChatRequest, *, on_abstain: str, form: JsonForm | None
) -> Iterator[dict[str, Any]]:
    """Chunks of the answer, choice by choice: the role, the text in pieces, the end. The last has the ``raydebm``
    object; the usage follows if requested.

    Raises:
        ServiceError: see ``replies_of``.
    """
    replies = replies_of(answer, on_abstain, form)
    head = _head(answer, request.model, "chat.completion.chunk")

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}

    for index, reply in enumerate(replies):
        field, text = ("content", reply.content) if reply.refusal is None else ("refusal", reply.refusal)
        said: dict[str, Any] = {"role": "assistant", "content": "" if reply.refusal is None else None}
        for delta in (said, *({field: piece} for piece in pieces_of(text or ""))):
            yield {**head, "choices": [chunk(index, delta)]}
        is_last = index == len(replies) - 1
        decision = {"raydebm": answer.chat_object(choices=_count(answer, replies, request.n))} if is_last else {}
        yield {**head, "choices": [_with_facts(reply, chunk(index, {}, **reply.end))], **decision}
    if request.stream_options is not None and request.stream_options.include_usage:
        yield {**head, "choices": [], "usage": answer.usage.model_dump()}


def _with_facts(reply: Reply, choice: dict[str, Any]) -> dict[str, Any]:
    return choice if reply.facts is None else {**choice, "raydebm": reply.facts}


def pieces_of(text: str) -> Sequence[str]:
    """Pieces of the text for a stream."""
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


def _count(answer: TriageResponse, replies: Sequence[Reply], n: int | None) -> dict[str, Any] | None:
    """Number of the requested choices that are given, with the reason if there are fewer."""
    if n is None:
        return None
    num_given = sum(reply.facts is not None for reply in replies)
    reason = f"of the distinct answers of the candidates, {num_given} may be given out"
    if num_given == 0:
        reason = "no answer can be trusted"
    elif num_given < len(answer.choices or []):
        reason = "the other answers cannot be given in this response_format"
    return {"asked": n, "given": num_given, "reason": None if num_given == n else reason}


def _head(answer: TriageResponse, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": f"{answer.versions.get('checkpoint', '')}-{answer.versions.get('policy', '')}",
    }


# ---- routes ----------------------------------------------------------------------------------------------------------


def chat_routes(service: TriageService) -> APIRouter:
    """Models and chat completions."""
    router = APIRouter(tags=["chat"])

    @router.get("/v1/models", summary="List models")
    async def models() -> dict[str, Any]:
        """One model per task and named policy."""
        return models_body(service.bundle)

    @router.get("/v1/models/{model_id:path}", summary="Show a model")
    async def model(model_id: str) -> dict[str, Any]:
        """One model by its id."""
        return model_body(service.bundle, model_id)

    @router.post(
        "/v1/chat/completions",
        summary="Complete a chat",
        response_model=None,
        responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
        openapi_extra=examples_of("chat", service.bundle),
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        """OpenAI's chat completions. The last user message is the problem; earlier messages are context.

        An abstention is a refusal: status 200, `content` null, `refusal` set. The top-level `raydebm` object says why.
        With `stream`, the response is progress, then the answer's chunks, then `[DONE]`."""
        context, overrides, form = await asked(service, body, request)

        on_abstain = overrides.on_abstain

        def chunks(answer: TriageResponse) -> list[str]:
            return [event_text(chunk) for chunk in completion_chunks(answer, body, on_abstain=on_abstain, form=form)]

        if body.stream:
            events = request_events(
                service,
                context,
                told=progress_form(overrides),
                answered=lambda answer: written_in(form, lambda: chunks(answer)),
                failed=event_text,
            )
            return EventStream(ended_by_done(events))
        answer = triage_answer(await while_connected(request, service.triage(context)))
        return JSONResponse(
            await written_in(form, lambda: completion_body(answer, body, on_abstain=on_abstain, form=form))
        )

    return router


async def asked(
    service: TriageService, body: ChatRequest, request: Request
) -> tuple[RequestContext, ChatOverrides, JsonForm | None]:
    """Context, reply settings and JSON form of a chat, on its caller's account. Raises ServiceError."""
    state, form = request.state, await read_form(body.response_format)
    context, overrides = chat_context(service.bundle, body, request_id=state.request_id, received=state.received)
    return charged_to(context, state.account), overrides, form


def progress_form(overrides: ChatOverrides) -> Callable[[dict[str, Any]], str | None]:
    """Writer of progress events: as comments, which every SSE client skips, as named events, or not at all. The
    ``openai`` client parses an event of any name as a chunk."""
    if overrides.progress == "none":
        return lambda facts: None
    return lambda facts: progress_event(facts, named=overrides.progress == "events")
