"""The triage answer in OpenAI's chat shape.

An abstention is HTTP 200 with ``refusal`` set and ``content`` null, as OpenAI's clients know it from refusals; the
reasons stand in the top-level ``raydebm`` object, where typed clients find them in ``model_extra``.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from raydebm.errors import ServiceError
from raydebm.serving.asking import AUTO, Ask, make_ask
from raydebm.serving.bundle import Bundle
from raydebm.serving.conversation import read_conversation
from raydebm.serving.models import AUTO_ID, MODEL_PREFIX, parse_model
from raydebm.serving.overrides import merged_overrides
from raydebm.serving.schema import CandidateBody, ChatOverrides, ChatRequest, DecisionBody, TriageResponse
from raydebm.serving.structured import JsonForm, format_for_endpoints, json_form

CHUNK_CHARS = 80

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "audio": (),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
}
"""Fields that would change the answer and cannot be honoured, with the values that change nothing."""

_OURS = frozenset(field.alias or name for name, field in ChatOverrides.model_fields.items())
"""Of the ``raydebm`` object. Left at the top level they would change nothing, and nobody would know."""


def make_chat_ask(
    bundle: Bundle,
    request: ChatRequest,
    *,
    request_id: str,
    headers: Mapping[str, str] | None = None,
    received: float | None = None,
) -> tuple[Ask, ChatOverrides]:
    """What to run, and how to answer.

    Raises:
        ServiceError: an unknown model, unsupported fields, missing text and all that ``make_ask`` refuses.
    """
    _check_supported(request)
    task_name, policy = parse_model(bundle, request.model)
    overrides = merged_overrides(bundle, request.raydebm, headers=headers or {}, policy=policy)
    if overrides.task is not None and task_name not in (AUTO, overrides.task):
        message = f"model {request.model!r} and raydebm.task {overrides.task!r} contradict each other; give one of them"
        raise ServiceError(message, 400, "bad_override", "raydebm.task")
    conversation = read_conversation(request.messages)
    if json_form(request.response_format) is not None and overrides.on_abstain == "text":
        message = "on_abstain 'text' answers in words, which response_format rules out; use 'refuse', 'best' or 'error'"
        raise ServiceError(message, 400, "bad_override", "on_abstain")
    ask = make_ask(
        bundle,
        overrides,
        request_id=request_id,
        task_name=overrides.task or task_name,
        problem=conversation.problem,
        sampling=request.sampling(),
        seed=request.seed,
        conversation=conversation,
        received=received,
    )
    offered = format_for_endpoints(request.response_format, ask.task)
    return replace(ask, response_format=None if offered is None else json.dumps(offered, sort_keys=True)), overrides


def _check_supported(request: ChatRequest) -> None:
    for name, value in (request.model_extra or {}).items():
        if name in _OURS:
            message = f"{name!r} belongs into the body's raydebm object: extra_body={{'raydebm': {{{name!r}: ...}}}}"
            raise ServiceError(message, 400, "misplaced_parameter", name)
        if name in _NEUTRAL and value is not None and value not in _NEUTRAL[name]:
            message = f"{name!r} with value {value!r} is not supported; leave it out"
            raise ServiceError(message, 400, "unsupported_parameter", name)


def final_text(answer: TriageResponse, on_abstain: str, form: JsonForm | None = None) -> tuple[str | None, str | None]:
    """(content, refusal): exactly one of them is a text.

    Args:
        answer: the decision.
        on_abstain: see ``ChatOverrides``.
        form: of the content; None: the candidate's own text.

    Raises:
        ServiceError: 422 for an abstention when the client asked for an error; 400 for an answer that is not of this
            form.
    """
    given = _given(answer, on_abstain)
    if given is not None:
        return given.text if form is None else form.content(given.answer or ""), None
    refusal = f"No answer can be trusted: {answer.reason}."
    if on_abstain == "text":
        return refusal, None
    if on_abstain == "error":
        raise ServiceError(refusal, 422, "abstained")
    return None, refusal


def _given(answer: TriageResponse, on_abstain: str) -> CandidateBody | None:
    """The candidate whose text is given out; None: none is."""
    return answer.candidate if answer.decision == "accept" or on_abstain == "best" else None


def completion_body(
    answer: TriageResponse, *, model: str, on_abstain: str, form: JsonForm | None = None
) -> dict[str, Any]:
    """The body of a chat completion that is not streamed. Raises ServiceError (see ``final_text``)."""
    content, refusal = final_text(answer, on_abstain, form)
    finish_reason = _finish_reason(answer, on_abstain)
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        **_head(answer, model, "chat.completion"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": answer.usage.model_dump(),
        "raydebm": decision_object(answer),
    }


def completion_chunks(
    answer: TriageResponse, *, model: str, on_abstain: str, include_usage: bool, form: JsonForm | None = None
) -> Iterator[dict[str, Any]]:
    """The answer as chunks: the role, the text in pieces, the end with the ``raydebm`` object, and the usage if asked.

    Raises:
        ServiceError: see ``final_text``.
    """
    content, refusal = final_text(answer, on_abstain, form)
    head = _head(answer, model, "chat.completion.chunk")
    field, text = ("content", content) if refusal is None else ("refusal", refusal)
    yield {**head, "choices": [_delta({"role": "assistant", "content": "" if refusal is None else None})]}
    for start in range(0, len(text or ""), CHUNK_CHARS):
        yield {**head, "choices": [_delta({field: (text or "")[start : start + CHUNK_CHARS]})]}
    finish_reason = _finish_reason(answer, on_abstain)
    yield {**head, "choices": [_delta({}, finish_reason=finish_reason)], "raydebm": decision_object(answer)}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage.model_dump()}


def _finish_reason(answer: TriageResponse, on_abstain: str) -> str:
    """``length`` for a candidate that was cut, which is what clients look for; a refusal is whole."""
    returned = _given(answer, on_abstain)
    return "length" if returned is not None and returned.finish_reason == "length" else "stop"


def decision_object(answer: TriageResponse) -> dict[str, Any]:
    """The ``raydebm`` object: everything about the decision; the text itself stands in the choice."""
    found = answer.model_dump(include=set(DecisionBody.model_fields))
    if answer.candidates is None:
        del found["candidates"]
    return {**found, "answer": answer.answer}


def _head(answer: TriageResponse, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.request_id}",
        "object": kind,
        "created": int(time.time()),
        "model": model.replace(AUTO_ID, MODEL_PREFIX + answer.task, 1) if model.startswith(AUTO_ID) else model,
        "system_fingerprint": f"{answer.versions.get('checkpoint', '')}-{answer.versions.get('policy', '')}",
    }


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
