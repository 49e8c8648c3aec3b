"""Response bodies in OpenAI's shapes, and the health report. They are written down for the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from raydebm.serving.api.schema.candidate_bodies import Usage
from raydebm.serving.api.schema.decision_bodies import DecisionBody


class AssistantMessage(BaseModel):
    """Exactly one of content and refusal is a text."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    """Why no answer is given, after an abstention."""


class ChoiceFacts(BaseModel):
    """What is known of one of several choices; see ``ChoiceBody``."""

    answer: str | None
    confidence: float | None
    proof: bool | None
    num_candidates: int
    candidate_id: str


class Choice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: None
    finish_reason: Literal["stop", "length"]
    """length: the text that is returned was cut at ``max_tokens``."""
    raydebm: ChoiceFacts | None = None
    """Only where ``n`` is given and an answer is given out."""


class ChoiceCount(BaseModel):
    """How many of the choices that were asked for there are."""

    asked: int
    given: int
    reason: str | None
    """Why there are fewer; null where there are not."""


class ChatDecision(DecisionBody):
    """The decision with its reasons."""

    answer: str | None
    """The accepted answer in the task's canonical text."""
    choices: ChoiceCount | None = None
    """Null unless ``n`` is given."""


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage
    raydebm: ChatDecision


class ModelBody(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    raydebm: dict[str, Any]
    """Which tasks it tries, under which named policy, and the versions that answer."""


class ModelsBody(BaseModel):
    object: Literal["list"]
    data: list[ModelBody]


class HealthBody(BaseModel):
    """Without an API key, where the service has any: ``status`` and ``version`` alone."""

    status: Literal["ok"]
    version: str
    """Version of raydebm."""
    tasks: list[str] | None = None
    versions: dict[str, str] | None = None
    """What answers for the first run, by part."""
    runs: dict[str, dict[str, str]] | None = None
    """Versions of each task's run."""
    generators: list[str] | None = None
    scorer: dict[str, Any] | None = None
    warnings: list[str] | None = None
    """What an operator should know though the service works, such as a refused change."""


class ErrorDetail(BaseModel):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str
    """Short and stable: switch on this one."""
    param: str | None
    """The field or header at fault."""


class ErrorBody(BaseModel):
    """OpenAI's form."""

    error: ErrorDetail = Field(...)
