"""Metrics of the energies themselves: how well they order candidates, and whether sigma knows when they do not.

Every function gives one value per problem, shape (P,), NaN where it is not defined, to be averaged and bootstrapped
over problems. Letters of shapes as in ``pools.stack``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.energy import total_energies
from raydebm.evaluation.certainty.signals import worth_of
from raydebm.evaluation.certainty.uncertainty import NUM_RESAMPLES, num_answered, risks
from raydebm.evaluation.pools.pool import Bools, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate

POOLS_AT_ONCE = 1024
"""Pools whose pairs are compared together, which bounds the memory."""


def pool_energies(stack: Stack, lambda_: float) -> Floats:
    """(P, N): E per candidate; NaN where it was not scored, else +inf where it did not parse."""
    mu = stack.mu()
    return np.where(np.isnan(mu), math.nan, total_energies(mu, stack.penalty, lambda_))


def energy_gaps(stack: Stack, energies: Floats) -> Floats:
    """Mean energy of incorrect minus mean energy of correct candidates; positive is good."""
    bad, good = (stack.mean_of(energies, stack.correct == label) for label in (0, 1))
    gaps: Floats = bad - good
    return gaps


def kendall_taus(stack: Stack, energies: Floats) -> Floats:
    """Rank correlation (tau-b) of -energy with quality, in [-1, 1]; positive is good.

    Quality is minus the violation score where the pool has one, else correctness. NaN when either is constant.
    """
    has_scores = (~np.isnan(stack.violation)).any(axis=1, keepdims=True)
    quality = np.where(has_scores, -stack.violation, stack.correct)
    usable = ~np.isnan(quality) & ~np.isnan(energies)
    # The definition on all pairs: for pools of this size many times faster than scipy's, which a test compares.
    parts = [slice(start, start + POOLS_AT_ONCE) for start in range(0, len(usable), POOLS_AT_ONCE)]
    sums = np.concatenate([_orders(-energies[part], quality[part], usable[part]) for part in parts])
    ties = np.sqrt(sums[:, 0] * sums[:, 1])
    taus: Floats = np.divide(sums[:, 2], ties, where=ties > 0, out=np.full(len(ties), math.nan))
    return taus


def _orders(given: Floats, wanted: Floats, usable: Bools) -> Floats:
    """(p, 3): over all ordered pairs of usable candidates, how many differ in ``given``, how many in ``wanted``, and
    how many more are ordered alike than the other way round."""
    both = usable[:, :, None] & usable[:, None, :]
    one, other = (_signs(values) * both for values in (given, wanted))
    return np.stack([np.abs(one).sum(axis=(1, 2)), np.abs(other).sum(axis=(1, 2)), (one * other).sum(axis=(1, 2))], 1)


def _signs(values: Floats) -> NDArray[np.int8]:
    """(p, N, N): which of each two is larger: 1, -1, or 0 for a tie; compared, not subtracted, so that infinities
    tie."""
    larger = (values[:, :, None] > values[:, None, :]).astype(np.int8)
    signs: NDArray[np.int8] = larger - larger.transpose(0, 2, 1)
    return signs


def pass_at_n_by_energy(stack: Stack, lambda_: float, *, max_n: int) -> Floats:
    """(P, max_n), for n = 1..max_n: 1 if one of the n lowest-energy candidates is correct, else 0. NaN without any
    label.

    Unlabeled candidates are left out of the order. Ties as in selection; what cannot be selected comes last. Beyond
    the pool's size the curve stays where it is.
    """
    labelled = ~np.isnan(stack.correct)
    mu = stack.mu()
    ties = np.where(np.isnan(mu), math.inf, mu)
    columns = np.broadcast_to(np.arange(mu.shape[1]), mu.shape)
    order = np.lexsort((columns, ties, stack.energy(mu, lambda_), ~labelled), axis=1)
    right = np.take_along_axis(stack.correct == 1, order, axis=1).astype(np.float64)
    curves = np.maximum.accumulate(right, axis=1)[:, np.minimum(np.arange(max_n), mu.shape[1] - 1)]
    return np.where(labelled.any(axis=1, keepdims=True), curves, math.nan)


def pass_at_n_by_chance(stack: Stack, *, max_n: int) -> Floats:
    """(P, max_n), for n = 1..max_n: probability that n random candidates contain a correct one,
    1 - C(N-c, n) / C(N, n); NaN without any label."""
    wrong, total = (stack.correct == 0).sum(axis=1), (~np.isnan(stack.correct)).sum(axis=1)
    miss, values = np.ones(len(total)), np.empty((len(total), max_n))
    for drawn in range(max_n):
        miss = np.where(drawn < total, miss * np.maximum(wrong - drawn, 0) / np.maximum(total - drawn, 1), miss)
        values[:, drawn] = 1 - miss
    return np.where(total[:, None] > 0, values, math.nan)


@dataclass(frozen=True, slots=True, eq=False)
class EnergyPicks:
    """The energy minimisers of the pools, (P,) each; NaN throughout where nothing can be selected."""

    mu: Floats
    sigma: Floats
    correct: Floats
    """1, 0, or NaN for unlabeled."""
    worth: Floats
    """1 - violation, or correct where the task has no violation scores."""


def picks(stack: Stack, lambda_: float) -> EnergyPicks:
    """What the energy selects in each pool."""
    picked = stack.select(lambda_)
    correct, violation = stack.at(stack.correct, picked), stack.at(stack.violation, picked)
    return EnergyPicks(
        stack.at(stack.mu(), picked), stack.at(stack.sigma(), picked), correct, worth_of(correct, violation)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What is left when the most uncertain selections are left unanswered (paper, selective prediction)."""

    abstain_frac: float
    pass_at_1: Estimate
    """Share correct, as the paper has it for every task."""
    worth: Estimate
    """1 - violation where the task has violation scores, else the share correct."""


def selective_accuracy(
    energy_picks: EnergyPicks, bootstrap: Bootstrap, *, fractions: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
) -> tuple[Retained, ...]:
    """Accuracy on the labelled selections that remain after dropping the share with the highest sigma.

    Of selections with equal sigma that the limit cuts through, their share counts. ``n`` is what remains.
    """
    columns = (
        _retained(energy_picks.sigma, right, bootstrap, fractions)
        for right in (energy_picks.correct, energy_picks.worth)
    )
    return tuple(
        Retained(abstain_frac=fraction, pass_at_1=correct, worth=worth)
        for fraction, correct, worth in zip(fractions, *columns, strict=True)
    )


def _retained(sigma: Floats, right: Floats, bootstrap: Bootstrap, fractions: Sequence[float]) -> list[Estimate]:
    known = ~(np.isnan(sigma) | np.isnan(right))
    total = int(known.sum())
    if total == 0:
        return [NOTHING for _ in fractions]
    weights = np.vstack([np.ones((1, total), dtype=np.uint8), bootstrap.counts[:NUM_RESAMPLES, known]])
    accuracy = 1 - risks(-sigma[known], right[known], weights, fractions)
    return [
        bootstrap.share(float(values[0]), values[1:], num_answered(fraction, total))
        for fraction, values in zip(fractions, accuracy.T, strict=True)
    ]


def sigma_auroc(energy_picks: EnergyPicks, bootstrap: Bootstrap) -> Estimate:
    """AUROC of -sigma for "the selected candidate is correct": above 0.5, a low sigma signals a correct selection."""
    return bootstrap.auroc(-energy_picks.sigma, energy_picks.correct)
