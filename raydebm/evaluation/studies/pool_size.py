"""Effect of the number of candidates: value of every selector on n random candidates of a pool.

For the energy, random choice and the oracle this is the exact expectation over all subsets of n candidates; for votes
it is the mean over seeded random subsets. A pool with fewer than n candidates is used whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.pools.pool import Bools, Floats, Ints
from raydebm.evaluation.pools.stack import Stack, sum_by_answer
from raydebm.evaluation.results.selector_metrics import pass_at_n_by_chance
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, mean_of_known, on_all_cpus
from raydebm.identity import seed_for

NUM_DRAWS = 32
POOLS_AT_ONCE = 512
"""Number of pools whose subsets are counted at once, which limits memory."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MU_ONLY = "mu only"
CANDIDATES = ("ours", MU_ONLY, "random", "oracle", "majority vote", "energy-weighted vote")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Expected value of a selection from n candidates, by selector."""

    n: int
    pass_at_1: dict[str, Estimate]
    violation: dict[str, Estimate]
    """Mean violation score by selector. Empty if the task has none."""


def pool_sizes(stack: Stack, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> tuple[PoolSize, ...]:
    """One row per size up to the largest pool."""
    largest = int(stack.sizes.max())
    sizes = [*(size for size in SIZES if size < largest), largest]
    ours = EnergyOrder.of(stack, lambda_)
    by_energy = {"ours": ours, MU_ONLY: EnergyOrder.of(stack, 0.0)} if stack.num_members else {}
    has_violations = stack.has_violations
    least = best_first(stack, stack.violation, stack.violation)
    weights = _vote_weights(ours.energy)
    rows = []
    for size in sizes:
        values = {"random": stack.by_chance(), "oracle": of_oracle(stack, size)}
        values |= {name: order.correct(size) for name, order in by_energy.items()}
        violation: dict[str, Floats] = {}
        if has_violations:
            violation["random"] = stack.violation_by_chance()
            violation["oracle"] = of_lowest(stack, least, stack.violation, stack.violation, size, nothing=math.nan)
            violation |= {name: order.violation(size) for name, order in by_energy.items()}
        if (stack.answer >= 0).any():
            values["majority vote"], weighted = of_votes(stack, weights, size, seed=seed)
            if stack.num_members:
                values["energy-weighted vote"] = weighted
        shown = [name for name in CANDIDATES if name in values]
        rows.append(
            PoolSize(
                n=size,
                pass_at_1=dict(zip(shown, bootstrap.proportions([values[name] for name in shown]), strict=True)),
                violation={name: bootstrap.mean(violation[name]) for name in CANDIDATES if name in violation},
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True, eq=False)
class EnergyOrder:
    """Candidates of each pool in order of energy."""

    stack: Stack
    energy: Floats
    columns: np.ndarray
    """Shape (P, N)."""

    @classmethod
    def of(cls, stack: Stack, lambda_: float) -> "EnergyOrder":
        """Rank by mu + lambda E_constraint."""
        mu = stack.mu()
        energy = stack.energy(mu, lambda_)
        return cls(stack, energy, best_first(stack, energy, mu))

    def correct(self, size: int | Ints) -> Floats:
        """Expected share correct of the lowest of n random candidates, shape (P,). NaN without energies.

        Args:
            size: n, or n by problem.
        """
        if not self.stack.num_members:
            return np.full(len(self.columns), math.nan)
        return of_lowest(self.stack, self.columns, self.stack.correct, self.energy, size)

    def violation(self, size: int) -> Floats:
        """Expected violation score of the lowest of n random candidates. 1 if nothing can be selected."""
        return of_lowest(self.stack, self.columns, self.stack.violation, self.energy, size, nothing=1.0)


def best_first(stack: Stack, energy: Floats, ties: Floats) -> np.ndarray:
    """Columns in order of energy, shape (P, N). Ties as in selection; unselectable candidates are last."""
    columns = np.broadcast_to(np.arange(energy.shape[1]), energy.shape)
    filled = np.where(stack.present, energy, math.inf)
    return np.lexsort((columns, np.where(np.isnan(ties), math.inf, ties), filled), axis=1)


@lru_cache(maxsize=4096)
def _first_of_subset(total: int, size: int) -> tuple[float, ...]:
    """Probability, for each rank of ``total``, that it is the lowest rank of a random subset of ``size``."""
    size = min(size, total)
    chances, left = [], 1.0
    for rank in range(total):
        # If no earlier rank is in the subset, this one is with probability size / (ranks left).
        chance = left * min(1.0, size / (total - rank))
        chances.append(chance)
        left = max(left - chance, 0.0)
    return tuple(chances)


def _chances(totals: Ints, sizes: Ints, width: int) -> Floats:
    """``_first_of_subset`` of each pool, 0 beyond its candidates, shape (P, N)."""
    distinct, place = np.unique(np.stack([totals, sizes], axis=1), axis=0, return_inverse=True)
    table = np.zeros((len(distinct), width))
    for row, (total, size) in enumerate(distinct.tolist()):
        table[row, :total] = _first_of_subset(total, size)
    return table[place.ravel()]


def of_lowest(
    stack: Stack, orders: np.ndarray, values: Floats, energy: Floats, size: int | Ints, *, nothing: float = 0.0
) -> Floats:
    """Expected value of the lowest-energy candidate of n random ones, over those with a value, shape (P,).

    If nothing can be selected it is ``nothing``, unless the subset has no value at all.

    Args:
        size: n, or n by problem, shape (P,). No value for 0.
    """
    own = np.take_along_axis(values, orders, axis=1)
    usable = np.isfinite(np.take_along_axis(energy, orders, axis=1))
    ranked = np.where(usable | np.isnan(own), own, nothing)
    chances = _chances(stack.sizes, np.broadcast_to(size, len(orders)), orders.shape[1])
    known = ~np.isnan(ranked)
    mass = np.where(known, chances, 0.0).sum(axis=1)
    total = np.where(known, chances * ranked, 0.0).sum(axis=1)
    expected: Floats = np.divide(total, mass, where=mass > 1e-12, out=np.full(len(mass), math.nan))
    return expected


def of_oracle(stack: Stack, size: int) -> Floats:
    """Probability that n random labelled candidates contain a correct one, shape (P,)."""
    return pass_at_n_by_chance(stack, max_n=size)[:, -1]


def _vote_weights(energy: Floats) -> Floats:
    """exp(-E) relative to each pool's lowest. 0 without an energy."""
    lowest = energy.min(axis=1, keepdims=True)
    shifted = np.where(np.isfinite(lowest), energy - np.where(np.isfinite(lowest), lowest, 0.0), math.inf)
    weights: Floats = np.exp(-shifted)
    return weights


