"""What the energies and sigma are worth: order of the candidates, pass@n, and selective accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats, with_tolerance, with_trained_labels
from raydebm.evaluation.results.selector_metrics import (
    Retained,
    energy_gap,
    kendall_tau_b,
    pair_accuracy,
    pass_at_n_by_chance,
    pass_at_n_by_energy,
    picks,
    pool_energies,
    selective_accuracy,
    sigma_auroc,
)
from raydebm.evaluation.results.theory import EnsembleTheory, ensemble_theory
from raydebm.evaluation.selectors.selector import is_continuous
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasureRow:
    """How well one energy orders the candidates of a problem; each a mean over the problems that tell, whose number is
    its n."""

    name: str
    pair_accuracy: Estimate
    kendall_tau_b: Estimate
    energy_gap: Estimate
    """Mean energy of incorrect minus that of correct candidates."""
    mean_correct: Estimate
    """Over all correct candidates, so problems with many of them weigh more."""
    mean_incorrect: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtN:
    n: int
    """Candidates drawn."""
    by_energy: Estimate
    by_mu: Estimate
    """Lowest mu first, the constraints left out."""
    by_chance: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPoint:
    """One problem's selection on the mu-sigma plane."""

    mu: float
    sigma: float
    correct: bool | None
    """None: unlabeled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasures:
    """What the energies are worth as such, whatever else selects; empty or None without energies."""

    rows: tuple[EnergyMeasureRow, ...]
    pass_at_n: tuple[PassAtN, ...]
    tolerance: float | None
    """Violation score up to which a candidate counts as correct in ``pass_at_n``; None where the task has none."""
    sigma_auroc: Estimate
    selective: tuple[Retained, ...]
    mu_sigma_auroc: Estimate
    mu_selective: tuple[Retained, ...]
    theory: EnsembleTheory | None
    picks: tuple[PickPoint, ...]


def energy_measures(
    pools: Sequence[EvaluatedPool],
    names: Sequence[str],
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    positive_frac: float,
    tolerance: float,
) -> EnergyMeasures:
    """Measure the energies of the adapters ``names``, of mu, and of E.

    Args:
        positive_frac: of a pool's candidates, those that training preferred where the task has a violation score.
        tolerance: of pass@n, where the task has a violation score.
    """
    trained = with_trained_labels(pools, positive_frac)
    continuous = is_continuous(pools)
    accepted = with_tolerance(pools, tolerance) if continuous else pools
    selected, by_mu = picks(pools, lambda_), picks(pools, 0.0)
    has_sigma = len(names) > 1
    return EnergyMeasures(
        rows=tuple(_energy_rows(trained, names, lambda_, bootstrap)),
        pass_at_n=tuple(_pass_at_n(accepted, lambda_=lambda_, bootstrap=bootstrap)) if names else (),
        tolerance=tolerance if continuous else None,
        sigma_auroc=sigma_auroc(selected, bootstrap) if has_sigma else NOTHING,
        selective=selective_accuracy(selected, bootstrap) if has_sigma else (),
        mu_sigma_auroc=sigma_auroc(by_mu, bootstrap) if has_sigma else NOTHING,
        mu_selective=selective_accuracy(by_mu, bootstrap) if has_sigma else (),
        theory=ensemble_theory(trained, bootstrap),
        picks=tuple(
            PickPoint(mu=pick.mu, sigma=pick.sigma, correct=None if math.isnan(pick.correct) else pick.correct == 1)
            for pick in selected
            if not math.isnan(pick.mu)
        ),
    )


def _energy_rows(
    pools: Sequence[EvaluatedPool], names: Sequence[str], lambda_: float, bootstrap: Bootstrap
) -> list[EnergyMeasureRow]:
    if not names:
        return []
    columns: dict[str, list[Floats]] = {
        f"adapter {name}": [
            pool.members[:, index] if pool.members.size else np.full(len(pool.correct), math.nan) for pool in pools
        ]
        for index, name in enumerate(names)
    }
    columns["mu"] = [pool.mu for pool in pools]
    columns["E"] = [pool_energies(pool, lambda_) for pool in pools]
    rows = []
    for name, energies in columns.items():
        joined = list(zip(pools, energies, strict=True))
        finite = [(pool, np.where(np.isfinite(energy), energy, math.nan)) for pool, energy in joined]
        rows.append(
            EnergyMeasureRow(
                name=name,
                pair_accuracy=bootstrap.mean(np.array([pair_accuracy(*item) for item in joined])),
                kendall_tau_b=bootstrap.mean(np.array([kendall_tau_b(*item) for item in joined])),
                energy_gap=bootstrap.mean(np.array([energy_gap(*item) for item in finite])),
                mean_correct=_class_mean(finite, 1.0, bootstrap),
                mean_incorrect=_class_mean(finite, 0.0, bootstrap),
            )
        )
    return rows


def _class_mean(found: Sequence[tuple[EvaluatedPool, Floats]], label: float, bootstrap: Bootstrap) -> Estimate:
    inside = [pool.in_pool & (pool.correct == label) & ~np.isnan(energy) for pool, energy in found]
    sums = np.array([energy[mask].sum() for (_, energy), mask in zip(found, inside, strict=True)])
    return bootstrap.ratio(sums, np.array([float(mask.sum()) for mask in inside]))


def _pass_at_n(pools: Sequence[EvaluatedPool], *, lambda_: float, bootstrap: Bootstrap) -> list[PassAtN]:
    largest = max(len(pool.candidates) for pool in pools)
    by_energy = np.stack([pass_at_n_by_energy(pool, lambda_, max_n=largest) for pool in pools])
    by_mu = np.stack([pass_at_n_by_energy(pool, 0.0, max_n=largest) for pool in pools])
    by_chance = np.stack([pass_at_n_by_chance(pool, max_n=largest) for pool in pools])
    return [
        PassAtN(
            n=n,
            by_energy=bootstrap.proportion(by_energy[:, n - 1]),
            by_mu=bootstrap.proportion(by_mu[:, n - 1]),
            by_chance=bootstrap.proportion(by_chance[:, n - 1]),
        )
        for n in _sizes(largest)
    ]


def _sizes(largest: int) -> list[int]:
    """Every size up to 8, then powers of two, then the largest."""
    return sorted(
        {*range(1, min(8, largest) + 1), *(2**power for power in range(4, 16) if 2**power < largest), largest}
    )
