"""What is asked about stored decisions, and the answers: lists, one decision, figures over many, deciding again.

Does not know: Ray, HTTP, files. Infinite energies and penalties are null, because JSON has no infinity.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from raydebm.config import CostsConfig
from raydebm.decisions.reader import Filter, SortKey
from raydebm.serving.api.schema.candidate_bodies import CandidateBody
from raydebm.serving.api.schema.decision_bodies import AnswerBody, GuaranteeBody
from raydebm.serving.api.schema.outcome_bodies import OutcomeBody
from raydebm.serving.api.schema.pass_bodies import PassBody, StopFields
from raydebm.serving.settings.fields import Body, Finite, Text
from raydebm.serving.settings.overrides import PolicyChanges, settings_of_policy

MAX_LIMIT = 200
MAX_REPLAYED = 100_000
MAX_CHANGED = 100
"""How many changed decisions a replay names."""
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def _storable(value: datetime) -> datetime:
    """Times that microseconds since 1970 can hold, in any time zone."""
    if not _EARLIEST <= value <= _LATEST:
        raise ValueError(f"must be between {_EARLIEST:%Y-%m-%d} and {_LATEST:%Y-%m-%d}")
    return value.astimezone(UTC)


Time = Annotated[AwareDatetime, AfterValidator(_storable)]
Name = Annotated[Text, Field(min_length=1, max_length=200)]


class Where(Body):
    """Which decisions. What is left out lets everything pass."""

    decision: Literal["accept", "abstain"] | None = None
    task: Name | None = None
    generator: Name | None = None
    """Who wrote the selected candidate."""
    text: Name | None = None
    """Stands in the first 120 characters of the problem; upper and lower case are the same."""
    since: Time | None = None
    """At or after; with a time zone, such as 2026-01-31T12:00Z."""
    until: Time | None = None
    """Before."""
    min_sigma: Finite | None = None
    """Least sigma of the selected candidate, inclusive."""
    max_sigma: Finite | None = None
    violated: bool | None = None
    """Whether the selected candidate violates a constraint."""
    num_passes: int | None = Field(None, ge=1, le=1000)
    problem_id: Name | None = None
    request_id: Name | None = None
    outcome: Literal["right", "wrong", "none"] | None = None
    """What was reported about it; `none`: nothing yet."""
    policy_id: Name | None = None
    """Id of the policy that decided."""

    def to_filter(self) -> Filter:
        """The same as the reader takes it."""
        return Filter(**{name: getattr(self, name) for name in Where.model_fields})


class ListQuery(Where):
    """The URL's query of a list."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    sort: SortKey = "time"
    """Decisions without a value come last."""
    descending: bool = True
    offset: int = Field(0, ge=0, le=1_000_000_000)
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class DecisionRow(BaseModel):
    """One line of a list. Energies, penalty and generator are those of the selected candidate; null without one."""

    record_id: str
    time: datetime
    request_id: str
    task: str
    problem_id: str
    title: str
    """The beginning of the problem."""
    decision: Literal["accept", "abstain"]
    reason: str
    selected: str | None
    generator: str | None
    """Null also in records of versions that did not keep it."""
    answer: str | None
    confidence: float | None
    """Probability that the selection is right; null without a posterior."""
    energy: float | None
    mu: float | None
    sigma: float | None
    signal: float | None
    """What was compared with the thresholds."""
    penalty: float | None
    num_candidates: int
    num_failed: int
    num_passes: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """Null when no generator reports cost."""
    latency_ms: float
    policy_id: str | None
    """Id of the policy that decided; null in records of versions that did not keep it."""
    outcome: Literal["right", "wrong"] | None
    """What was reported last about the selected candidate; null: nothing."""


class DecisionList(BaseModel):
    object: Literal["list"] = "list"
    total: int
    """Decisions that pass the filter."""
    offset: int
    data: list[DecisionRow]


class StoredProblem(BaseModel):
    prompt: str
    scored_prompt: str | None
    """What the ensemble read as the problem, where that was not the prompt (earlier turns of a chat)."""
    data: dict[str, Any]
    difficulty: str


class StoredCandidate(CandidateBody):
    """A candidate as it was stored."""

    reasoning: str | None
    """Thinking that came apart from the answer; never scored or parsed."""
    prompt_tokens: int | None
    latency_s: float | None


