"""Agreement of scorers with each other and with the labels: Spearman's rank correlation.

Every score is oriented so that higher is better. The interval resamples problems, because candidates of one problem are
not independent and the usual p-value of a rank correlation would be too small. Ranks are those of the whole sample.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from raydebm.decision.groups import Bools, Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

OURS, LABEL, VIOLATION = "-mu", "correct", "-violation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    one: str
    other: str
    spearman: Estimate
    """n is the number of problems."""
    num_candidates: int


def judge_agreement(pools: PoolTable, bootstrap: Bootstrap) -> tuple[Agreement, ...]:
    """Every pair of scores, and every score with the labels. Empty without other scorers."""
    if not pools.scores:
        return ()
    columns = {**pools.scores, OURS: -pools.mu, LABEL: pools.correct, VIOLATION: -pools.violation}
    problem = pools.pool_of_row
    agreements = []
    for one, other in combinations(columns, 2):
        if {one, other} == {LABEL, VIOLATION}:
            continue
        known = ~(np.isnan(columns[one]) | np.isnan(columns[other]))
        if known.sum() >= 3:
            agreements.append(
                _agreement(one, other, columns[one][known], columns[other][known], problem[known], bootstrap)
            )
    return tuple(agreements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPicks:
    """Ratings of selections by another scorer, such as a judge: means over problems."""

    name: str
    ours: Estimate
    """Mean rating of the selections by E."""
    oracle: Estimate
    """Mean rating of the best candidates by label (lowest violation score, else correct), averaged over ties."""
    random: Estimate
    """Mean rating of all rated candidates."""
    ours_minus_oracle: Estimate
    """Paired difference, over the problems in which both are rated."""


def rated_picks(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> tuple[RatedPicks, ...]:
    """One row per other scorer. Problems with an unrated selection or best candidate are excluded from the measures
    that need it."""
    picked, best = pools.select(lambda_), _best_by_label(pools)
    rated = []
    for name, rating in pools.scores.items():
        ours, oracle = pools.at(rating, picked), pools.mean_of(rating, best)
        rated.append(
            RatedPicks(
                name=name,
                ours=bootstrap.mean(ours),
                oracle=bootstrap.mean(oracle),
                random=bootstrap.mean(pools.mean_of(rating)),
                ours_minus_oracle=bootstrap.mean(ours - oracle),
            )
        )
    return tuple(rated)


def _best_by_label(pools: PoolTable) -> Bools:
    """Candidates with the lowest violation score of the pool, else correct ones, shape (R,)."""
    violation = np.where(np.isnan(pools.violation), math.inf, pools.violation)
    lowest = pools.least(violation)[pools.pool_of_row]
    best: Bools = np.where(np.isfinite(lowest), violation == lowest, pools.correct == 1)
    return best


def _agreement(one: str, other: str, x: Floats, y: Floats, problem: np.ndarray, bootstrap: Bootstrap) -> Agreement:
    from scipy.stats import rankdata  # imported here because it is slow

    ranks = rankdata(x), rankdata(y)
    first, second = (rank - rank.mean() for rank in ranks)
    width = bootstrap.counts.shape[1]
    moments = np.stack(
        [
            np.bincount(problem, weights=values, minlength=width)
            for values in (np.ones(len(x)), first, second, first**2, second**2, first * second)
        ],
        axis=1,
        dtype=np.float64,
    )
    n, sx, sy, sxx, syy, sxy = bootstrap.sums(moments).T
    with np.errstate(invalid="ignore", divide="ignore"):
        sampled = (n * sxy - sx * sy) / np.sqrt((n * sxx - sx**2) * (n * syy - sy**2))
    scale = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    value = float((first * second).sum()) / scale if scale > 0 else math.nan
    sampled = np.where(np.isfinite(sampled), sampled, math.nan)
    return Agreement(
        one=one,
        other=other,
        spearman=bootstrap.interval(value, sampled, len(np.unique(problem))),
        num_candidates=len(x),
    )
