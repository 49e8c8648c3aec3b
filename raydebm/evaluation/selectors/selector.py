"""Selector: a way to choose one candidate of each pool, with shared steps and the value of its choices.

Shapes as in ``decision.table``: P pools, R rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.decision.groups import Bools, Floats, Ints, ratio
from raydebm.decision.table import PoolTable
from raydebm.extensions import load_extensions

SINGLE_SHOT = "single-shot "
"""Name prefix of a model that answers once per problem and is not part of the pool."""
BEST_GENERATOR = "best generator"
"""Name of the row of the best generator on labelled problems outside the test split."""


Group = Literal["baseline", "generator", "external", "adapter", "ablation", "decision", "ours", "bound"]


Weights = Callable[[PoolTable], Floats]
"""Pools -> probability of each row, shape (R,). A pool's sum to 1, or to 0 if the rule cannot choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    name: str
    """Name in tables, unique within a report."""
    group: Group
    """Group of its row. Use ``baseline`` for a new selector."""
    description: str
    """Description of the choice and its tie-breaking."""
    weights: Weights
    partial_cover: bool = False
    """Whether the rule needs data that a problem may lack (a generator's candidates, a judge's scores). Problems where
    it cannot choose are then excluded; for other rules they count as no answer."""
    is_greedy: bool = False
    """Whether it chooses among the samples at temperature 0, which are not part of the pool. ``weights`` is then called
    with ``PoolTable.greedy``."""
    energies: float = 0.0
    """Share of the ensemble that scores every candidate for this selector, for its cost: 1 if it reads mu, sigma or E,
    1 / K if it reads one adapter of K."""
    scores: tuple[str, ...] = ()
    """Outside scorers (``PoolTable.scores``) that score every candidate for this selector, for its cost."""

    def choices(self, pools: PoolTable) -> tuple[PoolTable, Floats]:
        """Candidates to choose from, and the probability of each."""
        among = pools.greedy if self.is_greedy and pools.greedy is not None else pools
        return among, self.weights(among)


Family = Callable[[PoolTable, PoolTable], Sequence[Selector]]
"""(pools to evaluate, validation pools to fit on, may be empty) -> selectors."""
_ADDED: list[Family] = []


def add_selectors(family: Family) -> Family:
    """Decorator that adds a function's selectors to every report (docs/tutorials/a_selector.md)."""
    _ADDED.append(family)
    return family


def added_selectors(pools: PoolTable, validation: PoolTable) -> list[Selector]:
    """Selectors added by user modules."""
    load_extensions()
    return [selector for family in _ADDED for selector in family(pools, validation)]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Expected values of a selector's choices."""

    correct: Floats
    """Correctness in [0, 1], shape (P,). NaN if the choice is unlabelled."""
    violation: Floats
    """Violation in [0, 1], shape (P,), lower is better. NaN if unlabelled or without violation scores."""


def values_of(selector: Selector, pools: PoolTable) -> Values:
    """Expected labels of the choices.

    Unlabelled candidates are excluded, never counted as incorrect: probability is over the labelled ones. A rule that
    could not choose has worth 0 and violation 1, unless the pool has no label or the rule has ``partial_cover``.
    """
    among, weights = selector.choices(pools)
    chosen = among.total(weights) > 0
    correct, violation = expected(among, weights, among.correct), expected(among, weights, among.violation)
    if selector.partial_cover:
        return Values(correct, violation)
    return Values(
        np.where(chosen, correct, pools.correct_of_nothing()), np.where(chosen, violation, pools.violation_of_nothing())
    )


def expected(pools: PoolTable, weights: Floats, values: Floats) -> Floats:
    """Weighted mean over rows with a value, shape (P,). NaN if their weight is 0."""
    known = ~np.isnan(values)
    return ratio(pools.total(np.where(known, weights * values, 0.0)), pools.total(np.where(known, weights, 0.0)))


def uniform(pools: PoolTable, rows: Bools) -> Floats:
    """Equal probability over these rows of each pool, shape (R,). All zeros in a pool without any."""
    return np.where(rows, 1 / np.maximum(pools.count(rows), 1)[pools.pool_of_row], 0.0)


def lowest(pools: PoolTable, values: Floats, rows: Bools | None = None) -> Floats:
    """Equal probability over each pool's minima of ``values`` within ``rows`` (default: all), shape (R,).

    NaN and +inf are never chosen.
    """
    usable = np.isfinite(values) if rows is None else rows & np.isfinite(values)
    filled = np.where(usable, values, math.inf)
    return uniform(pools, usable & (filled == pools.least(filled)[pools.pool_of_row]))


def one_hot(pools: PoolTable, picked: Ints) -> Floats:
    """Probability 1 at each pool's picked row, shape (R,). All zeros for -1."""
    weights = np.zeros(len(pools.candidates))
    weights[picked[picked >= 0]] = 1.0
    return weights


def vote(pools: PoolTable, votes: Floats) -> Floats:
    """Equal probability over the answers with the most votes, then over each answer's candidates. Shape (R,).

    Within an answer, labelled candidates are used if there are any, so that unlabelled ones do not reduce its
    probability.

    Args:
        votes: Votes >= 0, shape (R,). Values of candidates without an answer are ignored.
    """
    totals, owner = pools.by_cluster(votes), pools.pool_of_cluster
    top = np.zeros(pools.num_pools)
    np.maximum.at(top, owner, totals)
    # Sums of floats in another order differ in the last digits; this must not break a tie.
    winners = (totals >= top[owner] * (1 - 1e-12)) & (top[owner] > 0)
    labelled = ~np.isnan(pools.correct)
    is_unlabelled = pools.by_cluster(labelled) == 0
    rows = pools.of_cluster(winners, False) & (labelled | pools.of_cluster(is_unlabelled, False))
    num_winners = np.bincount(owner, winners, pools.num_pools)[owner]
    shared = pools.of_cluster(num_winners * pools.by_cluster(rows), math.nan)
    weights: Floats = np.divide(1.0, shared, where=rows, out=np.zeros(len(rows)))
    return weights
