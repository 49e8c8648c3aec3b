"""Selectors of others that weigh a verifier's scores against agreement; the reward is r = -mu.

| selector | chooses | source |
|---|---|---|
| pessimistic verification | argmax over answers a of mean(r of a) - alpha ln N / (n_a + 1) | arXiv 2510.14913 |
| majority of the bests | the most frequent answer of the best of m bootstrapped candidates | arXiv 2511.18630 |

Both choose among answers, so they need vote keys and energies.
"""

import math
from functools import partial

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.pools.standings import standings
from raydebm.evaluation.selectors.selector import Selector, expected, rounded_mean, vote

PESSIMISTIC, MAJORITY_OF_BESTS = "pessimistic verification", "majority of the bests"
ALPHAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DEFAULT_ALPHA = 0.5


def peer_selectors(pools: Stack, validation: Stack) -> list[Selector]:
    """Both selectors. Empty without energies.

    Args:
        pools: Pools to evaluate.
        validation: Problems that choose alpha, because energies have no fixed scale. If empty, alpha is
            ``DEFAULT_ALPHA``.
    """
    if not pools.num_members:
        return []
    alpha = best_alpha(validation)
    how = f"alpha={DEFAULT_ALPHA:g}" if alpha is None else f"alpha={alpha:g} chosen on validation problems"
    return [
        Selector(
            name=PESSIMISTIC,
            group="baseline",
            description="the answer with the highest mean of -mu minus alpha ln N / (votes + 1), "
            f"{how} (arXiv 2510.14913); ties shared",
            weights=partial(pessimistic, alpha=DEFAULT_ALPHA if alpha is None else alpha),
            energies=1.0,
        ),
        Selector(
            name=MAJORITY_OF_BESTS,
            group="baseline",
            description="the answer that is most often the one of lowest mu among sqrt(N) candidates drawn with "
            "replacement, computed exactly (arXiv 2511.18630); ties shared",
            weights=majority_of_the_bests,
            energies=1.0,
        ),
    ]


def best_alpha(validation: Stack) -> float | None:
    """Alpha of ``ALPHAS`` with the highest pass@1, ties to the smallest. None if no choice has a label."""
    values = {
        alpha: rounded_mean(expected(pessimistic(validation, alpha=alpha), validation.correct)) for alpha in ALPHAS
    }
    scores = {alpha: value for alpha, value in values.items() if value is not None}
    return max(scores, key=lambda alpha: (scores[alpha], -alpha)) if scores else None


def pessimistic(stack: Stack, *, alpha: float) -> Floats:
    """Weights, shape (P, N): an answer's mean reward minus a penalty that decreases with its votes."""
    usable = _usable(stack)
    number = stack.by_answer(usable)
    rewards = stack.by_answer(np.where(usable, -stack.mu(), 0.0))
    total = np.maximum(number.sum(axis=1, keepdims=True), 1)
    reward = np.divide(rewards, number, where=number > 0, out=np.full(number.shape, -math.inf))
    scores = np.where(number > 0, reward - alpha * np.log(total) / (number + 1), -math.inf)
    top = scores.max(axis=1, keepdims=True)
    # The sum over an answer's candidates then increases with its score, which is sufficient for ``vote``.
    mass = np.exp(scores - np.where(np.isfinite(top), top, 0.0)) / np.maximum(number, 1)
    return vote(stack, np.where(usable, stack.of_answer(mass), 0.0))


def majority_of_the_bests(stack: Stack) -> Floats:
    """Weights, shape (P, N): the mode of best-of-m under the bootstrap, with m = sqrt(N) rounded.

    The best of m samples with replacement is outside the k best candidates with probability (1 - k/N)^m, so every
    candidate's probability is exact. Candidates of equal mu share theirs.
    """
    usable = _usable(stack)
    total = np.maximum(usable.sum(axis=1, keepdims=True), 1)
    size = np.maximum(np.round(np.sqrt(total)), 1)
    better, equal = standings(np.where(usable, stack.mu(), math.inf))
    chance = (1 - np.minimum(better / total, 1)) ** size - (1 - np.minimum((better + equal) / total, 1)) ** size
    return vote(stack, np.where(usable, chance / equal, 0.0))


def _usable(stack: Stack) -> Bools:
    """Candidates with an answer and an energy, shape (P, N)."""
    usable: Bools = (stack.answer >= 0) & np.isfinite(stack.mu())
    return usable