class StoredDecision(DecisionRow, StopFields):
    """Everything about one decision."""

    problem: StoredProblem
    request: dict[str, Any]
    """What the request asked for beyond the problem and the policy."""
    policy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    stages_ms: dict[str, float]
    passes: list[PassBody]
    candidates: list[StoredCandidate]
    answers: list[AnswerBody]
    """Distinct answers with the evidence of the policy's posterior, the selected one first, at most 16; empty without a
    posterior or a selection."""
    guarantee: GuaranteeBody | None
    """What the policy promised; whether that is suspended is as of now. Null where nothing was promised."""
    outcomes: list[OutcomeBody]
    """Every report about it, the oldest first."""


class Histogram(BaseModel):
    """Counts between edges; bar i lies from edges[i] to edges[i + 1]."""

    edges: list[float]
    accept: list[int]
    abstain: list[int]
    below: int
    """How many values lie below the first edge: the edges leave out the most extreme half percent on each side."""
    above: int


class TimeBins(BaseModel):
    edges: list[datetime]
    accept: list[int]
    abstain: list[int]


class Share(BaseModel):
    name: str
    decisions: int
    accepted: int


class Overview(BaseModel):
    """Figures over all decisions that pass a filter."""

    total: int
    accepted: int
    candidates: int
    failed: int
    """Candidates without a text."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    first: datetime | None
    last: datetime | None
    right: int
    """Decisions whose selected candidate was reported to be right, abstentions included."""
    wrong: int
    tasks: list[Share]
    """The most frequent ones first, at most 50; so are generators."""
    generators: list[Share]
    """By the selected candidate's."""
    passes: list[Share]
    sigma: Histogram | None
    """Histogram over selected candidates; null when no candidate was selected."""
    energy: Histogram | None
    times: TimeBins | None


@settings_of_policy("budget", most={"budget": 100_000})
class ChangesBody(PolicyChanges):
    """What is different. Nothing given: every decision is made again as it was."""

    costs: CostsConfig | None = None
    """What a wrong answer, a refusal and a further pass cost, in units of one right answer: replaces `tau_answer` and
    may lower `tau_accept`."""


class ReplayRequest(ChangesBody):
    """Stored decisions, made again under other settings. No generator is asked."""

    where: Where = Field(default_factory=Where)
    max_decisions: int = Field(20_000, ge=1, le=MAX_REPLAYED)
    """The newest so many of those that pass."""
    stream: bool = False
    """Server-sent events: `progress` with the figures so far, then `result`, or `error`."""


class Move(BaseModel):
    recorded: Literal["accept", "abstain"]
    again: Literal["accept", "abstain", "regenerate"]
    """regenerate: a pass would be drawn that is not in the record, so the decision cannot be known."""
    decisions: int


class ReplayFigures(BaseModel):
    """Counts over the decisions that were made again."""

    num_passing: int
    """Decisions that pass the filter."""
    num_wanted: int
    """How many of them are decided again: the newest ones."""
    num_decisions: int
    """How many were so far."""
    num_changed: int
    """Another decision, or another answer given out."""
    num_other_answer: int
    """Accepted before and after, with another answer."""
    num_unknown: int
    """A pass would be sampled that was never sampled."""
    num_inexact: int
    """A recorded pass stands in for one about another candidate."""
    num_promised: int
    """Made again under a policy whose promise was certified for it as it is."""
    accepted_before: int
    accepted_at_least: int
    """For certain."""
    accepted_at_most: int
    """When every unknown one would end in an accepted answer."""
    candidates_before: int
    candidates_after: int
    moves: list[Move]


class ChangedRow(DecisionRow):
    """A decision that changes."""

    again: Literal["accept", "abstain"]
    again_selected: str | None
    same_answer: bool
    exact: bool


class ReplayResult(ReplayFigures):
    changed: list[ChangedRow]
    """The newest ones that change, at most 100."""
    seconds: float


class Redecided(BaseModel):
    """One stored decision, made again."""

    record_id: str
    recorded: Literal["accept", "abstain"]
    decision: Literal["accept", "abstain", "regenerate"]
    as_it_stands: Literal["accept", "abstain"]
    """``decision``, or what it comes to when the missing pass cannot be drawn."""
    changed: bool | None
    """Whether the decision differs from the recorded one, or gives out another answer; null where ``decision`` is
    ``regenerate``, as that depends on what the missing pass would have brought."""
    same_answer: bool
    exact: bool
    reason: str
    selected: str | None
    generator: str | None
    answer: str | None
    energy: float | None
    sigma: float | None
    signal: float | None
    penalty: float | None
    confidence: float | None
    """Probability that the selection is right; null without a posterior or a selection."""
    guarantee: GuaranteeBody | None
    """What the changed policy promises; `certified` is false, with the reason, where the change voids the promise."""
    num_passes: int
    num_candidates: int
    policy: dict[str, Any]
    energies: dict[str, float | None]
    """E of every candidate under this policy, by its id."""
