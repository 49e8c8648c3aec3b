"""Bodies of ``POST /v1/responses``: what can be served of OpenAI's Responses API, and what it is answered with."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm.serving.api.schema.chat_bodies import ChatDecision
from raydebm.serving.api.schema.request_bodies import ChatOverrides, ContentPart
from raydebm.serving.settings.fields import Data, Text


class InputMessage(BaseModel):
    """One turn. Content may be a text or a list of parts, of which only text can be read."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Text = "message"
    role: Text | None = None
    content: Text | list[ContentPart] | None = None


class TextFormat(BaseModel):
    """As ``response_format`` of a chat, where the schema stands one level higher."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Text | None = None
    json_schema: Data | None = Field(None, alias="schema")
    strict: bool | None = None


class TextSettings(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    format: TextFormat = Field(default_factory=TextFormat)


class ResponseRequest(BaseModel):
    """OpenAI's body. Fields that would change the answer and that the service cannot honour are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    model: Text
    input: Text | list[InputMessage] = Field(min_length=1)
    """A text, or the whole conversation: nothing of it is kept here (``store`` is false)."""
    instructions: Text | None = None
    """A system message in front of the conversation."""
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextSettings | None = None
    metadata: Data | None = None
    """Given back as it came."""
    raydebm: ChatOverrides | None = None


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] = Field(default_factory=list)


class OutputRefusal(BaseModel):
    type: Literal["refusal"] = "refusal"
    refusal: str


class OutputMessage(BaseModel):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText | OutputRefusal]


class InputDetails(BaseModel):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(BaseModel):
    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """Summed over every candidate of every pass."""

    input_tokens: int
    input_tokens_details: InputDetails = Field(default_factory=InputDetails)
    output_tokens: int
    output_tokens_details: OutputDetails = Field(default_factory=OutputDetails)
    total_tokens: int


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseBody(BaseModel):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: dict[str, Any] | None = None
    incomplete_details: IncompleteDetails | None = None
    """``max_output_tokens``: the text was cut there."""
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    model: str
    output: list[OutputMessage] = Field(default_factory=list)
    """One message; its content is a text, or after an abstention a refusal."""
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    reasoning: None = None
    store: Literal[False] = False
    temperature: float | None = None
    text: dict[str, Any] = Field(default_factory=dict)
    tool_choice: Literal["auto"] = "auto"
    tools: list[Any] = Field(default_factory=list)
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    raydebm: ChatDecision | None = None
    """The decision with its reasons; null while the response is in progress."""
