"""Sources of an ensemble's spread (paper, Proposition 2, partitioned variance).

According to the proposition, E_constraint is computed and not learnt, so the variance of E = mu + lambda E_constraint
over the adapters is sigma squared, without uncertainty about constraints. This is true by construction and is verified
here (``identity_error``). It does not imply that sigma is independent of constraints: adapters are trained on labels
that depend on them, so each adapter's energy also correlates with E_constraint in its own way, as a monolithic scorer's
would. Here each adapter's energy is split, by least squares within problems, into a part proportional to E_constraint
and the rest.
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.energy import total_energies
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


def variance_partition(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> VariancePartition | None:
    """Compute the partition. None with fewer than two adapters, or if E_constraint is constant within every problem."""
    if pools.num_members < 2:
        return None
    usable = np.isfinite(pools.penalty) & ~np.isnan(pools.members).any(axis=1)
    penalty = np.where(usable, pools.penalty, math.nan)
    penalty -= pools.mean_of(penalty)[pools.pool_of_row]
    informative = pools.total(np.nan_to_num(penalty) ** 2) > 1e-12
    usable &= informative[pools.pool_of_row]
    if not usable.any():
        return None
    moved = np.where(usable, penalty, 0.0)
    members = np.where(usable[:, None], pools.members, 0.0)
    slopes = moved @ members / (moved**2).sum()
    learnt = moved[:, None] * slopes
    total, quality, constraint = (pools.total(values.var(axis=1)) for values in (members, members - learnt, learnt))
    covariance = total - quality - constraint
    count = np.where(informative, pools.count(usable), math.nan)

    def share(values: Floats) -> Estimate:
        return bootstrap.ratio(np.where(informative, values, math.nan), total)

    with_penalty = total_energies(members, np.where(usable, pools.penalty, 0.0)[:, None], lambda_)
    return VariancePartition(
        num_problems=int(informative.sum()),
        num_candidates=int(usable.sum()),
        identity_error=float(np.abs(with_penalty.std(axis=1) - members.std(axis=1)).max()),
        variance=bootstrap.ratio(np.where(informative, total, math.nan), count),
        quality=share(quality),
        constraint=share(constraint),
        covariance=share(covariance),
        slopes=tuple(float(slope) for slope in slopes),
    )
