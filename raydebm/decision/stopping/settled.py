"""The stopping rule, based on the probability that the rest of the budget changes the result.

After each wave, in this order:

1. accept: P(the leader stays the leader up to the budget) >= 1 - ``EPSILON``, and its confidence >= tau_accept;
2. abstain: P(some answer's confidence is at least tau_accept when the budget is spent) < ``ETA``.

Both are predictive probabilities over the answers still to come: a Chinese restaurant process continues the votes so
far, averaged over the posterior of its concentration (``predictive``). Probabilities of the answers are used twice:
confidence is the leader's probability, and a vote for answer a has weight p(a) / votes(a), because later votes are
assumed to weigh as much as earlier ones. If p is proportional to the votes, this is the rule on votes. An answer of
probability 1 is proven and ends sampling at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from raydebm.decision.stopping.predictive import (
    ROUNDING,
    Standing,
    concentrations,
    lead_probabilities,
    reach_probability,
)

EPSILON = 0.05
"""Accepted probability that the whole budget would select a different answer."""
ETA = 0.05
"""Sampling ends when the probability of reaching ``tau_accept`` with the whole budget is below this value."""


class StopReason(StrEnum):
    """Reason for the end of sampling."""

    ACCEPT = "accept"
    """The leading answer is unlikely to lose its lead, and its confidence is high enough."""
    ABSTAIN = "abstain"
    """The confidence is unlikely to become high enough."""
    BUDGET = "budget"
    """All samples of the budget have been taken."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision to stop or to continue sampling."""

    reason: StopReason | None
    """Reason for the end. None if sampling continues."""
    words: str
    """Explanation in one sentence."""
    leader: str | None = None
    """Leading answer. None without votes."""


_WORDS = {
    None: "go on",
    StopReason.ACCEPT: "the leading answer is settled",
    StopReason.ABSTAIN: "no answer will be certain enough",
}


def settled(
    votes: Mapping[str, int],
    *,
    unanswered: int,
    remaining: int,
    probabilities: Mapping[str, float] | None = None,
    tau_accept: float = 0.0,
) -> Stop:
    """Judge the samples of one problem so far.

    Args:
        votes: number of samples by answer.
        unanswered: samples that failed or did not parse.
        remaining: samples left in the budget.
        probabilities: probability of each answer in ``votes``. Default: the rule on votes.
        tau_accept: minimum confidence to accept. Default: 0, which accepts every settled answer.
    """
    p = probabilities or {}
    # Sorted, so that the order of arrival has no effect.
    leading = sorted(votes, key=lambda answer: (-p.get(answer, 0.0), -votes[answer], answer))
    counts = tuple(votes[answer] for answer in leading)
    known = tuple(p[answer] for answer in leading) if probabilities is not None else None
    weights = concentrations(counts)
    lead = _lead(counts, known, weights, unanswered=unanswered, remaining=remaining)
    if known is None:
        confidence = math.fsum(w * max(counts, default=0) / (sum(counts) + unanswered + a) for a, w in weights)
    else:
        confidence = max(known, default=0.0)
    shown = {"probability of keeping the lead": lead, "confidence": confidence}
    # Only a proof reaches a threshold of 1, and votes do not predict proofs.
    reach = 1.0
    if known is not None and 0 < tau_accept < 1:
        none, samples = max(1 - math.fsum(p.values()), 0.0), sum(counts) + unanswered
        reach = math.fsum(
            weight
            * reach_probability(known, none=none, strength=samples + alpha, remaining=remaining, threshold=tau_accept)
            for alpha, weight in weights
        )
        shown["chance of enough confidence"] = reach
    reason = None
    if leading and lead >= 1 - EPSILON and confidence >= tau_accept:
        reason = StopReason.ACCEPT
    elif reach < ETA:
        reason = StopReason.ABSTAIN
    numbers = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    words = f"{_WORDS[reason]} after {sum(counts) + unanswered} samples, {remaining} left ({numbers})"
    return Stop(reason, words, leading[0] if leading else None)


def _lead(
    votes: tuple[int, ...],
    probabilities: tuple[float, ...] | None,
    weights: Sequence[tuple[float, float]],
    *,
    unanswered: int,
    remaining: int,
) -> float:
    """Probability that the leader, which is first, stays the leader."""
    if probabilities is None:
        rates, new_rate = (1.0,) * len(votes), 1.0
    elif probabilities and probabilities[0] >= 1 - ROUNDING:
        return 1.0
    else:
        rates = tuple(p / count for p, count in zip(probabilities, votes, strict=True))
        new_rate = math.fsum(probabilities) / sum(votes) if votes else 0.0
    standing = Standing(votes=votes, rates=rates, new_rate=new_rate, unanswered=unanswered)
    leads = lead_probabilities(standing, remaining=remaining, alphas=tuple(alpha for alpha, _ in weights))
    return math.fsum(weight * lead for (_, weight), lead in zip(weights, leads, strict=True))


def wave_ends(waves: Sequence[int], most: int) -> list[int]:
    """Number of samples after each wave, up to ``most``. The last size repeats."""
    ends: list[int] = []
    while (drawn := ends[-1] if ends else 0) < most:
        ends.append(min(drawn + waves[min(len(ends), len(waves) - 1)], most))
    return ends
