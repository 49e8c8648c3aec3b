"""Sources of an ensemble's spread (paper, Proposition 2, partitioned variance).

According to the proposition, E_constraint is computed and not learnt, so the variance of E = mu + lambda E_constraint
over the adapters is sigma squared, without uncertainty about constraints. This is true by construction and is verified
here (``identity_error``). It does not imply that sigma is independent of constraints: adapters are trained on labels
that depend on them, so each adapter's energy also correlates with E_constraint in its own way, as a monolithic scorer's
would. Here each adapter's energy is split, by least squares within problems, into a part proportional to E_constraint
and the rest.

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
    """Partition over candidates of problems in which E_constraint varies. The three shares sum to 1."""

    num_problems: int
    num_candidates: int
    identity_error: float
    """Largest difference between sigma and the adapters' spread of E, in energy units. Rounding only."""
    variance: Estimate
    """Mean sigma squared."""
    quality: Estimate
    """Share of the variance in the part independent of E_constraint."""
    constraint: Estimate
    """Share of the variance in the part proportional to E_constraint."""
    covariance: Estimate
    """Share of twice the covariance of the two parts."""
    slopes: tuple[float, ...]
    """Slope of each adapter's energy in E_constraint, within problems."""


def variance_partition(stack: Stack, *, lambda_: float, bootstrap: Bootstrap) -> VariancePartition | None:
    """Compute the partition. None with fewer than two adapters, or if E_constraint is constant within every problem."""
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
    """Values minus each problem's mean. NaN is kept."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / count
    centred: Floats = values - mean
    return centred
