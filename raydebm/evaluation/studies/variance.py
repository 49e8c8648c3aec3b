"""Where the spread of an ensemble comes from (paper, Proposition 2, partitioned variance).

The proposition: E_constraint is computed, not learnt, so the variance of E = mu + lambda E_constraint over the members
is sigma squared, and nothing of it is uncertainty about constraints. That holds by construction, and is checked here
(``identity_error``). It does not say that sigma is free of constraints: adapters are trained on labels that depend on
them, so each member's energy also follows E_constraint in its own way, as a monolithic scorer's would. Here each member
is split, by least squares within problems, into the part that moves with E_constraint and the rest.

Shapes: P pools, N candidates of the largest pool, K adapters.
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.energy import total_energies
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePartition:
    """Over candidates of problems whose E_constraint tells candidates apart; the three shares add up to 1."""

    num_problems: int
    num_candidates: int
    identity_error: float
    """Largest difference between sigma and the members' spread of E, in energy units; rounding only."""
    variance: Estimate
    """Mean sigma squared."""
    quality: Estimate
    """Share of it: variance of the part that does not move with E_constraint."""
    constraint: Estimate
    """Share of it: variance of the part that does."""
    covariance: Estimate
    """Share of it: twice their covariance."""
    slopes: tuple[float, ...]
    """Per adapter: energy for one more unit of E_constraint, within problems."""


def variance_partition(stack: Stack, *, lambda_: float, bootstrap: Bootstrap) -> VariancePartition | None:
    """The partition; None with fewer than two adapters, or where E_constraint tells no two candidates apart."""
    if stack.num_members < 2:
        return None
    usable = stack.present & np.isfinite(stack.penalty) & ~np.isnan(stack.members).any(axis=2)
    penalty = _centred(np.where(usable, stack.penalty, math.nan))
    informative = np.nansum(penalty**2, axis=1) > 1e-12
    usable &= informative[:, None]
    if not usable.any():
        return None
    moved = np.where(usable, penalty, 0.0)
    members = np.where(usable[:, :, None], stack.members, 0.0)
    slopes = np.einsum("pn,pnk->k", moved, members) / (moved**2).sum()
    learnt = moved[:, :, None] * slopes
    total, quality, constraint = (values.var(axis=2) for values in (members, members - learnt, learnt))
    covariance = total - quality - constraint
    count = np.where(informative, usable.sum(axis=1), math.nan)

    def share(values: Floats) -> Estimate:
        return bootstrap.ratio(np.where(informative, values.sum(axis=1), math.nan), total.sum(axis=1))

    with_penalty = total_energies(members, np.where(usable, stack.penalty, 0.0)[:, :, None], lambda_)
    return VariancePartition(
        num_problems=int(informative.sum()),
        num_candidates=int(usable.sum()),
        identity_error=float(np.abs(with_penalty.std(axis=2) - members.std(axis=2)).max()),
        variance=bootstrap.ratio(np.where(informative, total.sum(axis=1), math.nan), count),
        quality=share(quality),
        constraint=share(constraint),
        covariance=share(covariance),
        slopes=tuple(float(slope) for slope in slopes),
    )


def _centred(values: Floats) -> Floats:
    """Minus each problem's mean; NaN stays."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / count
    centred: Floats = values - mean
    return centred
