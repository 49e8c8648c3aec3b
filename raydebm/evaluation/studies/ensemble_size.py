"""Effect of the number of adapters: all subsets of the ensemble's adapters, by size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np

from raydebm.decision.groups import Floats, Ints
from raydebm.decision.table import PoolTable
from raydebm.evaluation.certainty.signals import NUM_RESAMPLES
from raydebm.evaluation.results.energy_metrics import pair_accuracies
from raydebm.evaluation.results.theory import EnsembleTheory, ensemble_accuracy
from raydebm.evaluation.stats.intervals import (
    MIN_PER_CLASS,
    NOTHING,
    Bootstrap,
    Estimate,
    fewest_of_a_class,
    weighted_auroc,
)
from raydebm.identity import seed_for

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
    """pass@1 of the worst subset."""
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
    rows = []
    for size in range(1, pools.num_members + 1):
        chosen = subsets(pools.num_members, size, seed=seed)
        row = _size(pools, size, chosen, lambda_=lambda_, bootstrap=bootstrap)
        accuracies = [pair_accuracies(pairs_of, pairs_of.of_adapters(subset).mu) for subset in chosen]
        rows.append(
            replace(
                row,
                pair_accuracy=bootstrap.proportion(_mean(accuracies)),
                predicted_pair_accuracy=_predicted(size, theory),
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


def _size(
    pools: PoolTable, size: int, chosen: Sequence[tuple[int, ...]], *, lambda_: float, bootstrap: Bootstrap
) -> EnsembleSize:
    """Results of the selections. The caller adds the results of pairs."""
    parts = [pools.of_adapters(subset) for subset in chosen]
    picks, by_mu = ([part.select(weight) for part in parts] for weight in (lambda_, 0.0))
    correct = [pools.correct_at(picked) for picked in picks]
    correct_by_mu = [pools.correct_at(picked) for picked in by_mu]
    shares = [float(np.nanmean(values)) for values in correct if not np.isnan(values).all()]
    return EnsembleSize(
        num_adapters=size,
        num_subsets=len(chosen),
        num_possible=comb(pools.num_members, size),
        pass_at_1=bootstrap.proportion(_mean(correct)),
        worst=min(shares, default=None),
        best=max(shares, default=None),
        pair_accuracy=NOTHING,
        predicted_pair_accuracy=None,
        sigma_auroc=_sigma_auroc(parts, picks, correct, bootstrap),
        mean_violation=bootstrap.mean(_mean([pools.violation_at(picked) for picked in picks])),
        mu_pass_at_1=bootstrap.proportion(_mean(correct_by_mu)),
        mu_sigma_auroc=_sigma_auroc(parts, by_mu, correct_by_mu, bootstrap),
        mu_mean_violation=bootstrap.mean(_mean([pools.violation_at(picked) for picked in by_mu])),
    )


def _predicted(size: int, theory: EnsembleTheory | None) -> float | None:
    if theory is None or theory.q.value is None or theory.rho.value is None:
        return None
    return ensemble_accuracy(size, theory.q.value, theory.rho.value)


def _mean(columns: Sequence[Floats]) -> Floats:
    """Mean over subsets per problem. NaN if no subset has a value."""
    table = np.stack(columns)
    count = (~np.isnan(table)).sum(axis=0)
    total = np.nansum(table, axis=0)
    mean: Floats = np.divide(total, count, where=count > 0, out=np.full(table.shape[1], math.nan))
    return mean


def _sigma_auroc(
    parts: Sequence[PoolTable], picks: Sequence[Ints], correct: Sequence[Floats], bootstrap: Bootstrap
) -> Estimate:
    if parts[0].num_members == 1:
        return NOTHING
    sigmas = [-part.at(part.sigma, picked) for part, picked in zip(parts, picks, strict=True)]
    return _auroc(sigmas, correct, bootstrap)


def _auroc(certainties: Sequence[Floats], correct: Sequence[Floats], bootstrap: Bootstrap) -> Estimate:
    """Mean AUROC over the subsets, with shared resamples."""
    counts = bootstrap.counts[:NUM_RESAMPLES]
    values, sampled, n, fewest = [], [], 0, MIN_PER_CLASS
    for certainty, right in zip(certainties, correct, strict=True):
        known = ~(np.isnan(certainty) | np.isnan(right))
        if known.any():
            n, fewest = max(n, int(known.sum())), min(fewest, fewest_of_a_class(right[known]))
            weights = np.vstack([np.ones((1, int(known.sum())), dtype=np.uint8), counts[:, known]])
            value, *samples = weighted_auroc(certainty[known], right[known], weights)
            values.append(float(value))
            sampled.append(samples)
    if not values:
        return NOTHING
    sampled_mean = np.mean(np.stack(sampled), axis=0)
    return bootstrap.auroc_interval(float(np.mean(values)), sampled_mean, n, fewest=fewest)
