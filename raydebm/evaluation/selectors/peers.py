"""Selectors of others that weigh a verifier's scores against agreement; the reward is r = -mu.

| selector | chooses | source |
|---|---|---|
| pessimistic verification | argmax over answers a of mean(r of a) - alpha ln N / (n_a + 1) | arXiv 2510.14913 |
| majority of the bests | the most frequent answer of the best of m bootstrapped candidates | arXiv 2511.18630 |

Both choose among answers, so they need vote keys and energies.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import Selector, expected, vote

PESSIMISTIC, MAJORITY_OF_BESTS = "pessimistic verification", "majority of the bests"
ALPHAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DEFAULT_ALPHA = 0.5


def peer_selectors(pools: Sequence[EvaluatedPool], validation: Sequence[EvaluatedPool]) -> list[Selector]:
    """Both; none without energies.

    Args:
        pools: what will be evaluated.
        validation: problems on which alpha is chosen, because energies have no fixed scale; without any it is
            ``DEFAULT_ALPHA``.
    """
    if not any(pool.members.shape[1] for pool in pools):
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
        ),
        Selector(
            name=MAJORITY_OF_BESTS,
            group="baseline",
            description="the answer that is most often the one of lowest mu among sqrt(N) candidates drawn with "
            "replacement, computed exactly (arXiv 2511.18630); ties shared",
            weights=majority_of_the_bests,
        ),
    ]


def best_alpha(validation: Sequence[EvaluatedPool]) -> float | None:
    """The alpha of ``ALPHAS`` with the highest pass@1, ties to the smallest; None where no choice has a label."""
    scores = {}
    for alpha in ALPHAS:
        values = [expected(pessimistic(pool, alpha=alpha), pool.correct) for pool in validation if pool.everything]
        known = [value for value in values if not math.isnan(value)]
        if known:
            scores[alpha] = round(sum(known) / len(known), 9)
    return max(scores, key=lambda alpha: (scores[alpha], -alpha)) if scores else None


def pessimistic(pool: EvaluatedPool, *, alpha: float) -> Floats:
    """Weights of the pool's candidates: an answer's mean reward, less the more the fewer gave it."""
    rows_of = _rows_by_answer(pool)
    if not rows_of:
        return np.zeros(len(pool.correct))
    total = sum(len(rows) for rows in rows_of.values())
    mu = pool.mu
    scores = {
        answer: float(-mu[rows].mean()) - alpha * math.log(total) / (len(rows) + 1) for answer, rows in rows_of.items()
    }
    top = max(scores.values())
    votes = np.zeros(len(pool.candidates))
    for answer, rows in rows_of.items():
        # The sum over an answer's candidates then rises with its score, which is all that ``vote`` looks at.
        votes[rows] = math.exp(scores[answer] - top) / len(rows)
    return vote(pool, votes)


def majority_of_the_bests(pool: EvaluatedPool) -> Floats:
    """Weights of the pool's candidates: the mode of best-of-m under the bootstrap, with m = sqrt(N) rounded.

    The best of m draws with replacement is beyond the k best candidates with probability (1 - k/N)^m, so every
    candidate's chance is exact; candidates of equal mu share theirs.
    """
    usable = _usable(pool)
    if not usable.any():
        return np.zeros(len(pool.correct))
    mu = pool.mu[: len(pool.candidates)]
    total = int(usable.sum())
    size = max(round(math.sqrt(total)), 1)
    votes = np.zeros(len(mu))
    for value in np.unique(mu[usable]):
        better, equal = int((mu[usable] < value).sum()), usable & (mu == value)
        chance = (1 - better / total) ** size - (1 - (better + int(equal.sum())) / total) ** size
        votes[equal] = chance / equal.sum()
    return vote(pool, votes)


def _usable(pool: EvaluatedPool) -> Bools:
    """(N,): candidates of the pool with an answer and an energy."""
    answered = np.array([scored.report.vote_key is not None for scored in pool.candidates], dtype=np.bool_)
    usable: Bools = answered & np.isfinite(pool.mu[: len(pool.candidates)])
    return usable


def _rows_by_answer(pool: EvaluatedPool) -> dict[str, list[int]]:
    rows_of: dict[str, list[int]] = {}
    for row in np.flatnonzero(_usable(pool)).tolist():
        key = pool.candidates[row].report.vote_key
        if key is not None:
            rows_of.setdefault(key, []).append(row)
    return rows_of
