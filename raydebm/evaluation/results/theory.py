"""Ensemble ranking under correlated adapters (paper Proposition 1, Eq. condorcet), and its parameters from pools.

V_k is 1 if adapter k gives the correct one of a (correct, incorrect) pair the strictly lower energy. q is its mean over
pairs and adapters, rho the mean correlation of V_j and V_k over pairs. Pairs are within a problem. Problems have equal
weight, so one with many pairs does not dominate.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

POOLS_AT_ONCE = 256
"""Number of pools whose pairs are compared at once, which limits memory."""


def ensemble_accuracy(num_adapters: float, q: float, rho: float) -> float:
    """P(K, q, rho): probability that the ensemble mean ranks a pair correctly. K may be ``math.inf`` for the ceiling.

    A Gaussian approximation of a majority of correlated votes, valid for K >= 5 and rho >= 0.

    Raises:
        ValueError: q outside [0, 1], rho outside [-1, 1], or K below 1.
    """
    if not (0 <= q <= 1 and -1 <= rho <= 1 and num_adapters >= 1):
        raise ValueError(f"need K >= 1, 0 <= q <= 1 and -1 <= rho <= 1, got K={num_adapters}, q={q}, rho={rho}")
    if q == 0.5:
        return 0.5
    # Divided by K: the variance of the mean vote, with limit q (1 - q) rho for K -> inf.
    share = 0.0 if math.isinf(num_adapters) else 1 / num_adapters
    variance = q * (1 - q) * (share + (1 - share) * rho)
    if variance <= 0:
        return float(q > 0.5)
    return float(ndtr((q - 0.5) / math.sqrt(variance)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleTheory:
    """Measured q and rho, the proposition's prediction, and the measured accuracy."""

    num_adapters: int
    q: Estimate
    """Mean share of pairs that one adapter ranks correctly."""
    rho: Estimate
    """Mean pairwise correlation. No value with one adapter, or if an adapter ranks every pair the same way."""
    predicted: float | None
    """P(K, q, rho)."""
    ceiling: float | None
    """Limit of P(K, q, rho) for K -> inf."""
    measured: Estimate
    """Share of pairs that the ensemble mean ranks correctly."""
    num_pairs: int


def ensemble_theory(pools: PoolTable, bootstrap: Bootstrap) -> EnsembleTheory | None:
    """Estimates from scored, labelled pools. None if no pool has both a correct and an incorrect scored candidate."""
    num_adapters = pools.num_members
    if num_adapters == 0:
        return None
    table, counts = _moments(pools)
    num_pairs = int(counts.sum())
    if num_pairs == 0:
        return None
    known = counts > 0
    averages = table[known].mean(axis=0, keepdims=True)
    totals = bootstrap.sums(known.astype(np.float64))[:, None]
    sums = bootstrap.sums(np.where(known[:, None], table, 0.0))
    sampled = np.divide(sums, totals, where=totals > 0, out=np.full(sums.shape, math.nan))
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


def _moments(pools: PoolTable) -> tuple[Floats, Floats]:
    """Moments over each problem's pairs, and the number of pairs, shape (P,).

    The moments have shape (P, K + K * K + 1): mean V_k (K), mean V_j V_k (K * K), mean indicator of mu (1); NaN without
    a pair.
    """
    energies = pools.grid(np.column_stack([pools.members, pools.mu]))
    scored, correct = ~np.isnan(energies).any(axis=2), pools.grid(pools.correct)
    good, bad = scored & (correct == 1), scored & (correct == 0)
    num_adapters, num_pools = pools.num_members, len(good)
    products = np.zeros((num_pools, num_adapters + 1, num_adapters + 1))
    for start in range(0, num_pools, POOLS_AT_ONCE):
        part = slice(start, start + POOLS_AT_ONCE)
        is_pair = good[part][:, :, None] & bad[part][:, None, :]
        # Whole numbers below 2^24 are exact in these floats.
        votes = (energies[part][:, :, None, :] < energies[part][:, None, :, :]) & is_pair[..., None]
        flat = votes.reshape(len(votes), -1, num_adapters + 1).astype(np.float32)
        products[part] = flat.transpose(0, 2, 1) @ flat
    counts = (good.sum(axis=1) * bad.sum(axis=1)).astype(np.float64)
    first = products[:, range(num_adapters), range(num_adapters)]
    second = products[:, :num_adapters, :num_adapters].reshape(num_pools, -1)
    table = np.concatenate([first, second, products[:, -1, -1:]], axis=1)
    return np.divide(table, counts[:, None], where=counts[:, None] > 0, out=np.full(table.shape, math.nan)), counts


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
