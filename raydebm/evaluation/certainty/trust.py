"""Certainty signals and calibration for the selections of one set of pools."""

from dataclasses import dataclass

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.certainty.reliability import (
    Reliability,
    SigmaBin,
    pair_reliability,
    pick_reliabilities,
    sigma_bins,
)
from raydebm.evaluation.certainty.signals import SIGMA, Signal, SignalRow, event_of, signal_rows, signals, worth_of
from raydebm.evaluation.stats.intervals import Bootstrap

LEARNED = "learned certainty"
CONFIDENCE = "confidence"
"""Name of the posterior's probability that its selection is correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Results for the selections by E = mu + lambda * E_constraint."""

    signals: tuple[SignalRow, ...]
    reliabilities: tuple[Reliability, ...]
    sigma_bins: tuple[SigmaBin, ...]
    """Accuracy, or 1 - violation, per tenth of the problems by sigma. Empty with one adapter."""
    fitted_on: str
    """Data that fitted probabilities were fitted on."""

    def signal(self, name: str) -> SignalRow | None:
        """Row of a signal. None if it was not measured."""
        return next((row for row in self.signals if row.name == name), None)

    @property
    def best(self) -> SignalRow | None:
        """Signal with the highest worth at 80 % coverage, chosen in hindsight."""
        known = [row for row in self.signals if row.accuracy_at_80.value is not None]
        return max(known, key=lambda row: (row.accuracy_at_80.value or 0.0, row.auroc.value or 0.0), default=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certainty:
    """Signals of certainty for one selection per problem, and its correctness: 1, 0, or NaN if unknown."""

    signals: tuple[Signal, ...]
    correct: Floats
    violation: Floats
    """Violation scores in [0, 1]. All NaN if the task has none."""
    reliabilities: tuple[Reliability, ...]

    @property
    def worth(self) -> Floats:
        """Worth of the selections: 1 - violation, or correctness if the task has no violation scores."""
        return worth_of(self.correct, self.violation)

    @property
    def event(self) -> str:
        """Readable name of the worth."""
        return event_of(self.violation)

    def rows(self, bootstrap: Bootstrap) -> tuple[SignalRow, ...]:
        """Evaluate each signal.

        Args:
            bootstrap: Resamples of the same problems.
        """
        return signal_rows(self.signals, self.worth, bootstrap, correct=self.correct)


def certainty(
    pools: PoolTable,
    validation: PoolTable,
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    seed: int,
    constant: bool = False,
) -> Certainty | None:
    """All signals about the selections by energy, and one learned from the others. None without energies.

    Args:
        constant: Whether to include signals that are constant over these pools, for a summary over several sets of
            pools.
    """
    if pools.num_members == 0:
        return None
    picked = pools.select(lambda_)
    # Problems without a pick have no certainty and are excluded here. The selector table counts them.
    correct = pools.at(pools.correct, picked)
    pick_signals = signals(pools, lambda_)
    others = None
    if _is_fit_for(pools, validation):
        others = signals(validation, lambda_), validation.at(validation.correct, validation.select(lambda_))
    reliabilities, learned = pick_reliabilities(pick_signals, correct, bootstrap, validation=others, seed=seed)
    if learned is not None:
        how = f"logistic regression of all the other signals, fitted on {_fitted_on(pools, validation)}"
        pick_signals.append(Signal(LEARNED, how, learned))
    if constant:
        names = {signal.name for signal in pick_signals}
        pick_signals += [signal for signal in signals(pools, lambda_, constant=True) if signal.name not in names]
    return Certainty(
        signals=tuple(pick_signals),
        correct=correct,
        violation=pools.at(pools.violation, picked),
        reliabilities=tuple(reliabilities),
    )


def trust(pools: PoolTable, validation: PoolTable, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> Trust | None:
    """Certainty and calibration of the selections by energy. None without energies."""
    pick_certainty = certainty(pools, validation, lambda_=lambda_, bootstrap=bootstrap, seed=seed)
    if pick_certainty is None:
        return None
    pairs = pair_reliability(pools, bootstrap)
    sigma = next((signal.values for signal in pick_certainty.signals if signal.name == SIGMA), None)
    return Trust(
        signals=pick_certainty.rows(bootstrap),
        reliabilities=(*pick_certainty.reliabilities, *([pairs] if pairs is not None else [])),
        sigma_bins=() if sigma is None else sigma_bins(np.negative(sigma), pick_certainty.worth, bootstrap),
        fitted_on=_fitted_on(pools, validation),
    )


def _is_fit_for(pools: PoolTable, validation: PoolTable) -> bool:
    return validation.num_pools > 0 and validation.num_members == pools.num_members


def _fitted_on(pools: PoolTable, validation: PoolTable) -> str:
    if _is_fit_for(pools, validation):
        return "the picks of validation problems"
    return "the picks of other test problems (5 folds)"
