"""The two terms of E = mu + lambda * E_constraint: agreement of their picks, and their shares of sigma."""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.decision.table import Bools, Floats, Ints, PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for
from raydebm.records import total_energies

MAX_POINTS = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPoint:
    mu: float
    penalty: float
    correct: bool | None
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Shares of problems where both terms have a pick."""

    agree: Estimate
    """Share where mu's pick is among the candidates of lowest E_constraint."""
    agree_alone: Estimate
    """Share where mu's pick is the only candidate of lowest E_constraint."""
    neither: Estimate
    """Share where E's pick is neither mu's nor among those of lowest E_constraint."""
    num_constrained: int
    """Number of problems with different E_constraint among parsed and scored candidates."""
    points: tuple[EnergyPoint, ...]
    """Random sample of the parsed, scored candidates, and every selected one."""


def decomposition(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> Decomposition | None:
    """Compare the terms. None without energies, or if E_constraint is constant within every problem."""
    if pools.num_members == 0:
        return None
    usable = np.isfinite(pools.penalty) & ~np.isnan(pools.mu)
    both = pools.any(usable)
    penalty = np.where(usable, pools.penalty, math.inf)
    cleanest = usable & (penalty == pools.least(penalty)[pools.pool_of_row])
    constrained = pools.any(usable & ~cleanest)
    if not constrained.any():
        return None
    by_mu, by_energy = pools.select(0.0), pools.select(lambda_)
    agree = pools.at(cleanest, by_mu) == 1
    neither = (by_energy != by_mu) & (pools.at(cleanest, by_energy) != 1)
    return Decomposition(
        agree=bootstrap.proportion(np.where(both, agree, math.nan)),
        agree_alone=bootstrap.proportion(np.where(both, agree & (pools.count(cleanest) == 1), math.nan)),
        neither=bootstrap.proportion(np.where(both, neither, math.nan)),
        num_constrained=int(constrained.sum()),
        points=_points(pools, usable, by_energy, seed),
    )


def _points(pools: PoolTable, usable: Bools, picked: Ints, seed: int) -> tuple[EnergyPoint, ...]:
    selected = picked[picked >= 0]
    is_other = usable.copy()
    is_other[selected] = False
    others = np.flatnonzero(is_other)
    if len(others) > MAX_POINTS:
        generator = np.random.default_rng(seed_for(seed, "points", len(others)))
        others = others[np.sort(generator.choice(len(others), size=MAX_POINTS, replace=False))]
    return tuple(
        EnergyPoint(
            mu=float(pools.mu[row]),
            penalty=float(pools.penalty[row]),
            correct=None if np.isnan(pools.correct[row]) else bool(pools.correct[row] == 1),
            selected=place >= len(others),
        )
        for place, row in enumerate([*others, *selected])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePartition:
    """Partition over candidates of problems in which E_constraint varies. The three shares sum to 1."""

    num_problems: int
    num_candidates: int
    identity_error: float
    """Largest difference between sigma and the adapters' spread of E, in energy units. Due to rounding only."""
    variance: Estimate
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
