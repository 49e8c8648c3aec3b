"""Response bodies about one decision: the selected answer, the evidence, what is promised, and what it took."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm.serving.api.schema.candidate_bodies import CandidateBody, Usage, ViolationBody
from raydebm.serving.api.schema.pass_bodies import GeneratorBody, PassBody, StopFields

MAX_ANSWERS = 16
"""Most distinct answers whose evidence an answer of the service shows."""


class CeilingBody(BaseModel):
    """One ceiling of one day, and what is left of it."""

    model_config = ConfigDict(from_attributes=True)

    account: str
    """``service``: everybody together; ``key``: the key that asks."""
    kind: str
    """``usd``, ``candidates`` or ``tokens``."""
    limit: float
    left: float
    """What running requests may still cost is taken out already."""
    resets_at: str
    """ISO time, UTC."""


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
    """Share of all decisions that they judged at random; null: it is not known who reported and why, so the promise is
    about decisions like those alone."""


class GuaranteeBody(BaseModel):
    """What is promised about the answers that are given out."""

    max_error: float
    """Largest share of wrong answers (mean violation where labels are violation scores)."""
    confidence: float
    """Probability, over calibration problems, with which that holds."""
    certified: bool
    """False: nothing could be promised, or this decision was not made as the promise was certified (``reason``)."""
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
    """Id of the stored decision, to look at it and to report its outcome; null where it is not stored."""
    task: str
    problem_id: str
    decision: Literal["accept", "abstain"]
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
    checks: list[str] = Field(default_factory=list)
    """Constraints that the selected answer was checked by, whether or not they hold."""
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
