"""Request bodies of chats and of triage.

Unknown fields are refused where the body is ours, and tolerated where it is OpenAI's, because its clients send many
fields that change nothing here.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from raydebm.serving.api.schema.decision_bodies import MAX_ANSWERS
from raydebm.serving.core.request import GivenProblem
from raydebm.serving.settings.fields import Body, Data, Text, writable
from raydebm.serving.settings.overrides import SEED_LIMIT, OnAbstain, Overrides, SamplingOverrides

MAX_STOPS = 16
StopText = Annotated[Text, Field(min_length=1)]


class ProblemBody(Body):
    """A problem whose structure the client already has, instead of a text to read it from."""

    prompt: Text = Field(min_length=1)
    data: Data | None = None
    """The task's own fields, as in ``problems.parquet``. None: the task reads them from the prompt."""
    problem_id: Text | None = Field(None, min_length=1, max_length=200)
    difficulty: Text = ""

    def given(self) -> GivenProblem:
        """The same as a record."""
        return GivenProblem(prompt=self.prompt, data=self.data, problem_id=self.problem_id, difficulty=self.difficulty)


def given_problem(problem: str | ProblemBody) -> str | GivenProblem:
    """A text as it is, a body as a record."""
    return problem if isinstance(problem, str) else problem.given()


def _fields_as_text(problem: Any) -> Any:
    """The fields of a task's own problem as the JSON that the task reads; anything else as it is."""
    if isinstance(problem, dict) and "prompt" not in problem:
        return json.dumps(problem, ensure_ascii=False)
    return problem


GivenFields = BeforeValidator(_fields_as_text, json_schema_input_type=Text | ProblemBody | dict[str, Any] | None)
"""Takes an object without ``prompt`` as the fields of a problem."""


class ContentPart(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Text
    text: Text | None = None
    refusal: Text | None = None
    """Words of an earlier refusal, in the Responses API."""


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
    """A text, the fields of a problem of a declared task as an object, or an object with ``prompt``."""
    messages: list[ChatMessage] | None = None
    """The last user message is the problem; what stands before it is context."""
    stream: bool = False
    """Server-sent events: progress while candidates arrive, then the full record."""
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    """Distinct answers to show in ``choices``, at most; no more candidates are sampled for them."""

    @model_validator(mode="after")
    def _one_problem(self) -> "TriageRequest":
        if (self.problem is None) == (self.messages is None):
            raise ValueError("give exactly one of 'problem' and 'messages'")
        return self


class ChatOverrides(Overrides):
    """The ``raydebm`` object of a chat request."""

    on_abstain: OnAbstain = "refuse"
    """refuse: a refusal in OpenAI's shape; text: its words as content, for clients that show no refusals; best: the
    selected text all the same; error: HTTP 422."""
    progress: Literal["comments", "events", "none"] = "comments"
    """How a stream reports progress: SSE comments (every client skips them), named events for browsers, or not."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    include_usage: bool = False


class ResponseFormat(BaseModel):
    """The content is then the task's answer in this form (see ``structured``)."""

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
    """OpenAI's body. Fields that would change the answer and that the service cannot honour are refused in ``chat``."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    model: Text
    messages: list[ChatMessage] = Field(min_length=1)
    n: int | None = Field(None, ge=1, le=MAX_ANSWERS)
    """Choices at most: the best distinct answers, each once. No more candidates are sampled for them."""
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