def of_votes(stack: Stack, weights: Floats | None, size: int, *, seed: int) -> tuple[Floats, Floats]:
    """Value of the plain and of the weighted vote, shape (P,) each: mean over random subsets, with ties shared between
    answers. NaN for the weighted vote without weights."""
    plain, weighted = np.full((2, len(stack.problems)), math.nan)
    sizes, worth = stack.sizes, _worth_of_answers(stack)
    for rows in _parts(np.flatnonzero(stack.labelled & (sizes <= size))):
        drawn = np.broadcast_to(np.arange(stack.answer.shape[1]), (len(rows), 1, stack.answer.shape[1]))
        plain[rows], weighted[rows] = _votes(stack, rows, drawn, weights, worth)

    def of_subsets(rows: Ints) -> tuple[Floats, Floats]:
        drawn = _drawn([stack.problems[row].problem_id for row in rows], sizes[rows], size, seed)
        return _votes(stack, rows, drawn, weights, worth)

    parts = _parts(np.flatnonzero(stack.labelled & (sizes > size)))
    for rows, values in zip(parts, on_all_cpus(of_subsets, parts), strict=True):
        plain[rows], weighted[rows] = values
    return plain, weighted


def _parts(rows: Ints) -> list[Ints]:
    return [rows[start : start + POOLS_AT_ONCE] for start in range(0, len(rows), POOLS_AT_ONCE)]


