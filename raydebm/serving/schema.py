"""What clients send and what they get: the request and response bodies of the service.

Does not know: Ray, HTTP, tasks. Unknown fields are refused where the body is ours, and tolerated where it is OpenAI's,
because its clients send many fields that change nothing here.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.fields import FieldInfo

from raydebm.config.policy import PolicySettings
from raydebm.decision.policy import LIMITS, Policy
from raydebm.serving.ceilings import CeilingBody
from raydebm.serving.pass_schema import GeneratorBody, PassBody, StopFields

MAX_SAMPLES = 64
"""Most candidates that one request may ask of one generator in one pass."""
MAX_PASSES = 8
MAX_DEADLINE_MS = 3_600_000
MAX_ANSWERS = 16
"""Most distinct answers whose evidence an answer of the service shows."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
SEED_LIMIT = 2**63
MAX_STOPS = 16
MAX_DEPTH = 64
"""Of a client's own objects. Serialisers of answers give up at a few hundred."""


def writable(value: Any) -> Any:
    """Refuse what cannot be written down again: lone surrogates, which JSON can spell and neither UTF-8 nor a tokenizer
    can hold, NaN and infinities, and what is nested too deeply."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("holds a lone surrogate (such as \\ud800), which is not text") from error
    except RecursionError as error:
        raise ValueError(f"is nested more than {MAX_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError("holds NaN or an infinity, which JSON has no number for") from error
    level, depth = [value], 0
    while level := [item for inner in level for item in _inside(inner)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
    return value


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


Text = Annotated[str, AfterValidator(writable)]
StopText = Annotated[Text, Field(min_length=1)]
Data = Annotated[dict[str, Any], AfterValidator(writable)]


class Body(BaseModel):
    """Base of our own request bodies: unknown fields are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)


BodyType = TypeVar("BodyType", bound=Body)


def settings_of_policy(*names: str, most: Mapping[str, float]) -> Callable[[type[BodyType]], type[BodyType]]:
    """A decorator: adds settings of ``Policy`` as optional fields with their documentation; None: not given.

    Args:
        names: the settings' fields.
        most: the largest value that a body may hold, by field.
    """

    def decorate(body: type[BodyType]) -> type[BodyType]:
        fields: dict[str, Any] = {name: _optional(Policy.model_fields[name], most.get(name)) for name in names}
        return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **fields)

    return decorate


def _optional(setting: FieldInfo, most: float | None) -> tuple[Any, Any]:
    kind: Any = setting.rebuild_annotation()
    if most is not None:
        kind = Annotated[kind, Field(le=most)]
    return kind | None, Field(None, alias=setting.alias, description=setting.description)


@settings_of_policy(
    *(name for name in PolicySettings.model_fields if name != "waves"),
    "profile",
    "lambda_",
    most={"max_passes": MAX_PASSES, "num_regenerate": MAX_SAMPLES},
)
class PolicyChanges(Body):
    """Settings of the policy that a request or a replay may change; everything left out stays."""

    waves: list[Annotated[int, Field(ge=1, le=MAX_SAMPLES)]] | None = Field(None, max_length=MAX_SAMPLES)
    """Sizes of the waves in which a pass is sampled, the last one repeating; an empty list: the whole pass at once."""

    def policy_changes(self) -> dict[str, Any]:
        """The settings and limits that were given, by the policy's own names."""
        return self.model_dump(by_alias=True, include=set(Policy.model_fields), exclude_none=True)


@settings_of_policy(*LIMITS, most={"budget": MAX_PASSES * MAX_SAMPLES, "deadline_ms": MAX_DEADLINE_MS, "max_usd": 1e6})
class Overrides(PolicyChanges):
    """What one request may change; everything left out comes from the calibrated policy and the recipe."""

    num_samples: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    """Candidates of each generator in pass 1."""
    generators: list[Text] | None = Field(None, min_length=1)
    """A subset of the service's generators."""
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    """Same seed, same candidates; None: the recipe's seed, so that the run's own problems give the run's candidates."""
    return_candidates: bool = False
    policy: Text | None = None
    """A named policy, as in the model id ``raydebm/<task>@<policy>``; the other fields change it."""


