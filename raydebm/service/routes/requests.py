"""Request bodies of chats and of triage, and their conversion to problem, task and settings.

Unknown fields are refused in raydebm's own bodies. They are tolerated in OpenAI's, whose clients send many fields that
have no effect here.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from raydebm.errors import ServiceError
from raydebm.service.core.request import ROLES, Conversation, ProblemBody
from raydebm.service.routes.answers import MAX_ANSWERS
from raydebm.service.settings.bundle import Bundle
from raydebm.service.settings.overrides import (
    SEED_LIMIT,
    ChatOverrides,
    Data,
    Overrides,
    SamplingOverrides,
    Text,
    writable,
)

MAX_STOPS = 16
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
"""Kinds of text parts, in a user's turns and in the model's earlier ones."""
StopText = Annotated[Text, Field(min_length=1)]


def _fields_as_text(problem: Any) -> Any:
    """Fields of a task's own problem as the JSON that the task parses; other values unchanged."""
    if isinstance(problem, dict) and "prompt" not in problem:
        return json.dumps(problem, ensure_ascii=False)
    return problem


GivenFields = BeforeValidator(_fields_as_text, json_schema_input_type=Text | ProblemBody | dict[str, Any] | None)
"""Accepts an object without ``prompt`` as the fields of a problem."""


class ContentPart(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Text
    text: Text | None = None
    refusal: Text | None = None
    """Words of an earlier refusal."""


class ChatMessage(BaseModel):
    """One turn. Content may be a text or a list of parts, of which only text can be read."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    role: Text
    content: Text | list[ContentPart] | None = None


class TriageRequest(Overrides):
    """Exactly one of ``problem`` and ``messages``."""

    task: Text | None = None
    """Default: the only served task."""
    problem: Annotated[Text | ProblemBody | None, GivenFields] = None
    """A text, an object with the fields of a declared task's problem, or an object with ``prompt``."""
    messages: list[ChatMessage] | None = None
    """The last user message is the problem; earlier messages are context."""
    stream: bool = False
    """Server-sent events: progress while candidates arrive, then the full record."""
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    """Maximum number of distinct answers in ``choices``; no additional candidates are sampled for them."""

    @model_validator(mode="after")
    def _one_problem(self) -> "TriageRequest":
        if (self.problem is None) == (self.messages is None):
            raise ValueError("give exactly one of 'problem' and 'messages'")
        return self


class StreamOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    include_usage: bool = False


class ResponseFormat(BaseModel):
    """Format of the content: the task's answer in this form."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Data | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        writable(self.model_extra)
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("type 'json_schema' needs the field 'json_schema'")
        return self


class ChatRequest(BaseModel):
    """OpenAI's body. Unsupported fields that would change the answer are refused in ``chat``."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    model: Text
    messages: list[ChatMessage] = Field(min_length=1)
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    """Maximum number of choices: the best distinct answers, each once. No additional candidates are sampled for
    them."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    response_format: ResponseFormat | None = None
    raydebm: ChatOverrides | None = None

    def sampling(self) -> SamplingOverrides:
        """Temperature 0 means "be deterministic" to clients that send it; answers here are, for a seed, while
        candidates at temperature 0 would all be the same. So 0 keeps the recipe's temperature."""
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        return SamplingOverrides(
            temperature=self.temperature or None,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=None if stop is None else tuple(stop),
        )


# ---- problems --------------------------------------------------------------------------------------------------------

CALLS = ("tool_calls", "function_call")
"""Fields of an assistant's turn with tool calls."""


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Raise ServiceError for a missing or empty user message, an unknown role, tool calls, or a part that is not
    text."""
    roles = [_role(message) for message in messages]
    asked = max((index for index, role in enumerate(roles) if role == "user"), default=None)
    if asked is None:
        message = "messages hold no message with role 'user'; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    problem = _text(messages[asked])
    if not problem.strip():
        message = "the last user message is empty; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    turns = ({"role": role, "content": _text(said)} for role, said in zip(roles, messages[:asked], strict=False))
    return Conversation(
        problem=problem,
        context=tuple(turn for turn in turns if turn["content"].strip()),
        num_ignored=len(messages) - 1 - asked,
    )


def _role(message: ChatMessage) -> str:
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        reason = f"a message with role {message.role!r} cannot be used; known: {known}. Tool calls are not supported"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    extra = message.model_extra or {}
    if call := next((name for name in CALLS if extra.get(name)), None):
        reason = f"a message with {call!r} cannot be read; only texts can, so leave the turns about tools out"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    return ROLES[message.role]


def _text(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type not in TEXT_PARTS:
            reason = f"content part of type {part.type!r} cannot be read; only 'text' parts can"
            raise ServiceError(reason, 400, "unsupported_content", "messages")
    return "".join((part.refusal if part.type == "refusal" else part.text) or "" for part in message.content)


# ---- models and named policies ---------------------------------------------------------------------------------------

MODEL_PREFIX = "raydebm/"


def model_ids(bundle: Bundle) -> list[str]:
    """Every id of ``GET /v1/models``: the calibrated policy first, then the named ones."""
    names = [MODEL_PREFIX + name for name in bundle.tasks]
    return names + [f"{name}@{policy}" for policy in bundle.profiles for name in names]


def parse_model(bundle: Bundle, model: str) -> tuple[str, str | None]:
    """Task and named policy of a model id.

    Raises:
        ServiceError: 404 for an id that is not served.
    """
    if model not in model_ids(bundle):
        names = ", ".join(model_ids(bundle))
        raise ServiceError(f"model {model!r} is not served here; served: {names}", 404, "model_not_found", "model")
    task_name, _, policy = model.removeprefix(MODEL_PREFIX).partition("@")
    return task_name, policy or None


def model_body(bundle: Bundle, model: str) -> dict[str, Any]:
    """``GET /v1/models/{id}``. Raises ServiceError 404."""
    task_name, policy = parse_model(bundle, model)
    return {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "raydebm",
        "raydebm": {"tasks": [task_name], "policy": policy, "versions": dict(bundle.of(task_name).versions)},
    }


def models_body(bundle: Bundle) -> dict[str, Any]:
    """``GET /v1/models``."""
    return {"object": "list", "data": [model_body(bundle, name) for name in model_ids(bundle)]}


def merged_overrides(bundle: Bundle, body: Overrides | None, *, policy: str | None = None) -> ChatOverrides:
    """Settings of one request: its body, over the named policy of its model id, over the calibrated policy.

    Args:
        bundle: the named policies.
        body: the request's body; fields that are not overrides, such as a problem, are ignored.
        policy: policy of the model id.

    Raises:
        ServiceError: 400 for contradictory values, 404 for an unknown policy.
    """
    fields = set(ChatOverrides.model_fields)
    # Typed clients send omitted fields as null, which must not lift the limits of a named policy.
    from_body = (
        {} if body is None else body.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, include=fields)
    )
    name = from_body.get("policy") or policy
    settings: dict[str, Any] = {}
    if name is not None:
        if name not in bundle.profiles:
            known = ", ".join(bundle.profiles) or "none"
            raise ServiceError(f"policy {name!r} is not served here; served: {known}", 404, "unknown_policy", "policy")
        profile = bundle.profiles[name].model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
        settings = {**profile, "policy": name}
    try:
        return ChatOverrides.model_validate({**settings, **from_body})
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        raise ServiceError(f"{field}: {fault['msg']}", 400, "bad_override", field or None) from error
