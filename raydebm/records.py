"""The records that stages pass to each other. Frozen, without behaviour beyond their own fields.

Independent of: Ray, torch, tasks, files.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from raydebm.errors import ScoringError
from raydebm.identity import content_id

_SURROGATE = re.compile(r"[\ud800-\udfff]")

Message = Mapping[str, str]
"""A chat message: ``{"role": "system" | "user" | "assistant", "content": ...}``."""

Reasoning = Literal["answer", "all"]
"""The scored part of a reasoning model's output: the answer alone, or thinking and answer."""

GC_THRESHOLD = 10_000
"""``gc.set_threshold`` for processes that create many records. Records form no cycles, and with Python's default of 700
the collector took a third of a replay's time."""

OWN_LOGPROB, OWN_WORST_LOGPROB = "own_logprob", "own_worst_logprob"
"""Names of the evidence from a generator's log-probabilities of its own text."""


def well_formed(text: str) -> str:
    """The text with U+FFFD for each lone surrogate.

    JSON can encode half a character (``"\\ud83d"``), which UTF-8 cannot: Arrow and tokenizers raise an error for it.
    """
    return _SURROGATE.sub("\ufffd", text)


REFERENCE_HEADING = "Reference information:"
"""The line before a problem's reference information, such as tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question, without its answer. Gold is a separate record, so that it cannot leak."""

    task: str
    problem_id: str
    prompt: str
    """The question for generators and scorer. Reference information that the scorer may cut comes last, after a blank
    line and a line ``REFERENCE_HEADING``."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON fields for gold-free checks, such as names and parsed statements."""
    difficulty: str = ""
    """Group for breakdowns in reports, such as ``"4 people"``."""
    kind: str = ""
    """Kind of question, such as a subject. Authors' skills are learned by kind. Empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The reference answer or hidden tests. Used by labelling only."""

    task: str
    problem_id: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters. Part of a candidate's identity."""

    temperature: float = 0.7
    top_p: float = 0.95
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()

    @property
    def is_greedy(self) -> bool:
        """Whether the temperature is 0."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One completion to sample. One request gives one candidate, even if several are sent together."""

    task: str
    problem_id: str
    generator: str
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    pass_index: int = 1
    sample_index: int = 0
    response_format: str | None = None
    """OpenAI's object as JSON text, if a client of the service sent one; for endpoints that support it."""
    _id: str = field(default="", init=False, repr=False, compare=False)
    """Cache of ``candidate_id``: the service reads it tens of times per request."""

    @property
    def candidate_id(self) -> str:
        """Content id: equal requests give the same candidate, so it is paid for once."""
        if not self._id:
            sampling, messages = self.sampling, [dict(message) for message in self.messages]
            drawn = [sampling.temperature, sampling.top_p, sampling.max_tokens, list(sampling.stop)]
            asked = (self.task, self.problem_id, self.generator, messages, drawn)
            which = (self.seed, self.pass_index, self.sample_index)
            given = () if self.response_format is None else (self.response_format,)
            object.__setattr__(self, "_id", content_id(*asked, *which, *given))
        return self._id


class FailureKind(StrEnum):
    """Failures that later decisions depend on; other failures have only a message."""

    LATE = "late"
    """The deadline passed before the candidate was sampled, checked and scored."""
    BUDGET = "budget"
    """Not requested: the limit in US dollars is reached."""
    NOT_SENT = "not_sent"
    """Not requested: the endpoint refused the same request before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A completion with its identity. ``text`` is None exactly when ``error`` is set."""

    candidate_id: str
    task: str
    problem_id: str
    generator: str
    text: str | None
    error: str | None = None
    failure: FailureKind | None = None
    pass_index: int = 1
    """Round of generation, from 1."""
    sample_index: int = 0
    seed: int = 0
    sampling: Sampling = Sampling()
    reasoning: str | None = None
    """Thinking, if it is separate from the answer. Never parsed; scored as ``as_scored`` says."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    logprob: float | None = None
    """Mean log-probability of the answer's tokens under its own generator, in nats; None if not returned."""
    worst_logprob: float | None = None
    """Mean log-probability of the least likely tenth of the tokens."""

    @property
    def is_greedy(self) -> bool:
        """Whether the candidate is greedy: a separate baseline, never part of the pool."""
        return self.sampling.is_greedy

    def as_scored(self, reasoning: Reasoning) -> "Candidate":
        """The candidate with the text for the scorer; itself if nothing is added.

        Args:
            reasoning: ``answer`` for the answer alone; ``all`` for thinking, a blank line, and the answer.
        """
        text = scored_text(self.text, self.reasoning, reasoning)
        return self if text == self.text else replace(self, text=text)


