"""The state of sampling answers to one problem, what a stopping rule decides about it, and the plan of waves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from raydebm.errors import ConfigError

DEFAULT_WAVES = (4, 4, 8, 16)
DEFAULT_MAX_SAMPLES = 32
ROUNDING = 1e-9


class StopReason(StrEnum):
    """Why sampling ended."""

    ACCEPT = "accept"
    """The leading answer will hardly lose its lead, and its confidence is high enough."""
    ABSTAIN = "abstain"
    """The confidence will hardly ever be high enough."""
    COST = "cost"
    """More samples cost more than they bring."""
    BUDGET = "budget"
    """Every sample that the budget allows has been drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPosterior:
    """Probability of each answer being right, and of none of them, as an evidence model gives it.

    Raises:
        ConfigError: a number outside [0, 1], or a sum that is not 1.
    """

    probabilities: Mapping[str, float]
    none: float

    def __post_init__(self) -> None:
        values = [*self.probabilities.values(), self.none]
        if not all(0 <= value <= 1 + ROUNDING for value in values):  # written so that NaN fails too
            raise ConfigError(f"probabilities of answers must be in [0, 1], got {values}")
        if not math.isclose(math.fsum(values), 1.0, abs_tol=1e-6):
            raise ConfigError(f"probabilities of answers and of none must sum to 1, got {math.fsum(values):g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingState:
    """The answers to one problem so far.

    Raises:
        ConfigError: numbers that cannot belong together; the message names them.
    """

    max_samples: int
    """Most samples for this problem, >= 1."""
    votes: Mapping[str, float] = field(default_factory=dict)
    """By answer (its cluster or vote key): the number of samples that gave it, or the sum of their weights."""
    num_samples: int = 0
    """Samples so far, those without an answer included."""
    num_unanswered: int = 0
    """Samples that failed or did not parse."""
    last_wave: tuple[str | None, ...] = ()
    """The answers that came last; None: a sample without one."""
    tokens: int = 0
    """Spent so far."""

    def __post_init__(self) -> None:
        if self.max_samples < 1:
            raise ConfigError(f"max_samples must be >= 1, got {self.max_samples}")
        if not 0 <= self.num_unanswered <= self.num_samples:
            raise ConfigError(
                f"of {self.num_samples} samples {self.num_unanswered} cannot be without an answer; "
                "give 0 <= num_unanswered <= num_samples"
            )
        if any(not (math.isfinite(votes) and votes > 0) for votes in self.votes.values()):
            raise ConfigError(f"votes must be finite and above 0, got {dict(self.votes)}")
        answered = self.num_samples - self.num_unanswered
        if math.fsum(self.votes.values()) > answered * (1 + ROUNDING):
            raise ConfigError(
                f"{answered} samples with an answer cannot give {math.fsum(self.votes.values()):g} votes; "
                "weights are at most 1"
            )

    def after(
        self, answers: Sequence[str | None], *, weights: Sequence[float] | None = None, tokens: int = 0
    ) -> "SamplingState":
        """The state after one more wave.

        Args:
            answers: the wave's vote keys, None where a sample has no answer.
            weights: what each answer counts, in [0, 1], such as its calibrated probability; 1 by default.
            tokens: what the wave cost.

        Raises:
            ConfigError: a weight outside [0, 1], another number of weights than of answers, or negative tokens.
        """
        counted = [1.0] * len(answers) if weights is None else list(weights)
        if len(counted) != len(answers) or not all(0 <= weight <= 1 for weight in counted):
            raise ConfigError(f"{len(answers)} answers need as many weights in [0, 1], got {counted}")
        if tokens < 0:
            raise ConfigError(f"tokens must be >= 0, got {tokens}")
        votes = dict(self.votes)
        for answer, weight in zip(answers, counted, strict=True):
            if answer is not None and weight > 0:
                votes[answer] = votes.get(answer, 0.0) + weight
        return replace(
            self,
            votes=votes,
            num_samples=self.num_samples + len(answers),
            num_unanswered=self.num_unanswered + sum(answer is None for answer in answers),
            last_wave=tuple(answers),
            tokens=self.tokens + tokens,
        )

    @property
    def remaining(self) -> int:
        """Samples that may still be drawn."""
        return max(self.max_samples - self.num_samples, 0)

    @property
    def tokens_per_sample(self) -> float:
        """Mean so far; 0 before the first sample."""
        return self.tokens / self.num_samples if self.num_samples else 0.0

    def ranked(self, posterior: AnswerPosterior | None = None) -> list[tuple[str, float]]:
        """Answers with their votes, the leader first: by probability where a posterior is given, then by votes, then by
        the answer, so that the order of arrival never matters.

        Raises:
            ConfigError: the posterior lacks an answer that has votes.
        """
        if posterior is None:
            return sorted(self.votes.items(), key=lambda entry: (-entry[1], entry[0]))
        missing = [answer for answer in self.votes if answer not in posterior.probabilities]
        if missing:
            raise ConfigError(f"the posterior has no probability for the answer(s) {missing}; give one for each")
        return sorted(self.votes.items(), key=lambda entry: (-posterior.probabilities[entry[0]], -entry[1], entry[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecision:
    """Whether to stop, and the numbers it rests on; None for those that a rule does not compute."""

    reason: StopReason | None
    """None: go on sampling."""
    leader: str | None
    """The leading answer; None where there is none yet."""
    num_samples: int
    remaining: int
    """Samples of the budget that have not been drawn: what stopping now saves."""
    lead_probability: float | None = None
    """That the leader stays the leader, as the rule understands it."""
    confidence: float | None = None
    """Probability of the leader being right; without a posterior, that the next sample repeats it."""
    reach_probability: float | None = None
    """That the confidence of some answer is the one required, or more, when the budget is spent."""
    expected_gain: float | None = None
    """Upper bound on what the next samples add to the confidence (or to the best reward), on average."""

    @property
    def stop(self) -> bool:
        """Whether sampling ends."""
        return self.reason is not None

    @property
    def words(self) -> str:
        """One sentence for people."""
        shown = {
            "probability of keeping the lead": self.lead_probability,
            "confidence": self.confidence,
            "chance of enough confidence": self.reach_probability,
            "expected gain": self.expected_gain,
        }
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in shown.items() if value is not None)
        return f"{_WORDS[self.reason]} after {self.num_samples} samples, {self.remaining} left" + (
            f" ({numbers})" if numbers else ""
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that were computed, ``stop`` and ``words``, for an answer or a record."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return {**fields, "reason": self.reason and self.reason.value, "stop": self.stop, "words": self.words}


_WORDS = {
    None: "go on",
    StopReason.ACCEPT: "the leading answer is settled",
    StopReason.ABSTAIN: "no answer will be certain enough",
    StopReason.COST: "more samples cost more than they bring",
    StopReason.BUDGET: "the budget is spent",
}


def wave_ends(waves: Sequence[int], max_samples: int) -> tuple[int, ...]:
    """Number of samples after each wave, up to the budget; the last size repeats."""
    ends: list[int] = []
    drawn = 0
    while drawn < max_samples:
        drawn = min(drawn + waves[min(len(ends), len(waves) - 1)], max_samples)
        ends.append(drawn)
    return tuple(ends)


class StoppingRule(Protocol):
    """Judges a state that has at least one sample and samples left; ``SamplingPlan`` handles the others."""

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        """Whether to stop after the last wave; ``posterior`` serves rules that weigh answers by evidence."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """A rule with its schedule: how many samples each wave has and how many there are at most.

    Raises:
        ConfigError: no wave, an empty wave, or no sample at all.
    """

    rule: StoppingRule
    waves: tuple[int, ...] = DEFAULT_WAVES
    """Sizes of the waves; the last one repeats."""
    max_samples: int = DEFAULT_MAX_SAMPLES

    def __post_init__(self) -> None:
        if not self.waves or any(size < 1 for size in self.waves):
            raise ConfigError(f"waves must be sizes >= 1, got {self.waves}")
        if self.max_samples < 1:
            raise ConfigError(f"max_samples must be >= 1, got {self.max_samples}")

    def start(self) -> SamplingState:
        """The state before the first wave."""
        return SamplingState(max_samples=self.max_samples)

    def next_wave(self, state: SamplingState) -> int:
        """How many samples to draw next: what is missing of the wave that the state is in, within the budget."""
        return next((end - state.num_samples for end in self.ends() if end > state.num_samples), 0)

    def ends(self) -> tuple[int, ...]:
        """Number of samples after each wave, up to the budget."""
        return wave_ends(self.waves, self.max_samples)

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        """Whether to stop now: never before the first wave is in, always when the budget is spent.

        Raises:
            ConfigError: the posterior does not fit the state.
        """
        if state.remaining > 0 and state.num_samples >= self.waves[0]:
            return self.rule.decide(state, posterior)
        ranked = state.ranked(posterior)
        return StopDecision(
            reason=None if state.remaining else StopReason.BUDGET,
            leader=ranked[0][0] if ranked else None,
            num_samples=state.num_samples,
            remaining=state.remaining,
        )