class SamplingOverrides(BaseModel):
    """How candidates are drawn, where a request differs from the recipe."""

    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    stop: tuple[str, ...] | None = None


OnAbstain = Literal["refuse", "text", "best", "error"]


class Profile(Overrides):
    """A named policy of the service."""

    on_abstain: OnAbstain | None = None
    """See ``ChatOverrides``."""


class ProblemBody(Body):
    """A problem whose structure the client already has, instead of a text to read it from."""

    prompt: Text = Field(min_length=1)
    data: Data | None = None
    """The task's own fields, as in ``problems.parquet``. None: the task reads them from the prompt."""
    problem_id: Text | None = Field(None, min_length=1, max_length=200)
    difficulty: Text = ""


class ContentPart(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    type: Text
    text: Text | None = None


class ChatMessage(BaseModel):
    """One turn. Content may be a text or a list of parts, of which only text can be read."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    role: Text
    content: Text | list[ContentPart] | None = None


class TriageRequest(Overrides):
    """Exactly one of ``problem`` and ``messages``."""

    task: Text | None = None
    """None: the first of the service's tasks that can read the problem."""
    problem: Text | ProblemBody | None = None
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

    task: Text | None = None
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

    def sampling(self, *, of_one: bool = False) -> SamplingOverrides:
        """Temperature 0 means "be deterministic" to clients that send it; answers here are, for a seed, while
        candidates at temperature 0 would all be the same. So 0 keeps the recipe's temperature, but for a single
        answer (``of_one``)."""
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        return SamplingOverrides(
            temperature=self.temperature if of_one else self.temperature or None,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=None if stop is None else tuple(stop),
        )


class Usage(BaseModel):
    """Summed over every candidate of every pass. Generators that report no usage count 0."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ViolationBody(BaseModel):
    constraint: str
    penalty: float
    """C_j > 0, before the weight."""
    weight: float
    message: str


class CandidateBody(BaseModel):
    """One candidate as it stood when the decision was made. Energies: lower is better."""

    candidate_id: str
    generator: str
    pass_index: int
    sample_index: int
    text: str | None
    error: str | None
    """Why there is no text, no answer or no energy."""
    answer: str | None
    """The parsed answer in canonical text."""
    energy: float | None
    """E = mu + lambda * E_constraint; null when it did not parse or could not be scored (E = infinity)."""
    mu: float | None
    sigma: float | None
    """Population standard deviation over the adapters (ddof=0)."""
    members: list[float] | None
    """One energy per adapter."""
    penalty: float | None
    """E_constraint; null when it did not parse."""
    violations: list[ViolationBody]
    num_tokens: int | None
    num_truncated: int | None
    """Problem tokens that did not fit the scorer's context."""
    completion_tokens: int | None
    finish_reason: str | None
    """Why the generator stopped, where it says so; ``length``: the text was cut at ``max_tokens``."""
    cost_usd: float | None


class AnswerBody(BaseModel):
    """One distinct answer of the pool, with the evidence for it."""

    answer: str | None
    """In canonical text."""
    probability: float
    """That it is right; where labels are violation scores, 1 minus the expected violation."""
    evidence: dict[str, float]
    """What each term adds to the log-odds, relative to the average answer of the pool; ``base`` is the rest. Empty for
    an answer that an exact constraint proves or refutes."""
    proof: bool | None
    """True or False: an exact constraint proves it right or wrong."""
    num_candidates: int
    authors: list[str]
    """Generators that gave it."""
    candidate_ids: list[str]


class ChoiceBody(BaseModel):
    """One of several distinct answers that a request asked for."""

    answer: str | None
    """In canonical text; null where nothing was parsed, in ordinary chat."""
    text: str
    confidence: float | None
    """Probability that this answer is right; null without a fitted posterior."""
    proof: bool | None
    """True: an exact constraint proves it right. What one refutes is not among the choices."""
    num_candidates: int
    """Candidates that give it."""
    candidate_id: str
    finish_reason: str | None


class OutcomesBody(BaseModel):
    """Reported outcomes that a promise was certified on."""

    decisions: int
    """With an outcome, one per problem."""
    since: datetime
    """When the oldest of them was made."""
    until: datetime
    """When the newest was made."""
    by: list[str] | None
    """Whose reports counted; null: everybody's."""
    audited: float | None
    """Share of all decisions that they judged at random; null: nobody knows who reported and why, so the promise is
    about decisions like those alone."""


class GuaranteeBody(BaseModel):
    """What is promised about the answers that are given out."""

    max_error: float
    """Largest share of wrong answers (mean violation where labels are violation scores)."""
    confidence: float
    """Probability, over calibration problems, with which that holds."""
    certified: bool
    """False: nothing could be promised, or the request changed the policy (``reason``)."""
    problems: int
    """Labelled problems that it rests on."""
    suspended: bool = False
    """Reported outcomes speak against it, so it is not claimed at present (``reason``)."""
    reason: str | None = None
    outcomes: OutcomesBody | None = None
    """Where the labelled problems are decisions that users reported on; null: problems of the run."""


class DecisionBody(StopFields):
    """The decision with its reasons; the ``raydebm`` object of chat answers.

    What it says of sampling in waves adds up its passes; reason and words are those of the last one.
    """

    request_id: str
    record_id: str | None = None
    """Of the stored decision, to look at it and to report its outcome; null where it is not stored."""
    task: str
    problem_id: str
    decision: Literal["accept", "abstain", "passthrough"]
    """passthrough: a chat that is no problem of a served task; one generator answered it, and nothing was checked."""
    reason: str
    confidence: float | None = None
    """Probability that the selected answer is right; null without a fitted posterior or a selection."""
    answers: list[AnswerBody] = Field(default_factory=list)
    """Distinct answers, the selected one first and the runner-up second, at most ``MAX_ANSWERS``; empty without a
    posterior."""
    guarantee: GuaranteeBody | None = None
    """Null where nothing was promised."""
    energy: float | None
    mu: float | None
    sigma: float | None
    members: list[float] | None
    penalty: float | None
    """E_constraint of the selected candidate."""
    constraints: dict[str, float]
    """Weighted penalty of each violated constraint; a constraint that holds is absent (0)."""
    violations: list[ViolationBody]
    num_passes: int
    passes: list[PassBody]
    feedback: list[str]
    generators: list[GeneratorBody]
    usage: Usage
    cost_usd: float | None
    """Null when no generator reports cost."""
    cancelled_usd: float | None = None
    """What cancelled requests may have cost at most, beyond ``cost_usd``, at the recipe's prices; null where none was
    cancelled or a price is unknown."""
    ceilings: list[CeilingBody] = Field(default_factory=list)
    """What is left of the day's ceilings, where the operator set any."""
    latency_ms: float
    stages_ms: dict[str, float]
    """Time in each kind of call, summed over passes; candidates are checked and scored while others are written."""
    policy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    ignored_messages: int
    """Messages after the last user message; those before it are context."""
    candidates: list[CandidateBody] | None = None


class TriageResponse(DecisionBody):
    """The full record of one decision."""

    answer: str | None
    """The accepted answer in the task's canonical text; null after an abstention."""
    text: str | None
    """The text that is given out; null after an abstention."""
    candidate: CandidateBody | None
    """The selected one, also after an abstention; null when nothing could be selected."""
    choices: list[ChoiceBody] | None = None
    """The best distinct answers, the selected one first, also after an abstention; null unless ``n`` is given."""
