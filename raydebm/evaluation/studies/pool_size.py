"""How many candidates are worth it: the value of every way of choosing from n random candidates of a pool.

For the energy, random choice and the oracle this is the exact expectation over all subsets of n candidates; for votes
it is the mean over seeded random subsets. A pool that has fewer than n candidates is used whole.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats
from raydebm.evaluation.pools.stack import Ints, Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for

NUM_DRAWS = 32
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MU_ONLY = "mu only"
CANDIDATES = ("ours", MU_ONLY, "random", "oracle", "majority vote", "energy-weighted vote")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Expected value of a selection from n candidates, by selector."""

    n: int
    pass_at_1: dict[str, Estimate]
    violation: dict[str, Estimate]
    """Mean violation score; empty where the task has none."""


def pool_sizes(stack: Stack, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> tuple[PoolSize, ...]:
    """One row per size up to the largest pool."""
    largest = int(stack.sizes.max())
    sizes = [*(size for size in SIZES if size < largest), largest]
    ours = EnergyOrder.of(stack, lambda_)
    by_energy = {"ours": ours, MU_ONLY: EnergyOrder.of(stack, 0.0)} if stack.num_members else {}
    has_violations = not np.isnan(stack.violation).all()
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
        rows.append(
            PoolSize(
                n=size,
                pass_at_1={name: bootstrap.proportion(values[name]) for name in CANDIDATES if name in values},
                violation={name: bootstrap.mean(violation[name]) for name in CANDIDATES if name in violation},
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True, eq=False)
class EnergyOrder:
    """The candidates of each pool from the lowest energy to the highest."""

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
        """Expected share correct of the lowest of n random candidates, shape (P,); NaN without energies.

        Args:
            size: n, or the n of each problem.
        """
        if not self.stack.num_members:
            return np.full(len(self.columns), math.nan)
        return of_lowest(self.stack, self.columns, self.stack.correct, self.energy, size)

    def violation(self, size: int) -> Floats:
        """Expected violation score likewise; 1 where nothing can be selected."""
        return of_lowest(self.stack, self.columns, self.stack.violation, self.energy, size, nothing=1.0)


def best_first(stack: Stack, energy: Floats, ties: Floats) -> np.ndarray:
    """(P, N): columns from the lowest energy to the highest; ties as in selection, what cannot be selected last."""
    columns = np.broadcast_to(np.arange(energy.shape[1]), energy.shape)
    filled = np.where(stack.present, energy, math.inf)
    return np.lexsort((columns, np.where(np.isnan(ties), math.inf, ties), filled), axis=1)


@lru_cache(maxsize=4096)
def _first_of_subset(total: int, size: int) -> tuple[float, ...]:
    """For each rank of ``total``: probability that it is the lowest rank of a random subset of ``size``."""
    size = min(size, total)
    chances, left = [], 1.0
    for rank in range(total):
        # Given that no earlier rank is in the subset, this one is with probability size / (those left).
        chance = left * min(1.0, size / (total - rank))
        chances.append(chance)
        left = max(left - chance, 0.0)
    return tuple(chances)


def of_lowest(
    stack: Stack, orders: np.ndarray, values: Floats, energy: Floats, size: int | Ints, *, nothing: float = 0.0
) -> Floats:
    """Expected value of the lowest-energy candidate of n random ones, over those with a value, shape (P,).

    Where nothing can be selected it is ``nothing``, unless what was drawn has no value at all.

    Args:
        size: n, or the n of each problem, (P,); no value where it is 0.
    """
    found = np.full(len(orders), math.nan)
    sizes, drawn = stack.sizes, np.broadcast_to(size, len(orders))
    for row, order in enumerate(orders):
        ranked = order[: sizes[row]]
        chances = np.array(_first_of_subset(len(ranked), int(drawn[row])))
        usable = np.isfinite(energy[row, ranked])
        own = values[row, ranked]
        ranked_values = np.where(usable | np.isnan(own), own, nothing)
        known = ~np.isnan(ranked_values)
        mass = chances[known].sum()
        if mass > 1e-12:
            found[row] = float((chances[known] * ranked_values[known]).sum() / mass)
    return found


def of_oracle(stack: Stack, size: int) -> Floats:
    """Probability that n random labelled candidates contain a correct one, shape (P,)."""
    found = np.full(len(stack.pools), math.nan)
    for row, labels in enumerate(stack.correct):
        known = labels[~np.isnan(labels)]
        if len(known):
            found[row] = _at_least_one(len(known), int((known == 0).sum()), min(size, len(known)))
    return found


def _at_least_one(total: int, wrong: int, drawn: int) -> float:
    miss = 1.0
    for index in range(drawn):
        miss *= max(wrong - index, 0) / (total - index)
    return 1 - miss


def _vote_weights(energy: Floats) -> Floats:
    """exp(-E) relative to each pool's lowest; 0 where there is no energy."""
    lowest = energy.min(axis=1, keepdims=True)
    shifted = np.where(np.isfinite(lowest), energy - np.where(np.isfinite(lowest), lowest, 0.0), math.inf)
    weights: Floats = np.exp(-shifted)
    return weights


def of_votes(stack: Stack, weights: Floats | None, size: int, *, seed: int) -> tuple[Floats, Floats]:
    """(P,) for the plain and for the weighted vote: mean over random subsets; ties are shared between answers. NaN for
    the weighted one without weights."""
    plain, weighted = np.full((2, len(stack.pools)), math.nan)
    for row, total in enumerate(stack.sizes):
        answers, labels = stack.answer[row, :total], stack.correct[row, :total]
        if np.isnan(labels).all():
            continue
        worth = _worth_of_answers(answers, labels)
        if size >= total:
            drawn = np.arange(total)[None, :]
        else:
            generator = np.random.default_rng(seed_for(seed, stack.pools[row].problem.problem_id, size))
            drawn = np.argpartition(generator.random((NUM_DRAWS, total)), size, axis=1)[:, :size]
        known = np.asarray((~np.isnan(labels[drawn])).any(axis=1))
        plain[row] = _vote(answers[drawn], np.ones(drawn.shape), worth, known)
        if weights is not None:
            weighted[row] = _vote(answers[drawn], weights[row, :total][drawn], worth, known)
    return plain, weighted


def _worth_of_answers(answers: np.ndarray, labels: Floats) -> Floats:
    """Share correct among the labelled candidates of each answer; NaN without a label."""
    count = int(answers.max(initial=-1)) + 1
    known = (answers >= 0) & ~np.isnan(labels)
    right = np.bincount(answers[known], weights=labels[known], minlength=count)
    total = np.bincount(answers[known], minlength=count)
    worth: Floats = np.divide(right, total, where=total > 0, out=np.full(count, math.nan))
    return worth


def _vote(answers_DS: np.ndarray, weights_DS: Floats, worth: Floats, known_D: Bools) -> float:  # noqa: N803
    """Mean worth of the winners over D draws of S candidates; a draw without a vote answers nothing (0).

    Args:
        known_D: draws that have a label; without one it is not known that nothing was right.
    """
    num_draws, count = len(answers_DS), len(worth)
    if count == 0:
        return 0.0 if known_D.any() else math.nan
    votes = np.where(answers_DS >= 0, weights_DS, 0.0)
    places = np.where(answers_DS >= 0, answers_DS, 0) + count * np.arange(num_draws)[:, None]
    totals = np.bincount(places.ravel(), weights=votes.ravel(), minlength=num_draws * count).reshape(num_draws, count)
    top = totals.max(axis=1, keepdims=True)
    winners = (totals >= top * (1 - 1e-12)) & (top > 0)
    known = winners & ~np.isnan(worth)
    number = known.sum(axis=1)
    values = np.divide(
        np.where(known, np.nan_to_num(worth), 0.0).sum(axis=1),
        number,
        where=number > 0,
        out=np.full(num_draws, math.nan),
    )
    values[~winners.any(axis=1)] = 0.0
    values[~known_D] = math.nan
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else math.nan