def scored_text(answer: str | None, thinking: str | None, reasoning: Reasoning) -> str | None:
    """The scorer's text for an answer and the thinking before it; None without an answer."""
    if reasoning == "answer" or answer is None or not thinking:
        return answer
    return f"{thinking.strip()}\n\n{answer}"


class Verdict(StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNLABELED = "unlabeled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The checker's verdict from gold. ``UNLABELED`` counts neither as incorrect nor as a score of 0."""

    candidate_id: str
    problem_id: str
    verdict: Verdict
    violation_score: float | None = None
    """Violation in [0, 1], lower is better; None unless the task grades answers by violation."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Parts of the violation score by name, each in [0, 1], lower is better; may be empty."""
    severity: int | None = None
    """Distance of an incorrect candidate from a correct one, if the task grades failures; lower is nearer."""
    reason: str = ""
    """Reason for the missing label, or the fault found in the answer."""
    fields: Mapping[str, bool] = field(default_factory=dict)
    """Verdict on each field of a structured answer, and on each that only the reference answer has, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two candidates of one problem; the chosen one should get the lower energy."""

    problem_id: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken constraint, with a message that a model can act on."""

    constraint: str
    penalty: float
    """C_j > 0, unweighted."""
    weight: float
    message: str
    path: str = ""
    """Path of the field concerned, or the common beginning of several paths; empty for the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintReport:
    """Results of the gold-free checks of one candidate (paper section 3.4)."""

    candidate_id: str
    answer: str | None
    """The parsed answer in canonical text; None if the candidate does not parse."""
    vote_key: str | None
    """Candidates with the same key give the same answer."""
    penalty: float
    """E_constraint = sum_j w_j C_j >= 0; +inf if the candidate does not parse."""
    violations: tuple[Violation, ...] = ()
    error: str | None = None
    """Reason for a failed check (no text, or a crash). None if it ran, even if the candidate did not parse."""
    proof: bool | None = None
    """Whether an exact constraint proves the answer right or wrong; None if no exact constraint applies."""
    note: str = ""
    """Reason why a usually exact constraint proves nothing for this problem; empty otherwise."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Canonical JSON text of each leaf of a structured answer by path; empty for other answers."""
    field_tolerance: float = 0.0
    """Difference up to which numbers of one field are the same value."""

    @property
    def parsed(self) -> bool:
        """Whether an answer was found in the text."""
        return self.answer is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energies:
    """The ensemble's output for one candidate: one energy per adapter, in the adapters' order."""

    candidate_id: str
    members: tuple[float, ...]
    num_tokens: int = 0
    num_truncated: int = 0
    """Number of tokens cut from problem and answer."""

    def __post_init__(self) -> None:
        if not self.members or not all(map(math.isfinite, self.members)):
            raise ScoringError(
                f"candidate {self.candidate_id!r}: energies must be finite and at least one, got {self.members}; "
                "check the checkpoint's metrics and the scorer's dtype"
            )

    @property
    def mu(self) -> float:
        """Ensemble mean; lower is better."""
        return sum(self.members) / len(self.members)

    @property
    def sigma(self) -> float:
        """Population standard deviation over adapters (ddof=0)."""
        mu = self.mu
        return math.sqrt(sum((energy - mu) ** 2 for energy in self.members) / len(self.members))


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateScore:
    """A baseline's score (reward model, judge, ...) of one candidate."""

    candidate_id: str
    name: str
    """The baseline's name."""
    score: float | None
    """Higher is better; None exactly when ``error`` is set."""
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further scores of the same model, higher is better."""

    def __post_init__(self) -> None:
        if self.score is not None and not math.isfinite(self.score):
            raise ScoringError(
                f"candidate {self.candidate_id!r}: baseline {self.name!r} gave {self.score}, which is not a score; "
                "load its model with dtype float32"
            )
        if (self.score is None) == (self.error is None):
            raise ScoringError(
                f"candidate {self.candidate_id!r}: baseline {self.name!r} must give a score or the reason why not"
            )


class Decision(StrEnum):
    ACCEPT = "accept"
    REGENERATE = "regenerate"
    ABSTAIN = "abstain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCandidate:
    """A candidate with everything that selection needs. ``energies`` is None if there is no text to score."""

    candidate: Candidate
    report: ConstraintReport
    energies: Energies | None
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores of the recipe's evidence baselines by name, higher is better; missing if not measured."""
    kind: str = ""
    """Its problem's ``kind``."""

    @property
    def evidence_scores(self) -> dict[str, float]:
        """``scores``, plus the log-probabilities of the candidate's own generator."""
        candidate = self.candidate
        own = {OWN_LOGPROB: candidate.logprob, OWN_WORST_LOGPROB: candidate.worst_logprob}
        return {**self.scores, **{name: value for name, value in own.items() if value is not None}}

    def total_energy(self, lambda_: float) -> float:
        """E = mu + lambda * E_constraint (paper Eq. 1); +inf if the candidate did not parse or has no energies."""
        return math.inf if self.energies is None else total_energy(self.energies.mu, self.report.penalty, lambda_)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldBelief:
    """One field of the selected answer, with the probability of its value."""

    path: str
    """Path of the field, such as ``items[0].price``."""
    value: Any
    """JSON value in the selected answer."""
    is_missing: bool = False
    """Whether the selected answer lacks the field, which other candidates have."""
    confidence: float
    """Probability that the value is right; for a missing field, that it should be missing."""
    num_candidates: int
    """Number of candidates with this value."""
    runner_up: Any = None
    """Most probable other value. None if that value is a missing field, or no candidate has another value."""
    runner_up_confidence: float | None = None
    """Probability of ``runner_up``; None if every candidate has the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStop:
    """End of a pass sampled in waves, with its savings."""

    reason: str
    """``accept`` or ``abstain``: the rest of the pass was skipped, because the answer is settled or will not become
    certain enough. ``budget``: every sample that the pass, the deadline and the generators allowed was taken."""
    words: str
    """One sentence with the numbers."""
    num_planned: int
    """Samples of the whole pass."""
    num_samples: int
    """Samples taken, including failures."""
    num_cancelled: int = 0
    """Requests cancelled in flight. They may have cost something."""
    tokens_saved: int | None = None
    """Skipped samples times the mean tokens of the others; None if no generator reports tokens."""

    @property
    def num_saved(self) -> int:
        """Samples never requested."""
        return 0 if self.reason == "budget" else max(self.num_planned - self.num_samples - self.num_cancelled, 0)

    @property
    def saved_frac(self) -> float:
        """Fraction of the pass that was never requested."""
        return self.num_saved / self.num_planned if self.num_planned else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """One pass: its requests, the selection from all passes so far, and the decision."""

    pass_index: int
    num_requested: int
    num_failed: int
    selected: str | None
    """Id of the selected candidate of all passes so far; None if no candidate can be selected."""
    sigma: float | None
    """The policy's ``signal``, which the paper's rule compares with its thresholds."""
    penalty: float | None
    decision: Decision
    feedback: str | None = None
    """Feedback that the prompts of the next pass contain."""
    confidence: float | None = None
    """Probability that the selected answer is right; None without a posterior."""
    stop: PassStop | None = None
    """End of the pass; None unless it was sampled in waves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of the loop for one problem (paper Algorithm 1)."""

    problem: Problem
    decision: Decision
    """ACCEPT or ABSTAIN; REGENERATE occurs only inside ``passes``."""
    best: ScoredCandidate | None
    """The selected candidate, also after an abstention; None if no candidate can be selected."""
    passes: tuple[PassRecord, ...]
    pool: Sequence[ScoredCandidate]
    reason: str
    """One sentence on the decision."""
    fields: tuple[FieldBelief, ...] = ()
    """Fields of a structured answer, also after an abstention."""

    @property
    def confidence(self) -> float | None:
        """Probability that the selected answer is right; None without a posterior or a selection."""
        return self.passes[-1].confidence if self.passes else None

    @property
    def answer(self) -> str | None:
        """The selected candidate's text; None after an abstention."""
        if self.decision is Decision.ABSTAIN or self.best is None:
            return None
        return self.best.candidate.text


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def total_energy(mu: float, penalty: float, lambda_: float) -> float:
    """Total energy of one candidate; +inf if the penalty is +inf (no parsed answer), even with lambda 0."""
    return math.inf if math.isinf(penalty) else mu + lambda_ * penalty


def total_energies(mu: "Floats", penalty: "Floats", lambda_: float) -> "Floats":
    """Total energies, elementwise.

    Args:
        mu: mean energies, any shape; NaN where not scored.
        penalty: E_constraint, same shape.
        lambda_: weight of the penalty, >= 0.

    Returns:
        Same shape: +inf where the penalty is +inf, else NaN where mu is NaN.
    """
    import numpy as np

    parsed = np.isfinite(penalty)
    return np.where(parsed, mu + lambda_ * np.where(parsed, penalty, 0.0), math.inf)
