"""This project's stopping rule: predictive probabilities of what the rest of the budget could still change."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from raydebm.decision.stopping.predictive import (
    ConcentrationPrior,
    Standing,
    VoteBelief,
    expected_gain,
    lead_probabilities,
    reach_probability,
)
from raydebm.decision.stopping.state import ROUNDING, AnswerPosterior, SamplingState, StopDecision, StopReason
from raydebm.errors import ConfigError

_LEAST_WEIGHT = 1e-4
"""Concentrations with a smaller posterior weight are left out; no probability changes by more than their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRule:
    """Stop when the rest of the budget can hardly change the answer, can hardly make it certain, or does not pay.

    Three tests after each wave, in this order:

    1. accept: P(the leader stays the leader up to the budget) >= 1 - epsilon, and its confidence >= tau_accept;
    2. abstain: P(some answer's confidence is at least tau_accept when the budget is spent) < eta;
    3. cost: for every number of further waves, expected gain in confidence * value < price * expected tokens.

    Both probabilities are predictive: over the answers still to come, as a Chinese restaurant process continues the
    votes so far, averaged over the posterior of its concentration (``predictive``). A posterior from an evidence model
    enters in two places. Confidence is its probability of the leader. And a vote for answer a counts p(a) / votes(a):
    later votes are assumed to weigh what the earlier ones did. With p proportional to the votes this is the rule on
    counts alone, and an answer of probability 1 is proven and stops at once.

    Raises:
        ConfigError: a setting out of range; the message names it.
    """

    epsilon: float = 0.05
    """In [0, 1): chance that is accepted of losing the answer that the whole budget would give."""
    tau_accept: float = 0.0
    """In [0, 1]: least confidence with which an answer is accepted; 0: every settled answer."""
    eta: float = 0.05
    """In [0, 1]: below this chance of reaching ``tau_accept`` with the whole budget sampling ends; 0: never."""
    value: float = 1.0
    """Worth of a right answer, >= 0, in the unit of ``price``."""
    price: float = 0.0
    """Price of one token, >= 0; 0: tokens are free, and the third test is left out."""
    prior: ConcentrationPrior = field(default_factory=ConcentrationPrior)

    def __post_init__(self) -> None:
        for name, value, holds in (
            ("epsilon", self.epsilon, 0 <= self.epsilon < 1),
            ("tau_accept", self.tau_accept, 0 <= self.tau_accept <= 1),
            ("eta", self.eta, 0 <= self.eta <= 1),
            ("value", self.value, 0 <= self.value < math.inf),
            ("price", self.price, 0 <= self.price < math.inf),
        ):
            if not holds:
                wanted = {"epsilon": "in [0, 1)", "value": ">= 0", "price": ">= 0"}.get(name, "in [0, 1]")
                raise ConfigError(f"stopping.{name} must be {wanted}, got {value}")

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        """Judge one state.

        Raises:
            ConfigError: the posterior lacks an answer that has votes.
        """
        view = _View.of(state, posterior, self.prior)
        lead, confidence = view.lead(state.remaining), view.confidence
        reach = view.reach(state.remaining, self.tau_accept) if self.tau_accept > 0 and self.eta > 0 else None
        reason, gain = None, None
        if view.leader is not None and lead >= 1 - self.epsilon and confidence >= self.tau_accept:
            reason = StopReason.ACCEPT
        elif reach is not None and reach < self.eta:
            reason = StopReason.ABSTAIN
        elif self.price > 0 and state.tokens > 0:
            gain, pays = self._gain(state, view)
            reason = None if pays else StopReason.COST
        return StopDecision(
            reason=reason,
            leader=view.leader,
            num_samples=state.num_samples,
            remaining=state.remaining,
            lead_probability=lead,
            confidence=confidence,
            reach_probability=reach,
            expected_gain=gain,
        )

    def _gain(self, state: SamplingState, view: "_View") -> tuple[float, bool]:
        """The expected gain of the shortest horizon that pays and True, or the largest gain and False where none does.

        Looking only one wave ahead would stop where a lead needs two waves to be overturned. Horizons double, so that
        they do not depend on how the caller cuts its waves.
        """
        gain = 0.0
        for size in sorted({min(4 * 2**power, state.remaining) for power in range(state.remaining.bit_length())}):
            gain = view.gain(size)
            if gain * self.value >= self.price * size * state.tokens_per_sample:
                return gain, True
        return gain, False  # the gain grows with the samples: the last is the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A state as the predictive sees it: every quantity averaged over the posterior of the concentration."""

    leader: str | None
    confidence: float
    standing: Standing
    probabilities: tuple[float, ...] | None
    """Shares by an evidence model, the leader's first; None: the shares of the votes."""
    none: float
    weights: tuple[tuple[float, float], ...]
    """(alpha, posterior weight)"""

    @classmethod
    def of(cls, state: SamplingState, posterior: AnswerPosterior | None, prior: ConcentrationPrior) -> "_View":
        ranked = state.ranked(posterior)
        votes = tuple(count for _, count in ranked)
        updated = prior.updated(votes)
        pairs = [pair for pair in zip(updated.values, updated.weights, strict=True) if pair[1] >= _LEAST_WEIGHT]
        whole = math.fsum(weight for _, weight in pairs)
        weights = tuple((alpha, weight / whole) for alpha, weight in pairs)
        unseen = state.num_samples - state.num_unanswered - math.fsum(votes)  # what weights below 1 left out
        unanswered = state.num_unanswered + max(unseen, 0.0)
        probabilities = None if posterior is None else tuple(posterior.probabilities[answer] for answer, _ in ranked)
        total = math.fsum(votes)
        if probabilities is None:
            rates, new_rate = (1.0,) * len(votes), 1.0
            confidence = math.fsum(w * max(votes, default=0.0) / (total + unanswered + a) for a, w in weights)
        else:
            rates = tuple(p / count for p, count in zip(probabilities, votes, strict=True))
            new_rate = math.fsum(probabilities) / total if total else 0.0
            confidence = max(probabilities, default=0.0)
        return cls(
            leader=ranked[0][0] if ranked else None,
            confidence=confidence,
            standing=Standing(votes=votes, rates=rates, new_rate=new_rate, unanswered=unanswered),
            probabilities=probabilities,
            none=0.0 if posterior is None else posterior.none,
            weights=weights,
        )

    def lead(self, remaining: int) -> float:
        if self.probabilities and self.probabilities[0] >= 1 - ROUNDING:
            return 1.0
        alphas = tuple(alpha for alpha, _ in self.weights)
        leads = lead_probabilities(self.standing, remaining=remaining, alphas=alphas)
        return math.fsum(weight * lead for (_, weight), lead in zip(self.weights, leads, strict=True))

    def reach(self, remaining: int, threshold: float) -> float:
        return self._mean(
            lambda alpha: reach_probability(self._belief(alpha), remaining=remaining, threshold=threshold)
        )

    def gain(self, num_samples: int) -> float:
        return self._mean(lambda alpha: expected_gain(self._belief(alpha), num_samples=num_samples))

    def _mean(self, value: Callable[[float], float]) -> float:
        return math.fsum(weight * value(alpha) for alpha, weight in self.weights)

    def _belief(self, alpha: float) -> VoteBelief:
        strength = self.standing.total + alpha
        if self.probabilities is not None:
            return VoteBelief(probabilities=self.probabilities, none=self.none, strength=strength)
        shares = tuple(votes / strength for votes in self.standing.votes)
        return VoteBelief(probabilities=shares, none=alpha / strength, strength=strength)
