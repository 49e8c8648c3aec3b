"""Quality of the energies and sigma: order of the candidates, pass@n, and selective accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack, pair_accuracies
from raydebm.evaluation.results.selector_metrics import (
    energy_gaps,
    kendall_taus,
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
    stack: Stack, trained: Stack, names: Sequence[str], *, lambda_: float, bootstrap: Bootstrap, tolerance: float
) -> dict[str, Any]:
    """Measure the energies of the adapters ``names``, of mu, and of E, as fields of ``Evaluation``.

    Args:
        trained: The same pools with the labels used in training (``Stack.with_trained_labels``).
        tolerance: Tolerance of pass@n, for tasks with violation scores.
    """
    continuous = stack.has_violations
    accepted = stack.with_tolerance(tolerance) if continuous else stack
    selected, by_mu = picks(stack, lambda_), picks(stack, 0.0)
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


def _energy_rows(stack: Stack, names: Sequence[str], lambda_: float, bootstrap: Bootstrap) -> list[EnergyMeasureRow]:
    if not names:
        return []
    columns = {f"adapter {name}": stack.members[:, :, index] for index, name in enumerate(names)}
    columns |= {"mu": stack.mu(), "E": pool_energies(stack, lambda_)}
    rows = []
    for name, energies in columns.items():
        finite = np.where(np.isfinite(energies), energies, math.nan)
        rows.append(
            EnergyMeasureRow(
                name=name,
                pair_accuracy=bootstrap.proportion(pair_accuracies(energies, stack.correct)),
                kendall_tau_b=bootstrap.mean(kendall_taus(stack, energies)),
                energy_gap=bootstrap.mean(energy_gaps(stack, finite)),
                mean_difference=_mean_difference(stack, finite, bootstrap),
                mean_correct=bootstrap.ratio(*_class_sums(stack, finite, 1.0)),
                mean_incorrect=bootstrap.ratio(*_class_sums(stack, finite, 0.0)),
            )
        )
    return rows


def _class_sums(stack: Stack, energies: Floats, label: float) -> tuple[Floats, Floats]:
    """Sum and number of the energies of one label, shape (P,) each."""
    inside = (stack.correct == label) & ~np.isnan(energies)
    return np.where(inside, energies, 0.0).sum(axis=1), inside.sum(axis=1).astype(np.float64)


def _mean_difference(stack: Stack, energies: Floats, bootstrap: Bootstrap) -> Estimate:
    good, bad = _class_sums(stack, energies, 1.0), _class_sums(stack, energies, 0.0)
    if not good[1].any() or not bad[1].any():
        return NOTHING
    value = bad[0].sum() / bad[1].sum() - good[0].sum() / good[1].sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [bootstrap.sums(total) / bootstrap.sums(count) for total, count in (bad, good)]
    return bootstrap.interval(float(value), means[0] - means[1], int(((good[1] + bad[1]) > 0).sum()))


def _pass_at_n(stack: Stack, *, lambda_: float, bootstrap: Bootstrap) -> list[PassAtN]:
    largest = int(stack.sizes.max())
    by_energy = pass_at_n_by_energy(stack, lambda_, max_n=largest)
    by_mu = pass_at_n_by_energy(stack, 0.0, max_n=largest)
    by_chance = pass_at_n_by_chance(stack, max_n=largest)
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
