"""The records that stages hand to each other. Frozen; no behaviour beyond what follows from their own fields.

Does not know: Ray, torch, tasks, files.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from raydebm.energy import total_energy
from raydebm.errors import ScoringError
from raydebm.identity import content_id

_SURROGATE = re.compile(r"[\ud800-\udfff]")

Message = Mapping[str, str]
"""A chat message: ``{"role": "system" | "user" | "assistant", "content": ...}``."""

Reasoning = Literal["answer", "all"]
"""What is scored of a model that thinks before it answers: the answer alone, or thinking and answer."""

GC_THRESHOLD = 10_000
"""New objects between two searches for cyclic garbage (``gc.set_threshold``), in processes that make many records.
Records are in no cycles, and Python's 700 made the searches a third of a replay."""

OWN_LOGPROB, OWN_WORST_LOGPROB = "own_logprob", "own_worst_logprob"
"""The names under which a generator's log-probabilities of what it wrote count as evidence."""


def well_formed(text: str) -> str:
    """The text with U+FFFD for each lone surrogate.

    JSON can spell half a character (``"\\ud83d"``), which no UTF-8 has: Arrow and tokenizers would raise at it.
    """
    return _SURROGATE.sub("\ufffd", text)


REFERENCE_HEADING = "Reference information:"
"""The line before what a problem gives to look things up in, such as tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question, without its answer. Gold has a record of its own, so that it cannot travel along."""

    task: str
    problem_id: str
    prompt: str
    """The question as a human reads it: what generators are asked and what the scorer reads. Reference information that
    the scorer may leave out where it does not fit comes last, after a blank line and a line ``REFERENCE_HEADING``."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON fields that gold-free checks need, such as names and parsed statements."""
    difficulty: str = ""
    """The group in which reports break results down, such as ``"4 people"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The reference answer or hidden tests. Stops at labelling."""

    task: str
    problem_id: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a completion is drawn. Part of a candidate's identity."""

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
    """One completion to draw. One request gives one candidate, whether or not it is sent together with others."""

    task: str
    problem_id: str
    generator: str
    messages: tuple[Message, ...]
    sampling: Sampling
    seed: int
    pass_index: int = 1
    sample_index: int = 0
    response_format: str | None = None
    """OpenAI's object as JSON text, where a client of the service gave one; for endpoints that honour it."""
    _id: str = field(default="", init=False, repr=False, compare=False)
    """The candidate's id once it was asked for: a request of the service asks for it tens of times."""

    @property
    def candidate_id(self) -> str:
        """Content address: the same request always means the same candidate, so it is paid for once."""
        if not self._id:
            sampling, messages = self.sampling, [dict(message) for message in self.messages]
            drawn = [sampling.temperature, sampling.top_p, sampling.max_tokens, list(sampling.stop)]
            asked = (self.task, self.problem_id, self.generator, messages, drawn)
            which = (self.seed, self.pass_index, self.sample_index)
            given = () if self.response_format is None else (self.response_format,)
            object.__setattr__(self, "_id", content_id(*asked, *which, *given))
        return self._id


class FailureKind(StrEnum):
    """Why there is no text, where something is decided by it; other failures have a message alone."""

    LATE = "late"
    """It was not there, or not checked and scored, by the deadline."""
    BUDGET = "budget"
    """It was not asked for: the limit in US dollars is reached."""
    NOT_SENT = "not_sent"
    """It was not asked for: the endpoint had refused the same before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A completion with its identity. ``text`` is None exactly when ``error`` says why."""

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
    """Thinking that the endpoint returned apart from the answer; never parsed, see ``as_scored``."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    logprob: float | None = None
    """Mean log-probability of the answer's tokens under its own generator, in nats; None where it was not given."""
    worst_logprob: float | None = None
    """The same over the least likely tenth of the tokens."""

    @property
    def is_greedy(self) -> bool:
        """Greedy candidates are a baseline of their own and never part of the pool that selectors see."""
        return self.sampling.is_greedy

    def as_scored(self, reasoning: Reasoning) -> "Candidate":
        """The candidate whose ``text`` is what a scorer reads; the same one where there is nothing to add.

        Args:
            reasoning: ``answer``: the answer alone; ``all``: the thinking, a blank line, the answer.
        """
        text = scored_text(self.text, self.reasoning, reasoning)
        return self if text == self.text else replace(self, text=text)


def scored_text(answer: str | None, thinking: str | None, reasoning: Reasoning) -> str | None:
    """What a scorer reads of an answer and the thinking before it; None without an answer."""
    if reasoning == "answer" or answer is None or not thinking:
        return answer
    return f"{thinking.strip()}\n\n{answer}"


