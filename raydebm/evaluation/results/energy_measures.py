"""Quality of the energies and sigma: order of the candidates, pass@n, and selective accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.results.selector_metrics import (
    energy_gaps,
    kendall_taus,
    pair_accuracies,
    pass_at_n_by_chance,
    pass_at_n_by_energy,
    picks,
    pool_energies,
    selective_accuracy,
    sigma_auroc,
)
from raydebm.evaluation.results.theory import ensemble_theory
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasureRow:
    """Quality of one energy's order of a problem's candidates. Each is a mean over its n defined problems."""

    name: str
    pair_accuracy: Estimate
    kendall_tau_b: Estimate
    energy_gap: Estimate
    """Mean energy of a problem's incorrect candidates minus that of its correct ones."""
    mean_difference: Estimate
    """``mean_incorrect`` minus ``mean_correct``, the paper's gap, in which problems are weighted by their numbers of
    candidates."""
    mean_correct: Estimate
    """Mean over all correct candidates. Problems with more of them have more weight."""
    mean_incorrect: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtN:
    n: int
    """Number of candidates."""
    by_energy: Estimate
    by_mu: Estimate
    """Lowest mu first, without constraints."""
    by_chance: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPoint:
    """One problem's selection in the mu-sigma plane."""

    mu: float
    sigma: float
    correct: bool | None
    """Correctness. None if unlabelled."""


def energy_measures(
    pools: PoolTable,
    trained: PoolTable,
    names: Sequence[str],
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    tolerance: float,
) -> dict[str, Any]:
    """Measure the energies of the adapters ``names``, of mu, and of E, as fields of ``Evaluation``.

    Args:
        trained: The same pools with the labels used in training (``PoolTable.with_trained_labels``).
        tolerance: Tolerance of pass@n, for tasks with violation scores.
    """
    continuous = pools.has_violations
    accepted = pools.with_tolerance(tolerance) if continuous else pools
    selected, by_mu = picks(pools, lambda_), picks(pools, 0.0)
    has_sigma = len(names) > 1
    return {
        "energies": tuple(_energy_rows(trained, names, lambda_, bootstrap)),
        "pass_at_n": tuple(_pass_at_n(accepted, lambda_=lambda_, bootstrap=bootstrap)) if names else (),
        "tolerance": tolerance if continuous else None,
        "sigma_auroc": sigma_auroc(selected, bootstrap) if has_sigma else NOTHING,
        "selective": selective_accuracy(selected, bootstrap) if has_sigma else (),
        "mu_sigma_auroc": sigma_auroc(by_mu, bootstrap) if has_sigma else NOTHING,
        "mu_selective": selective_accuracy(by_mu, bootstrap) if has_sigma else (),
        "theory": ensemble_theory(trained, bootstrap),
        "picks": tuple(
            PickPoint(mu=mu, sigma=sigma, correct=None if math.isnan(correct) else correct == 1)
            for mu, sigma, correct in zip(
                selected.mu.tolist(), selected.sigma.tolist(), selected.correct.tolist(), strict=True
            )
            if not math.isnan(mu)
        ),
    }


def _energy_rows(
    pools: PoolTable, names: Sequence[str], lambda_: float, bootstrap: Bootstrap
) -> list[EnergyMeasureRow]:
    if not names:
        return []
    columns = {f"adapter {name}": pools.members[:, index] for index, name in enumerate(names)}
    columns |= {"mu": pools.mu, "E": pool_energies(pools, lambda_)}
    rows = []
    for name, energies in columns.items():
        finite = np.where(np.isfinite(energies), energies, math.nan)
        rows.append(
            EnergyMeasureRow(
                name=name,
                pair_accuracy=bootstrap.proportion(pair_accuracies(pools, energies)),
                kendall_tau_b=bootstrap.mean(kendall_taus(pools, energies)),
                energy_gap=bootstrap.mean(energy_gaps(pools, finite)),
                mean_difference=_mean_difference(pools, finite, bootstrap),
                mean_correct=bootstrap.ratio(*_class_sums(pools, finite, 1.0)),
                mean_incorrect=bootstrap.ratio(*_class_sums(pools, finite, 0.0)),
            )
        )
    return rows


def _class_sums(pools: PoolTable, energies: Floats, label: float) -> tuple[Floats, Floats]:
    """Sum and number of the energies of one label, shape (P,) each."""
    inside = (pools.correct == label) & ~np.isnan(energies)
    return pools.total(np.where(inside, energies, 0.0)), pools.total(inside)


def _mean_difference(pools: PoolTable, energies: Floats, bootstrap: Bootstrap) -> Estimate:
    good, bad = _class_sums(pools, energies, 1.0), _class_sums(pools, energies, 0.0)
    if not good[1].any() or not bad[1].any():
        return NOTHING
    value = bad[0].sum() / bad[1].sum() - good[0].sum() / good[1].sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [bootstrap.sums(total) / bootstrap.sums(count) for total, count in (bad, good)]
    return bootstrap.interval(float(value), means[0] - means[1], int(((good[1] + bad[1]) > 0).sum()))


def _pass_at_n(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> list[PassAtN]:
    largest = int(pools.sizes.max())
    by_energy = pass_at_n_by_energy(pools, lambda_, max_n=largest)
    by_mu = pass_at_n_by_energy(pools, 0.0, max_n=largest)
    by_chance = pass_at_n_by_chance(pools, max_n=largest)
    sizes = _sizes(largest)
    estimates = (bootstrap.proportions([curve[:, n - 1] for n in sizes]) for curve in (by_energy, by_mu, by_chance))
    return [
        PassAtN(n=n, by_energy=energy, by_mu=mu, by_chance=chance)
        for n, energy, mu, chance in zip(sizes, *estimates, strict=True)
    ]


def _sizes(largest: int) -> list[int]:
    """Every size up to 8, then powers of two, then the largest."""
    return sorted(
        {*range(1, min(8, largest) + 1), *(2**power for power in range(4, 16) if 2**power < largest), largest}
    )
