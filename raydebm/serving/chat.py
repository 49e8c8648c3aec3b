"""The triage answer in OpenAI's chat shape.

An abstention is HTTP 200 with ``refusal`` set and ``content`` null, as OpenAI's clients know it from refusals; the
reasons stand in the top-level ``raydebm`` object, where typed clients find them in ``model_extra``.
"""

import time
from collections.abc import Iterator
from typing import Any

from raydebm.errors import ServiceError
from raydebm.serving.asking import AUTO, Ask, last_user_message, make_ask
from raydebm.serving.bundle import Bundle
from raydebm.serving.schema import ChatOverrides, ChatRequest, DecisionBody, TriageResponse

MODEL_PREFIX = "raydebm/"
CHUNK_CHARS = 80

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "audio": (),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
}
"""Fields that would change the answer and cannot be honoured, with the values that change nothing."""


def make_chat_ask(bundle: Bundle, request: ChatRequest, *, request_id: str) -> Ask:
    """Raises ServiceError for an unknown model, unsupported fields, missing text and all that ``make_ask`` refuses."""
    _check_supported(request)
    overrides = request.raydebm or ChatOverrides()
    task_name = _task_of(bundle, request.model, overrides.task)
    text, ignored = last_user_message(request.messages)
    return make_ask(
        bundle,
        overrides,
        request_id=request_id,
        task_name=task_name,
        problem=text,
        sampling=request.sampling(),
        seed=request.seed,
        ignored_messages=ignored,
    )


def _check_supported(request: ChatRequest) -> None:
    for name, value in (request.model_extra or {}).items():
        if name in _NEUTRAL and value is not None and value not in _NEUTRAL[name]:
            message = f"{name!r} with value {value!r} is not supported; leave it out"
            raise ServiceError(message, 400, "unsupported_parameter", name)


def _task_of(bundle: Bundle, model: str, task_name: str | None) -> str:
    wanted = model.removeprefix(MODEL_PREFIX)
    known = (*bundle.tasks, AUTO)
    if not model.startswith(MODEL_PREFIX) or wanted not in known:
        names = ", ".join(MODEL_PREFIX + name for name in known)
        raise ServiceError(f"model {model!r} is not served here; served: {names}", 404, "unknown_model", "model")
    if task_name is not None and wanted not in (AUTO, task_name):
        message = f"model {model!r} and raydebm.task {task_name!r} contradict each other; give one of them"
        raise ServiceError(message, 400, "bad_override", "raydebm.task")
    return task_name or wanted


def models_body(bundle: Bundle) -> dict[str, Any]:
    """``GET /v1/models``."""
    ids = [MODEL_PREFIX + name for name in (*bundle.tasks, AUTO)]
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "raydebm"} for name in ids],
    }


def final_text(answer: TriageResponse, on_abstain: str) -> tuple[str | None, str | None]:
    """(content, refusal): exactly one of them is a text.

    Raises:
        ServiceError: 422 for an abstention when the client asked for an error.
    """
    if answer.decision == "accept":
        return answer.text, None
    if on_abstain == "best" and answer.candidate is not None:
        return answer.candidate.text, None
    refusal = f"No answer can be trusted: {answer.reason}."
    if on_abstain == "error":
        raise ServiceError(refusal, 422, "abstained")
    return None, refusal


def completion_body(answer: TriageResponse, *, model: str, on_abstain: str) -> dict[str, Any]:
    """The body of a chat completion that is not streamed."""
    content, refusal = final_text(answer, on_abstain)
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        **_head(answer, model, "chat.completion"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": answer.usage.model_dump(),
        "raydebm": decision_object(answer),
    }


def completion_chunks(
    answer: TriageResponse, *, model: str, on_abstain: str, include_usage: bool
) -> Iterator[dict[str, Any]]:
    """The answer as chunks: the role, the text in pieces, the end with the ``raydebm`` object, and the usage if asked.

    Raises:
        ServiceError: see ``final_text``.
    """
    content, refusal = final_text(answer, on_abstain)
    head = _head(answer, model, "chat.completion.chunk")
    field, text = ("content", content) if refusal is None else ("refusal", refusal)
    yield {**head, "choices": [_delta({"role": "assistant", "content": "" if refusal is None else None})]}
    for start in range(0, len(text or ""), CHUNK_CHARS):
        yield {**head, "choices": [_delta({field: (text or "")[start : start + CHUNK_CHARS]})]}
    yield {**head, "choices": [_delta({}, finish_reason="stop")], "raydebm": decision_object(answer)}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage.model_dump()}


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
        "model": MODEL_PREFIX + answer.task if model.endswith(AUTO) else model,
        "system_fingerprint": f"{answer.versions.get('checkpoint', '')}-{answer.versions.get('policy', '')}",
    }


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
