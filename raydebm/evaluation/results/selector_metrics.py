"""Metrics of the energies themselves: how well they order candidates, and whether sigma knows when they do not.

Every function gives one value per problem (NaN where it is not defined), to be averaged and bootstrapped over problems.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.rules import select
from raydebm.energy import total_energies
from raydebm.evaluation.certainty.uncertainty import NUM_RESAMPLES, Ranking, kept
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.records import ScoredCandidate


def pool_energies(pool: EvaluatedPool, lambda_: float) -> Floats:
    """E per candidate; NaN where it was not scored, else +inf where it did not parse."""
    return np.where(np.isnan(pool.mu), math.nan, total_energies(pool.mu, pool.penalty, lambda_))


def pair_accuracy(pool: EvaluatedPool, energies: Floats) -> float:
    """Share of (correct, incorrect) pairs in which the correct one has the lower energy; ties count half."""
    good, bad = _classes(pool, energies)
    if not (len(good) and len(bad)):
        return math.nan
    lower = good[:, None] < bad[None, :]
    equal = good[:, None] == bad[None, :]
    return float((lower + 0.5 * equal).mean())


def energy_gap(pool: EvaluatedPool, energies: Floats) -> float:
    """Mean energy of incorrect minus mean energy of correct candidates; positive is good."""
    good, bad = _classes(pool, energies)
    return float(bad.mean() - good.mean()) if len(good) and len(bad) else math.nan


def kendall_tau_b(pool: EvaluatedPool, energies: Floats) -> float:
    """Rank correlation (tau-b) of -energy with quality, in [-1, 1]; positive is good.

    Quality is minus the violation score where the task has one, else correctness. NaN when either is constant.
    """
    quality = pool.correct if np.isnan(pool.violation).all() else -pool.violation
    usable = pool.in_pool & ~np.isnan(quality) & ~np.isnan(energies)
    if not (_varies(quality[usable]) and _varies(energies[usable])):
        return math.nan
    # The definition on all pairs: for pools of this size many times faster than scipy's, which a test compares.
    ranks, wanted = -energies[usable], quality[usable]
    order_found = _signs(ranks)
    order_wanted = _signs(wanted)
    ties = math.sqrt(float(np.abs(order_found).sum()) * float(np.abs(order_wanted).sum()))
    return float((order_found * order_wanted).sum()) / ties


def _varies(values: Floats) -> bool:
    return bool((values != values[:1]).any())


def _signs(values: Floats) -> Floats:
    """Which of each two is larger: 1, -1, or 0 for a tie; compared, not subtracted, so that infinities tie."""
    larger = values[:, None] > values[None, :]
    return larger.astype(np.float64) - larger.T


def _classes(pool: EvaluatedPool, energies: Floats) -> tuple[Floats, Floats]:
    usable = pool.in_pool & ~np.isnan(energies)
    return energies[usable & (pool.correct == 1)], energies[usable & (pool.correct == 0)]


def pass_at_n_by_energy(pool: EvaluatedPool, lambda_: float, *, max_n: int) -> Floats:
    """For n = 1..max_n: 1 if one of the n lowest-energy candidates is correct, else 0. NaN without any label.

    Unlabeled candidates are left out of the order. Ties as in selection; what cannot be selected comes last. Beyond
    the pool's size the curve stays where it is.
    """
    labelled = pool.in_pool & ~np.isnan(pool.correct)
    if not labelled.any():
        return np.full(max_n, math.nan)
    rows = sorted(np.flatnonzero(labelled), key=lambda row: _order(pool.candidates[row], lambda_))
    found = np.maximum.accumulate(pool.correct[rows])
    return found[np.minimum(np.arange(max_n), len(found) - 1)]


def pass_at_n_by_chance(pool: EvaluatedPool, *, max_n: int) -> Floats:
    """For n = 1..max_n: probability that n random candidates contain a correct one, 1 - C(N-c, n) / C(N, n)."""
    labels = pool.correct[pool.in_pool]
    labels = labels[~np.isnan(labels)]
    if not len(labels):
        return np.full(max_n, math.nan)
    wrong, total = int((labels == 0).sum()), len(labels)
    values = []
    miss = 1.0
    for drawn in range(min(max_n, total)):
        miss *= max(wrong - drawn, 0) / (total - drawn)
        values.append(1 - miss)
    return np.array(values + [values[-1]] * (max_n - len(values)))


def _order(scored: ScoredCandidate, lambda_: float) -> tuple[float, float, str]:
    mu = math.inf if scored.energies is None else scored.energies.mu
    return (scored.total_energy(lambda_), mu, scored.candidate.candidate_id)


@dataclass(frozen=True, slots=True)
class Pick:
    """The energy minimiser of one pool."""

    mu: float
    sigma: float
    correct: float
    """1, 0, or NaN for unlabeled."""


def picks(pools: Sequence[EvaluatedPool], lambda_: float) -> list[Pick]:
    """What the energy selects per pool; NaN throughout where it can select nothing."""
    found = []
    for pool in pools:
        best = select(pool.candidates, lambda_)
        if best is None or best.energies is None:
            found.append(Pick(math.nan, math.nan, math.nan))
            continue
        row = [scored is best for scored in pool.candidates].index(True)
        found.append(Pick(best.energies.mu, best.energies.sigma, float(pool.correct[row])))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Accuracy when the most uncertain selections are left unanswered (paper, selective prediction)."""

    abstain_frac: float
    pass_at_1: Estimate


def selective_accuracy(
    found: Sequence[Pick], bootstrap: Bootstrap, *, fractions: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
) -> tuple[Retained, ...]:
    """Accuracy on the labelled selections that remain after dropping the share with the highest sigma.

    Of selections with equal sigma that the limit cuts through, their share counts. ``n`` is what remains.
    """
    sigma = np.array([pick.sigma for pick in found])
    correct = np.array([pick.correct for pick in found])
    known = ~(np.isnan(sigma) | np.isnan(correct))
    total = int(known.sum())
    if total == 0:
        return tuple(Retained(abstain_frac=fraction, pass_at_1=NOTHING) for fraction in fractions)
    ranking = Ranking.of(-sigma[known], correct[known])
    weights = np.vstack([np.ones((1, total)), bootstrap.counts[:NUM_RESAMPLES, known]])
    rows = []
    for fraction in fractions:
        values = ranking.accuracy_without(fraction, weights)
        answered = bootstrap.share(float(values[0]), values[1:], kept(fraction, total))
        rows.append(Retained(abstain_frac=fraction, pass_at_1=answered))
    return tuple(rows)


def sigma_auroc(found: Sequence[Pick], bootstrap: Bootstrap) -> Estimate:
    """AUROC of -sigma for "the selected candidate is correct": above 0.5, a low sigma signals a correct selection."""
    return bootstrap.auroc(-np.array([pick.sigma for pick in found]), np.array([pick.correct for pick in found]))
