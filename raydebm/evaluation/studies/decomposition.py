"""Effects of the two terms of E = mu + lambda * E_constraint: a sweep of lambda, and the agreement of their picks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Ints
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for

LAMBDAS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MAX_POINTS = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaRow:
    lambda_: float
    pass_at_1: Estimate
    mean_violation: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPoint:
    """One candidate in the plane of the two terms."""

    mu: float
    penalty: float
    correct: bool | None
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Shares of problems where both terms have a pick."""

    lambda_: float
    agree: Estimate
    """Share where mu's pick is among the candidates of lowest E_constraint."""
    agree_alone: Estimate
    """Share where mu's pick is the only candidate of lowest E_constraint."""
    neither: Estimate
    """Share where E's pick is neither mu's nor among those of lowest E_constraint."""
    num_constrained: int
    """Problems with different E_constraint among parsed candidates."""
    points: tuple[EnergyPoint, ...]
    """Random sample of the parsed, scored candidates, and every selected one."""
    num_candidates: int
    """Number of parsed and scored candidates."""


def lambda_sweep(
    stack: Stack, *, bootstrap: Bootstrap, lambdas: Sequence[float] = LAMBDAS, chosen: float = 1.0
) -> tuple[LambdaRow, ...]:
    """One row per lambda, including the chosen one."""
    if stack.num_members == 0:
        return ()
    rows = []
    for lambda_ in sorted({*lambdas, chosen}):
        picked = stack.select(lambda_)
        rows.append(
            LambdaRow(
                lambda_=lambda_,
                pass_at_1=bootstrap.proportion(stack.correct_at(picked)),
                mean_violation=bootstrap.mean(stack.violation_at(picked)),
            )
        )
    return tuple(rows)


def decomposition(stack: Stack, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> Decomposition | None:
    """Compare the terms. None without energies, or if E_constraint is constant within every problem."""
    if stack.num_members == 0:
        return None
    mu = stack.mu()
    usable = stack.present & np.isfinite(stack.penalty) & ~np.isnan(mu)
    both = usable.any(axis=1)
    lowest = np.where(usable, stack.penalty, math.inf).min(axis=1, keepdims=True)
    cleanest = usable & (stack.penalty == lowest)
    constrained = (usable & ~cleanest).any(axis=1)
    if not constrained.any():
        return None
    by_mu, by_energy = stack.lowest(mu, mu, within=usable), stack.select(lambda_)
    agree = _at(cleanest, by_mu)
    neither = (by_energy != by_mu) & ~_at(cleanest, by_energy)
    return Decomposition(
        lambda_=lambda_,
        agree=bootstrap.proportion(np.where(both, agree, math.nan)),
        agree_alone=bootstrap.proportion(np.where(both, agree & (cleanest.sum(axis=1) == 1), math.nan)),
        neither=bootstrap.proportion(np.where(both, neither, math.nan)),
        num_constrained=int(constrained.sum()),
        points=_points(stack, usable, by_energy, seed),
        num_candidates=int(usable.sum()),
    )


def _at(mask: Bools, picked: Ints) -> Bools:
    values: Bools = mask[np.arange(len(picked)), picked] & (picked >= 0)
    return values


def _points(stack: Stack, usable: Bools, picked: Ints, seed: int) -> tuple[EnergyPoint, ...]:
    mu = stack.mu()
    selected = np.zeros_like(usable)
    selected[np.arange(len(picked))[picked >= 0], picked[picked >= 0]] = True
    others = np.argwhere(usable & ~selected)
    if len(others) > MAX_POINTS:
        generator = np.random.default_rng(seed_for(seed, "points", len(others)))
        others = others[np.sort(generator.choice(len(others), size=MAX_POINTS, replace=False))]
    return tuple(
        EnergyPoint(
            mu=float(mu[row, column]),
            penalty=float(stack.penalty[row, column]),
            correct=None if np.isnan(label := stack.correct[row, column]) else bool(label == 1),
            selected=bool(selected[row, column]),
        )
        for row, column in np.concatenate([others, np.argwhere(selected)])
    )
