"""Metrics of the energies: their order of the candidates, and sigma as a signal of errors.

Every function returns one value per problem, shape (P,), NaN where undefined, to be averaged and bootstrapped over
problems. Shapes as in ``pools.stack``.
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
"""Number of pools whose pairs are compared at once, which limits memory."""


def pool_energies(stack: Stack, lambda_: float) -> Floats:
    """E per candidate, shape (P, N). NaN if not scored, else +inf if not parsed."""
    mu = stack.mu()
    return np.where(np.isnan(mu), math.nan, total_energies(mu, stack.penalty, lambda_))


def energy_gaps(stack: Stack, energies: Floats) -> Floats:
    """Mean energy of incorrect minus mean energy of correct candidates. Positive is good."""
    bad, good = (stack.mean_of(energies, stack.correct == label) for label in (0, 1))
    gaps: Floats = bad - good
    return gaps


def kendall_taus(stack: Stack, energies: Floats) -> Floats:
    """Rank correlation (tau-b) of -energy with quality, in [-1, 1]. Positive is good.

    Quality is minus the violation score if the pool has one, else correctness. NaN if either is constant.
    """
    has_scores = (~np.isnan(stack.violation)).any(axis=1, keepdims=True)
    quality = np.where(has_scores, -stack.violation, stack.correct)
    usable = ~np.isnan(quality) & ~np.isnan(energies)
    # Direct definition over all pairs. It is faster than scipy's for pools of this size; a test compares the two.
    parts = [slice(start, start + POOLS_AT_ONCE) for start in range(0, len(usable), POOLS_AT_ONCE)]
    sums = np.concatenate([_orders(-energies[part], quality[part], usable[part]) for part in parts])
    ties = np.sqrt(sums[:, 0] * sums[:, 1])
    taus: Floats = np.divide(sums[:, 2], ties, where=ties > 0, out=np.full(len(ties), math.nan))
    return taus


def _orders(given: Floats, wanted: Floats, usable: Bools) -> Floats:
    """Over all ordered pairs of usable candidates: number different in ``given``, number different in ``wanted``, and
    number concordant minus discordant. Shape (p, 3)."""
    both = usable[:, :, None] & usable[:, None, :]
    one, other = (_signs(values) * both for values in (given, wanted))
    return np.stack([np.abs(one).sum(axis=(1, 2)), np.abs(other).sum(axis=(1, 2)), (one * other).sum(axis=(1, 2))], 1)


def _signs(values: Floats) -> NDArray[np.int8]:
    """Order of each pair, shape (p, N, N): 1, -1, or 0 for a tie. Compared instead of subtracted, so that infinities
    tie."""
    larger = (values[:, :, None] > values[:, None, :]).astype(np.int8)
    signs: NDArray[np.int8] = larger - larger.transpose(0, 2, 1)
    return signs


def pass_at_n_by_energy(stack: Stack, lambda_: float, *, max_n: int) -> Floats:
    """1 if one of the n lowest-energy candidates is correct, else 0, for n = 1..max_n. Shape (P, max_n). NaN without
    labels.

    Unlabelled candidates are excluded from the order. Ties as in selection; unselectable candidates are last. Beyond
    the pool's size the value is constant.
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
    """Probability that n random candidates contain a correct one, 1 - C(N-c, n) / C(N, n), for n = 1..max_n. Shape (P,
    max_n). NaN without labels."""
    wrong, total = (stack.correct == 0).sum(axis=1), (~np.isnan(stack.correct)).sum(axis=1)
    miss, values = np.ones(len(total)), np.empty((len(total), max_n))
    for drawn in range(max_n):
        miss = np.where(drawn < total, miss * np.maximum(wrong - drawn, 0) / np.maximum(total - drawn, 1), miss)
        values[:, drawn] = 1 - miss
    return np.where(total[:, None] > 0, values, math.nan)


@dataclass(frozen=True, slots=True, eq=False)
class EnergyPicks:
    """Energy minimisers of the pools, shape (P,) each. NaN where nothing can be selected."""

    mu: Floats
    sigma: Floats
    correct: Floats
    """1, 0, or NaN for unlabeled."""
    worth: Floats
    """1 - violation, or correctness if the task has no violation scores."""


def picks(stack: Stack, lambda_: float) -> EnergyPicks:
    """Energy minimiser of each pool."""
    picked = stack.select(lambda_)
    correct, violation = stack.at(stack.correct, picked), stack.at(stack.violation, picked)
    return EnergyPicks(
        stack.at(stack.mu(), picked), stack.at(stack.sigma(), picked), correct, worth_of(correct, violation)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Results without the most uncertain selections (paper, selective prediction)."""

    abstain_frac: float
    pass_at_1: Estimate
    """Share correct, as in the paper for every task."""
    worth: Estimate
    """1 - violation if the task has violation scores, else the share correct."""


def selective_accuracy(
    energy_picks: EnergyPicks, bootstrap: Bootstrap, *, fractions: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
) -> tuple[Retained, ...]:
    """Accuracy on the labelled selections after dropping the share with the highest sigma.

    Equal sigmas at the cut-off count fractionally. ``n`` is the number of remaining problems.
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
    """AUROC of -sigma for "the selected candidate is correct". Above 0.5, a low sigma indicates a correct selection."""
    return bootstrap.auroc(-energy_picks.sigma, energy_picks.correct)
