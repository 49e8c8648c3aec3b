"""Stopping rules of others, behind the interface of ``StoppingRule``.

| rule | source |
|---|---|
| ``BetaRule`` | Adaptive-Consistency, arXiv 2305.11860, Beta criterion; BetaSelfConsistency of its_hub |
| ``DirichletRule`` | Adaptive-Consistency, arXiv 2305.11860, Dirichlet criterion |
| ``UnanimousWaveRule`` | early-stopping self-consistency (ESC), arXiv 2401.10480 |
| ``CannotBeOvertakenRule`` | counting: no order of the remaining votes changes the majority |
| ``FixedBudgetRule`` | self-consistency, arXiv 2203.11171: draws everything |

None of them looks at a posterior: they count votes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincinv

from raydebm.decision.stopping.state import ROUNDING, AnswerPosterior, SamplingState, StopDecision, StopReason
from raydebm.errors import ConfigError

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
"""Quadrature on [-1, 1]; 128 nodes give the Dirichlet probability to within 1e-5."""


@dataclass(frozen=True, slots=True)
class BetaRule:
    """Stop when the leader beats the runner-up with probability >= threshold under a Beta posterior.

    P = P(share > 1/2) for Beta(v1 + 1, v2 + 1) = 1 - I_0.5(v1 + 1, v2 + 1), where v1 and v2 are the two largest votes.

    Raises:
        ConfigError: the threshold is not in (0.5, 1].
    """

    threshold: float = 0.95

    def __post_init__(self) -> None:
        _check_threshold(self.threshold, above=0.5)

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        votes = [count for _, count in state.ranked()]
        probability = beta_probability(votes)
        return _accepted(state, probability, settled=bool(votes) and probability >= self.threshold)


def beta_probability(votes: Sequence[float]) -> float:
    """P(leader's share of the first two > 1/2) under a uniform prior; votes in descending order."""
    first, second = (*votes, 0.0, 0.0)[:2]
    return 1.0 - float(betainc(first + 1, second + 1, 0.5))


@dataclass(frozen=True, slots=True)
class DirichletRule:
    """Stop when the leader is the most likely answer with probability >= threshold under a Dirichlet posterior.

    P(p_1 = max_j p_j) for Dirichlet(v + 1) over the answers seen. The paper integrates numerically or samples; here it
    is one integral over independent Gamma variables, E[product over rivals of P(G_j < G_1)].

    Raises:
        ConfigError: the threshold is not in (0, 1].
    """

    threshold: float = 0.95

    def __post_init__(self) -> None:
        _check_threshold(self.threshold, above=0.0)

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        votes = [count for _, count in state.ranked()]
        probability = dirichlet_probability(votes)
        return _accepted(state, probability, settled=bool(votes) and probability >= self.threshold)


def dirichlet_probability(votes: Sequence[float]) -> float:
    """P(the first answer is the most likely one); one answer alone is compared with one that was never given, as in
    ``BetaRule``."""
    if not votes:
        return 0.0
    below = np.stack([_below(rival, votes[0]) for rival in votes[1:] or [0.0]]).prod(axis=0)
    return float(below @ _WEIGHTS / 2)


@lru_cache(maxsize=4096)
def _below(rival: float, leader: float) -> NDArray[np.float64]:
    """P(G_rival < G_leader) at each node of the integral over G_leader. Cached, because few numbers of votes occur; not
    to be changed."""
    chances: NDArray[np.float64] = gammainc(rival + 1, gammaincinv(leader + 1, (_NODES + 1) / 2))
    return chances


@dataclass(frozen=True, slots=True)
class UnanimousWaveRule:
    """Stop when all answers of the last wave are equal (ESC). The window of the paper is the wave.

    A sample without an answer breaks the agreement.
    """

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        answers = set(state.last_wave)
        return _accepted(state, None, settled=len(answers) == 1 and None not in answers)


@dataclass(frozen=True, slots=True)
class CannotBeOvertakenRule:
    """Stop when the leader is ahead by more votes than samples are left; each counts at most 1."""

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        votes = [count for _, count in state.ranked()]
        first, second = (*votes, 0.0, 0.0)[:2]
        settled = first - second > state.remaining * (1 + ROUNDING)
        return _accepted(state, 1.0 if settled else None, settled=settled)


@dataclass(frozen=True, slots=True)
class FixedBudgetRule:
    """Draw the whole budget."""

    def decide(self, state: SamplingState, posterior: AnswerPosterior | None = None) -> StopDecision:
        return _accepted(state, None, settled=False)


def _accepted(state: SamplingState, probability: float | None, *, settled: bool) -> StopDecision:
    ranked = state.ranked()
    return StopDecision(
        reason=StopReason.ACCEPT if settled else None,
        leader=ranked[0][0] if ranked else None,
        num_samples=state.num_samples,
        remaining=state.remaining,
        lead_probability=probability,
    )


def _check_threshold(threshold: float, *, above: float) -> None:
    if not above < threshold <= 1 or math.isnan(threshold):
        raise ConfigError(f"the threshold of a stopping rule must be in ({above:g}, 1], got {threshold}")
