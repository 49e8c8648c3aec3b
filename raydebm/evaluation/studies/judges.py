"""How far scorers of candidates agree with each other and with the labels: Spearman's rank correlation.

Every score is turned so that higher is better. The interval resamples problems (candidates of one problem are not
independent, so the usual p-value of a rank correlation would promise too much); ranks are those of the whole sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from raydebm.evaluation.intervals import Bootstrap, Estimate
from raydebm.evaluation.pools import EvaluatedPool, Floats

OURS, LABEL, VIOLATION = "-mu", "correct", "-violation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    one: str
    other: str
    spearman: Estimate
    """n is the number of problems."""
    num_candidates: int


def judge_agreement(pools: Sequence[EvaluatedPool], bootstrap: Bootstrap) -> tuple[Agreement, ...]:
    """Every pair of scores, and every score with the labels; empty where no other scorer was run."""
    names = list(dict.fromkeys(name for pool in pools for name in pool.scores))
    if not names:
        return ()
    columns = {name: _joined(pools, [pool.scores.get(name) for pool in pools]) for name in names}
    columns[OURS] = _joined(pools, [-pool.mu for pool in pools])
    columns[LABEL] = _joined(pools, [pool.correct for pool in pools])
    columns[VIOLATION] = _joined(pools, [-pool.violation for pool in pools])
    problem = np.repeat(np.arange(len(pools)), [len(pool.candidates) for pool in pools])
    found = []
    for one, other in combinations(columns, 2):
        if {one, other} == {LABEL, VIOLATION}:
            continue
        known = ~(np.isnan(columns[one]) | np.isnan(columns[other]))
        if known.sum() >= 3:
            found.append(_agreement(one, other, columns[one][known], columns[other][known], problem[known], bootstrap))
    return tuple(found)


def _joined(pools: Sequence[EvaluatedPool], columns: Sequence[Floats | None]) -> Floats:
    return np.concatenate(
        [
            np.full(len(pool.candidates), math.nan) if values is None else values[: len(pool.candidates)]
            for pool, values in zip(pools, columns, strict=True)
        ]
    )


def _agreement(one: str, other: str, x: Floats, y: Floats, problem: np.ndarray, bootstrap: Bootstrap) -> Agreement:
    from scipy.stats import rankdata, spearmanr

    ranks = rankdata(x), rankdata(y)
    first, second = (rank - rank.mean() for rank in ranks)
    width = bootstrap.counts.shape[1]
    moments = np.stack(
        [
            np.bincount(problem, weights=values, minlength=width)
            for values in (np.ones(len(x)), first, second, first**2, second**2, first * second)
        ],
        axis=1,
    )
    n, sx, sy, sxx, syy, sxy = (bootstrap.counts @ moments).T
    with np.errstate(invalid="ignore", divide="ignore"):
        sampled = (n * sxy - sx * sy) / np.sqrt((n * sxx - sx**2) * (n * syy - sy**2))
    constant = len(set(x.tolist())) < 2 or len(set(y.tolist())) < 2
    value = math.nan if constant else float(spearmanr(x, y).statistic)
    sampled = np.where(np.isfinite(sampled), sampled, math.nan)
    return Agreement(
        one=one,
        other=other,
        spearman=bootstrap.interval(value, sampled, len(set(problem.tolist()))),
        num_candidates=len(x),
    )