class Verdict(StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNLABELED = "unlabeled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What the checker said from gold. Unlabeled is never incorrect, and never 0."""

    candidate_id: str
    problem_id: str
    verdict: Verdict
    violation_score: float | None = None
    """In [0, 1], lower is better, where the task is continuous; else None."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the violation score is made of, by name, each in [0, 1], lower is better; empty where it has no parts."""
    severity: int | None = None
    """How far an incorrect candidate is from right, where the task tells kinds of failure apart; smaller is nearer."""
    reason: str = ""
    """Why there is no label, or what was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two candidates of one problem; the chosen one should get the lower energy."""

    problem_id: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken constraint, in a sentence that a model can act on."""

    constraint: str
    penalty: float
    """C_j > 0, before the weight."""
    weight: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintReport:
    """What the gold-free checks found in one candidate (paper section 3.4)."""

    candidate_id: str
    answer: str | None
    """The parsed answer in canonical text; None when nothing could be parsed."""
    vote_key: str | None
    """Candidates with the same key give the same answer."""
    penalty: float
    """E_constraint = sum_j w_j C_j >= 0; +inf when the candidate does not parse."""
    violations: tuple[Violation, ...] = ()
    error: str | None = None
    """Why it could not be checked (no text, or the checker crashed); None when it was, also when it did not parse."""
    proof: bool | None = None
    """True or False: an exact constraint proves the answer right or wrong; None: no exact constraint applies."""
    note: str = ""
    """Why a constraint that is usually exact proves nothing for this problem; else empty."""

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
    """Tokens of problem and answer that were cut to fit the context."""

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
    """What a baseline (a reward model, a judge, ...) says about one candidate."""

    candidate_id: str
    name: str
    """The baseline's name."""
    score: float | None
    """Higher is better; None exactly when ``error`` says why it is missing."""
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further scores by the same model, higher is better."""

    def __post_init__(self) -> None:
        if self.score is not None and not math.isfinite(self.score):
            raise ScoringError(
                f"candidate {self.candidate_id!r}: baseline {self.name!r} gave {self.score}, which is no score; "
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
    """Nothing was decided: a chat that is no problem of a served task was answered by one generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCandidate:
    """A candidate with everything selection needs. ``energies`` is None when there was no text to score."""

    candidate: Candidate
    report: ConstraintReport
    energies: Energies | None
    scores: Mapping[str, float] = field(default_factory=dict)
    """What the recipe's baselines that count as evidence say, by name, higher is better; absent where not measured."""

    @property
    def evidence_scores(self) -> dict[str, float]:
        """``scores``, and what the candidate's own generator says of it by log-probabilities."""
        candidate = self.candidate
        own = {OWN_LOGPROB: candidate.logprob, OWN_WORST_LOGPROB: candidate.worst_logprob}
        return {**self.scores, **{name: value for name, value in own.items() if value is not None}}

    def total_energy(self, lambda_: float) -> float:
        """E = mu + lambda * E_constraint (paper Eq. 1); +inf when it did not parse or could not be scored."""
        return math.inf if self.energies is None else total_energy(self.energies.mu, self.report.penalty, lambda_)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStop:
    """Why a pass that was sampled in waves ended, and what that saved."""

    reason: str
    """``accept``, ``abstain`` or ``cost``: the rest of the pass was left out, because the answer is settled, will
    hardly ever be certain enough, or more samples are not worth their cost. ``budget``: everything was sampled that the
    pass, the deadline and the generators allowed."""
    words: str
    """One sentence with the numbers."""
    num_planned: int
    """Samples of the whole pass."""
    num_samples: int
    """Samples that were drawn, failed ones included."""
    num_cancelled: int = 0
    """Requests that were cancelled in flight. They may have cost something."""
    tokens_saved: int | None = None
    """Samples that were not asked for times the mean tokens of those that were; None: no generator reports tokens."""

    @property
    def num_saved(self) -> int:
        """Samples that were never asked for."""
        return 0 if self.reason == "budget" else max(self.num_planned - self.num_samples - self.num_cancelled, 0)

    @property
    def saved_frac(self) -> float:
        """Share of the pass that was never asked for."""
        return self.num_saved / self.num_planned if self.num_planned else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """One round: what was asked for, what was best over all rounds so far, and what was decided."""

    pass_index: int
    num_requested: int
    num_failed: int
    selected: str | None
    """Candidate id of the energy minimiser over all rounds so far; None when nothing parsed."""
    sigma: float | None
    """The triage signal that was compared with the thresholds."""
    penalty: float | None
    decision: Decision
    feedback: str | None = None
    """What the next round was told."""
    confidence: float | None = None
    """Probability that the selected answer is right; None without a posterior."""
    stop: PassStop | None = None
    """Why it ended; None where it was not sampled in waves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of the two-pass loop for one problem (paper Algorithm 1)."""

    problem: Problem
    decision: Decision
    """ACCEPT or ABSTAIN; REGENERATE occurs only inside ``passes``."""
    best: ScoredCandidate | None
    """The energy minimiser, also when the decision is to abstain; None when nothing parsed."""
    passes: tuple[PassRecord, ...]
    pool: Sequence[ScoredCandidate]
    reason: str
    """Why it was decided so, in one sentence."""

    @property
    def confidence(self) -> float | None:
        """Probability that the selection is right; None without a posterior or a selection."""
        return self.passes[-1].confidence if self.passes else None

    @property
    def answer(self) -> str | None:
        """The text to give out: the selected candidate's, or None after an abstention."""
        if self.decision is Decision.ABSTAIN or self.best is None:
            return None
        return self.best.candidate.text
