"""Effects of the numbers of candidates and of adapters.

Values for n random candidates of a pool are exact expectations over all subsets. A pool with fewer than n candidates is
used whole. Values for K adapters are means over all subsets of K, or over ``MAX_SUBSETS`` random ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from raydebm.decision.table import Floats, PoolTable, ratio
from raydebm.evaluation.certainty.signals import NUM_RESAMPLES
from raydebm.evaluation.results.energy_metrics import (
    EnsembleTheory,
    ensemble_accuracy,
    pair_accuracies,
    pass_at_n_by_chance,
)
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import (
    MIN_PER_CLASS,
    NOTHING,
    Bootstrap,
    Estimate,
    fewest_of_a_class,
    known_mean,
    mean_of_known,
    weighted_auroc,
)
from raydebm.identity import seed_for

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MU_ONLY = "mu only"
CANDIDATES = (PAPER_RULE, MU_ONLY, "random", "oracle")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Expected value of a selection from n candidates, by selector."""

    n: int
    pass_at_1: dict[str, Estimate]
    violation: dict[str, Estimate]
    """Mean violation score by selector. Empty if the task has none."""


def pool_sizes(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> tuple[PoolSize, ...]:
    """One row per size up to the largest pool."""
    largest = int(pools.sizes.max())
    sizes = [*(size for size in SIZES if size < largest), largest]
    by_energy = {name: EnergyOrder.of(pools, weight) for name, weight in ((PAPER_RULE, lambda_), (MU_ONLY, 0.0))}
    by_energy = by_energy if pools.num_members else {}
    has_violations = pools.has_violations
    least = EnergyOrder(pools, pools.grid(pools.violation, math.inf), pools.grid(pools.violation))
    rows = []
    for size in sizes:
        values = {"random": pools.by_chance(), "oracle": pass_at_n_by_chance(pools, max_n=size)[:, -1]}
        values |= {name: order.expected(pools.correct, size, nothing=0.0) for name, order in by_energy.items()}
        violation: dict[str, Floats] = {}
        if has_violations:
            violation["random"] = pools.mean_of(pools.violation)
            violation["oracle"] = least.expected(pools.violation, size, nothing=math.nan)
            violation |= {name: order.expected(pools.violation, size, nothing=1.0) for name, order in by_energy.items()}
        shown = [name for name in CANDIDATES if name in values]
        rows.append(
            PoolSize(
                n=size,
                pass_at_1=dict(zip(shown, bootstrap.proportions([values[name] for name in shown]), strict=True)),
                violation={name: bootstrap.mean(violation[name]) for name in CANDIDATES if name in violation},
            )
        )
    return tuple(rows)


class EnergyOrder:
    """Candidates of each pool in order of energy. Unselectable ones are last."""

    def __init__(self, pools: PoolTable, energy: Floats, ties: Floats) -> None:
        """Order the rows by energy, shape (P, N), then by ``ties``, then by id."""
        self._pools = pools
        columns = np.broadcast_to(np.arange(energy.shape[1]), energy.shape)
        self._order = np.lexsort((columns, np.where(np.isnan(ties), math.inf, ties), energy), axis=1)
        self._usable = np.take_along_axis(np.isfinite(energy), self._order, axis=1)

    @classmethod
    def of(cls, pools: PoolTable, lambda_: float) -> "EnergyOrder":
        """Order by mu + lambda E_constraint."""
        return cls(pools, pools.grid(pools.energy(lambda_), math.inf), pools.grid(pools.mu))

    def expected(self, values: Floats, size: int, *, nothing: float) -> Floats:
        """Expected value of the first of ``size`` random candidates in this order, shape (P,).

        An unselectable candidate has the value ``nothing``. Subsets whose first candidate has no value are excluded.
        """
        own = np.take_along_axis(self._pools.grid(values), self._order, axis=1)
        ranked = np.where(self._usable | np.isnan(own), own, nothing)
        chances = np.zeros(own.shape)
        for count in np.unique(self._pools.sizes).tolist():
            chances[self._pools.sizes == count, :count] = _first_of_subset(count, size)
        known = ~np.isnan(ranked)
        mass = np.where(known, chances, 0.0).sum(axis=1)
        total = np.where(known, chances * ranked, 0.0).sum(axis=1)
        return ratio(total, np.where(mass > 1e-12, mass, 0.0))


def _first_of_subset(total: int, size: int) -> tuple[float, ...]:
    """Probability, for each rank of ``total``, that it is the lowest rank of a random subset of ``size``."""
    size = min(size, total)
    chances, left = [], 1.0
    for rank in range(total):
        # If no earlier rank is in the subset, this one is in it with probability size / (ranks left).
        chance = left * min(1.0, size / (total - rank))
        chances.append(chance)
        left = max(left - chance, 0.0)
    return tuple(chances)


MAX_SUBSETS = 40
"""Maximum number of subsets of one size. Beyond it, a random sample is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSize:
    """Means over subsets of K adapters. Selection by E, or by mu in fields that begin with ``mu_``."""

    num_adapters: int
    num_subsets: int
    num_possible: int
    pass_at_1: Estimate
    worst: float | None
    best: float | None
    pair_accuracy: Estimate
    predicted_pair_accuracy: float | None
    """P(K, q, rho) with q and rho of the whole ensemble."""
    sigma_auroc: Estimate
    """No value with one adapter, which has no spread."""
    mean_violation: Estimate
    mu_pass_at_1: Estimate
    mu_sigma_auroc: Estimate
    mu_mean_violation: Estimate


def ensemble_sizes(
    pools: PoolTable,
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    seed: int,
    theory: EnsembleTheory | None,
    trained: PoolTable | None = None,
) -> tuple[EnsembleSize, ...]:
    """One row per K. Empty without energies.

    Args:
        trained: The same pools with the labels used in training, for the pairs and their theory.
            Default: ``pools``.
    """
    pairs_of = pools if trained is None else trained
    q, rho = (None, None) if theory is None else (theory.q.value, theory.rho.value)
    rows = []
    for size in range(1, pools.num_members + 1):
        chosen = subsets(pools.num_members, size, seed=seed)
        parts = [pools.of_adapters(subset) for subset in chosen]
        by_energy, by_mu = (_selections(parts, weight, bootstrap) for weight in (lambda_, 0.0))
        accuracies = [pair_accuracies(pairs_of, pairs_of.of_adapters(subset).mu) for subset in chosen]
        shares = [share for values in by_energy.correct if (share := known_mean(values)) is not None]
        rows.append(
            EnsembleSize(
                num_adapters=size,
                num_subsets=len(chosen),
                num_possible=comb(pools.num_members, size),
                pass_at_1=bootstrap.proportion(mean_of_known(by_energy.correct)),
                worst=min(shares, default=None),
                best=max(shares, default=None),
                pair_accuracy=bootstrap.proportion(mean_of_known(np.stack(accuracies))),
                predicted_pair_accuracy=None if q is None or rho is None else ensemble_accuracy(size, q, rho),
                sigma_auroc=by_energy.sigma_auroc,
                mean_violation=by_energy.mean_violation,
                mu_pass_at_1=bootstrap.proportion(mean_of_known(by_mu.correct)),
                mu_sigma_auroc=by_mu.sigma_auroc,
                mu_mean_violation=by_mu.mean_violation,
            )
        )
    return tuple(rows)


def subsets(total: int, size: int, *, seed: int) -> list[tuple[int, ...]]:
    """All subsets, or ``MAX_SUBSETS`` distinct random ones if there are more."""
    if comb(total, size) <= MAX_SUBSETS:
        return list(combinations(range(total), size))
    generator = np.random.default_rng(seed_for(seed, "adapters", total, size))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < MAX_SUBSETS:
        drawn[tuple(sorted(int(index) for index in generator.choice(total, size=size, replace=False)))] = None
    return list(drawn)


class _Selections(NamedTuple):
    correct: Floats
    """Correctness by subset of adapters, shape (S, P)."""
    mean_violation: Estimate
    sigma_auroc: Estimate
    """Mean AUROC of -sigma over the subsets, with shared resamples."""


def _selections(parts: Sequence[PoolTable], lambda_: float, bootstrap: Bootstrap) -> _Selections:
    picks = [part.select(lambda_) for part in parts]
    correct, violation = (
        np.stack([values_at(part, picked) for part, picked in zip(parts, picks, strict=True)])
        for values_at in (PoolTable.correct_at, PoolTable.violation_at)
    )
    weights = bootstrap.first(NUM_RESAMPLES).weights
    sampled, n, fewest = list[Floats](), 0, MIN_PER_CLASS
    for part, picked, right in zip(parts, picks, correct, strict=True):
        certainty = -part.at(part.sigma, picked)
        known = ~(np.isnan(certainty) | np.isnan(right))
        if part.num_members > 1 and known.any():
            n, fewest = max(n, int(known.sum())), min(fewest, fewest_of_a_class(right[known]))
            sampled.append(weighted_auroc(certainty, right, weights))
    return _Selections(
        correct=correct,
        mean_violation=bootstrap.mean(mean_of_known(violation)),
        sigma_auroc=bootstrap.auroc_interval(np.mean(sampled, axis=0), n, fewest=fewest) if sampled else NOTHING,
    )