def _drawn(problem_ids: Sequence[str], totals: Ints, size: int, seed: int) -> Ints:
    """Columns of random subsets of pools, seeded by their problems, shape (p, NUM_DRAWS, size).

    Args:
        totals: Candidates of each pool, more than ``size``, shape (p,).
    """
    drawn = np.empty((len(totals), NUM_DRAWS, size), dtype=np.intp)
    for total in np.unique(totals).tolist():
        rows = np.flatnonzero(totals == total)
        keys = np.empty((len(rows), NUM_DRAWS, total))
        for own, row in zip(keys, rows.tolist(), strict=True):
            np.random.default_rng(seed_for(seed, problem_ids[row], size)).random(out=own)
        drawn[rows] = keys.argpartition(size, axis=2)[:, :, :size]
    return drawn


def _worth_of_answers(stack: Stack) -> Floats:
    """Share correct among the labelled candidates of each answer, shape (P, C). NaN without labels."""
    known = ~np.isnan(stack.correct)
    total = stack.by_answer(known)
    right = stack.by_answer(stack.correct == 1)
    worth: Floats = np.divide(right, total, where=total > 0, out=np.full(total.shape, math.nan))
    return worth


def _votes(stack: Stack, rows: Ints, drawn: Ints, weights: Floats | None, worth: Floats) -> tuple[Floats, Floats]:
    """Value of the plain and of the weighted vote for some pools, shape (p,) each, over D subsets of S columns, shape
    (p, D, S)."""
    places = (np.arange(len(rows)) * stack.answer.shape[1])[:, None, None] + drawn

    def at(values: NDArray[Any]) -> NDArray[Any]:
        at_places: NDArray[Any] = values[rows].reshape(-1).take(places)  # one index is faster than two
        return at_places

    answers, known, worth = at(stack.answer), (~np.isnan(at(stack.correct))).any(axis=2), worth[rows]
    plain = _mean_of_draws(_vote(answers, np.ones(answers.shape), worth, known))
    if weights is None:
        return plain, np.full(len(rows), math.nan)
    return plain, _mean_of_draws(_vote(answers, at(weights), worth, known))


def _vote(answers: Ints, weights: Floats, worth: Floats, known: Bools) -> Floats:
    """Mean worth of the winners of each subset of S candidates, shape (p, D). A subset without a vote has 0.

    Args:
        answers: Answers, shape (p, D, S). -1 without one.
        weights: Weights of the votes, shape (p, D, S).
        worth: Worth of each answer, shape (p, C).
        known: Subsets with a label, shape (p, D). Without one, it is unknown whether an answer was right.
    """
    num_pools, num_draws, size = answers.shape
    by_answer = sum_by_answer(answers.reshape(-1, size), weights.reshape(-1, size))
    totals = np.zeros((num_pools, num_draws, worth.shape[1]))
    totals[:, :, : by_answer.shape[1]] = by_answer.reshape(num_pools, num_draws, -1)
    top = totals.max(axis=2, keepdims=True)
    winners = (totals >= top * (1 - 1e-12)) & (top > 0)
    valued = winners & ~np.isnan(worth)[:, None]
    number = valued.sum(axis=2)
    sums = np.where(valued, worth[:, None], 0.0).sum(axis=2)
    values = np.divide(sums, number, where=number > 0, out=np.full(sums.shape, math.nan))
    return np.where(known, np.where(winners.any(axis=2), values, 0.0), math.nan)


def _mean_of_draws(values: Floats) -> Floats:
    """Mean of values that are not NaN, shapes (p, D) -> (p,)."""
    return mean_of_known(values.T)
