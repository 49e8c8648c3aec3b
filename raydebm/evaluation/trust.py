"""How far the selections of one set of pools can be trusted: certainty signals and calibration together."""

from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.intervals import Bootstrap
from raydebm.evaluation.reliability import (
    Reliability,
    SigmaBin,
    pair_reliability,
    pick_reliabilities,
    sigma_bins,
)
from raydebm.evaluation.signals import SIGMA, Signal, signals
from raydebm.evaluation.stack import Stack
from raydebm.evaluation.uncertainty import SignalRow, signal_rows

LEARNED = "learned certainty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """About the selections by E = mu + lambda * E_constraint."""

    signals: tuple[SignalRow, ...]
    reliabilities: tuple[Reliability, ...]
    sigma_bins: tuple[SigmaBin, ...]
    """Accuracy per tenth of the problems by sigma; empty with one adapter."""
    fitted_on: str
    """Where fitted probabilities come from."""

    def signal(self, name: str) -> SignalRow | None:
        return next((row for row in self.signals if row.name == name), None)

    @property
    def best(self) -> SignalRow | None:
        """The signal with the highest accuracy at 80 % coverage; chosen in hindsight."""
        known = [row for row in self.signals if row.accuracy_at_80.value is not None]
        return max(known, key=lambda row: (row.accuracy_at_80.value or 0.0, row.auroc.value or 0.0), default=None)


def trust(stack: Stack, validation: Stack | None, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> Trust | None:
    """None without energies."""
    if stack.num_members == 0:
        return None
    picked = stack.select(lambda_)
    # What could not be picked has no certainty, so such problems are left out here; the selector table counts them.
    correct = stack.at(stack.correct, picked)
    found = signals(stack, lambda_)
    others = None
    if validation is not None and validation.num_members == stack.num_members:
        others = signals(validation, lambda_), validation.at(validation.correct, validation.select(lambda_))
    reliabilities, learned = pick_reliabilities(found, correct, bootstrap, validation=others, seed=seed)
    where = "the picks of validation problems" if others is not None else "the picks of other test problems (5 folds)"
    if learned is not None:
        how = f"logistic regression of all the other signals, fitted on {where}"
        found.append(Signal(LEARNED, how, learned))
    pairs = pair_reliability(stack, bootstrap)
    sigma = next((signal.values for signal in found if signal.name == SIGMA), None)
    return Trust(
        signals=signal_rows(found, correct, bootstrap, violation=stack.at(stack.violation, picked)),
        reliabilities=(*reliabilities, *([pairs] if pairs is not None else [])),
        sigma_bins=() if sigma is None else sigma_bins(np.negative(sigma), correct, bootstrap),
        fitted_on=where,
    )
