"""Ensemble ranking under correlated adapters (paper Proposition 1, Eq. condorcet), and its parameters from pools.

V_k says whether adapter k gives the correct one of a (correct, incorrect) pair the strictly lower energy. q is its
mean over pairs and adapters, rho the mean correlation of V_j and V_k over pairs. Pairs are within a problem; problems
weigh equally, so one with many pairs does not dominate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate


def ensemble_accuracy(num_adapters: float, q: float, rho: float) -> float:
    """P(K, q, rho): probability that the ensemble mean ranks a pair correctly; K may be ``math.inf`` for the ceiling.

    A Gaussian approximation of a majority of correlated votes, meant for K >= 5 and rho >= 0.

    Raises:
        ValueError: q outside [0, 1], rho outside [-1, 1], or K below 1.
    """
    if not (0 <= q <= 1 and -1 <= rho <= 1 and num_adapters >= 1):
        raise ValueError(f"need K >= 1, 0 <= q <= 1 and -1 <= rho <= 1, got K={num_adapters}, q={q}, rho={rho}")
    if q == 0.5:
        return 0.5
    # Divided through by K: the variance of the mean vote, whose limit for K -> inf is q (1 - q) rho.
    share = 0.0 if math.isinf(num_adapters) else 1 / num_adapters
    variance = q * (1 - q) * (share + (1 - share) * rho)
    if variance <= 0:
        return float(q > 0.5)
    return float(ndtr((q - 0.5) / math.sqrt(variance)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleTheory:
    """Measured q and rho, what the proposition makes of them, and what was measured."""

    num_adapters: int
    q: Estimate
    """Mean share of pairs that one adapter ranks correctly."""
    rho: Estimate
    """Mean pairwise correlation; no value with one adapter, or when an adapter ranks every pair the same way."""
    predicted: float | None
    """P(K, q, rho)."""
    ceiling: float | None
    """Its limit for K -> inf."""
    measured: Estimate
    """Share of pairs that the ensemble mean ranks correctly."""
    num_pairs: int


def ensemble_theory(pools: Sequence[EvaluatedPool], bootstrap: Bootstrap) -> EnsembleTheory | None:
    """Estimates from scored, labelled pools; None when no pool has both a correct and an incorrect scored candidate."""
    num_adapters = max((pool.members.shape[1] for pool in pools), default=0)
    if num_adapters == 0:
        return None
    rows = [_moments(pool, num_adapters) for pool in pools]
    num_pairs = sum(count for _, count in rows)
    if num_pairs == 0:
        return None
    table = np.stack([moments for moments, _ in rows])
    known = ~np.isnan(table[:, 0])
    averages = np.nanmean(table[known], axis=0, keepdims=True)
    weights = bootstrap.counts[:, known]
    totals = weights.sum(axis=1, keepdims=True)
    sampled = np.divide(
        weights @ table[known], totals, where=totals > 0, out=np.full((len(weights), table.shape[1]), np.nan)
    )
    n = int(known.sum())
    q, rho = _q(averages, num_adapters), _rho(averages, num_adapters)
    rho_value = float(rho[0])
    return EnsembleTheory(
        num_adapters=num_adapters,
        q=bootstrap.interval(float(q[0]), _q(sampled, num_adapters), n),
        rho=bootstrap.interval(rho_value, _rho(sampled, num_adapters), n),
        predicted=None if math.isnan(rho_value) else ensemble_accuracy(num_adapters, float(q[0]), rho_value),
        ceiling=None if math.isnan(rho_value) else ensemble_accuracy(math.inf, float(q[0]), rho_value),
        measured=bootstrap.interval(float(averages[0, -1]), sampled[:, -1], n),
        num_pairs=num_pairs,
    )


def _moments(pool: EvaluatedPool, num_adapters: int) -> tuple[Floats, int]:
    """Over a problem's pairs: mean V_k (K), mean V_j V_k (K * K), mean indicator of mu (1); and the number of pairs."""
    width = num_adapters + num_adapters**2 + 1
    usable = pool.in_pool & ~np.isnan(pool.correct)
    if pool.members.shape[1] != num_adapters:
        return np.full(width, math.nan), 0
    usable &= ~np.isnan(pool.members).any(axis=1)
    good, bad = usable & (pool.correct == 1), usable & (pool.correct == 0)
    if not (good.any() and bad.any()):
        return np.full(width, math.nan), 0
    votes = (pool.members[good][:, None, :] < pool.members[bad][None, :, :]).reshape(-1, num_adapters).astype(float)
    of_mu = pool.mu[good][:, None] < pool.mu[bad][None, :]
    second = votes.T @ votes / len(votes)
    return np.concatenate([votes.mean(axis=0), second.ravel(), [of_mu.mean()]]), len(votes)


def _q(moments: Floats, num_adapters: int) -> Floats:
    mean: Floats = moments[:, :num_adapters].mean(axis=1)
    return mean


def _rho(moments: Floats, num_adapters: int) -> Floats:
    if num_adapters < 2:
        return np.full(len(moments), math.nan)
    means = moments[:, :num_adapters]
    second = moments[:, num_adapters:-1].reshape(-1, num_adapters, num_adapters)
    deviations = np.sqrt(np.clip(means * (1 - means), 0.0, None))
    covariance = second - means[:, :, None] * means[:, None, :]
    scale = deviations[:, :, None] * deviations[:, None, :]
    first, other = np.triu_indices(num_adapters, k=1)
    pairs = np.divide(covariance, scale, where=scale > 1e-12, out=np.full(covariance.shape, math.nan))[:, first, other]
    rho: Floats = np.clip(pairs.mean(axis=1), -1.0, 1.0)
    return rho
