"""Certainty signals of a set of pools, and the calibration of probabilities: reliability bins, ECE and Brier score.

Every result names the event whose probability it evaluates. Three probabilities are for "the selection is correct": the
raw energy-weighted share of the pick's answer, the vote share, and a logistic regression of all signals on the picks of
validation problems. Without validation problems the regression is fitted on the test problems by five-fold
cross-fitting, and its name says so.

Each bin has a tenth of the problems, as in Nguyen and O'Connor (2015, section 3); bins of equal width would be nearly
empty if confidences are concentrated near 1. The ECE is a mean of absolute values: it is above 0 by chance, so it has
no bootstrap interval and is shown next to its value for perfect calibration.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.decision.table import Floats, PoolTable
from raydebm.evaluation.certainty.signals import (
    CORRECT,
    SIGMA,
    Signal,
    SignalRow,
    event_of,
    signal_rows,
    signals,
    worth_of,
)
from raydebm.evaluation.stats.intervals import MIN_PER_CLASS, Bootstrap, Estimate, fewest_of_a_class, weighted_sums
from raydebm.identity import seed_for

NUM_BINS = 10
NUM_SIMULATIONS, SIMULATIONS_AT_ONCE = 1000, 100
"""Number of simulations of perfectly calibrated outcomes, and the batch size that limits memory."""
NUM_FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """Mean over the bins of |mean outcome - mean probability|, weighted by bin size."""

    value: float | None
    """None without problems."""
    n: int
    perfect: float | None = None
    """Expected value if each problem were right with its stated probability. None if outcomes are graded or not
    independent."""
    perfect_high: float | None = None
    """95th percentile of the error under perfect calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    low: float
    high: float
    n: int
    mean_predicted: float
    accuracy: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    name: str
    event: str
    ece: CalibrationError
    """Expected calibration error, in ten bins of equal mass."""
    brier: Estimate
    """Mean squared error; lower is better."""
    base_brier: float | None
    """Brier score of a constant prediction of the mean accuracy."""
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmaBin:
    """Mean worth of the picks (accuracy, or 1 - violation) within one tenth of the problems by sigma."""

    low: float
    high: float
    accuracy: Estimate


def reliability(name: str, event: str, predicted: Floats, happened: Floats, bootstrap: Bootstrap) -> Reliability:
    """Compare probabilities with outcomes, in ten bins of equal mass. Problems with NaN in either are excluded."""
    known = np.flatnonzero(~(np.isnan(predicted) | np.isnan(happened)))
    p, y = predicted[known], happened[known]
    place = equal_mass_bins(p)
    groups = [known[place == index] for index in np.unique(place)]
    return Reliability(
        name=name,
        event=event,
        ece=calibration_error(p, y, place),
        brier=bootstrap.mean((predicted - happened) ** 2),
        base_brier=float(((y - y.mean()) ** 2).mean()) if len(known) else None,
        bins=tuple(
            Bin(
                low=float(predicted[rows].min()),
                high=float(predicted[rows].max()),
                n=len(rows),
                mean_predicted=float(predicted[rows].mean()),
                accuracy=bootstrap.proportion(_only(happened, rows)),
            )
            for rows in groups
        ),
    )


def sigma_bins(sigma: Floats, worth: Floats, bootstrap: Bootstrap) -> tuple[SigmaBin, ...]:
    """Mean worth in bins of equal size, from the lowest sigma to the highest (paper, calibration figure)."""
    known = np.flatnonzero(~(np.isnan(sigma) | np.isnan(worth)))
    groups = np.array_split(known[np.argsort(sigma[known], kind="stable")], NUM_BINS)
    return tuple(
        SigmaBin(
            low=float(sigma[rows].min()),
            high=float(sigma[rows].max()),
            accuracy=bootstrap.proportion(_only(worth, rows)),
        )
        for rows in groups
        if len(rows)
    )


def _only(values: Floats, rows: NDArray[np.intp]) -> Floats:
    """Values at these indices, NaN elsewhere."""
    inside = np.full(len(values), math.nan)
    inside[rows] = values[rows]
    return inside


# ---- expected calibration error --------------------------------------------------------------------------------------


def equal_mass_bins(values: Floats) -> NDArray[np.intp]:
    """Bin, from 0 to 9, of each value by rank, so that each bin has a tenth of the values.

    Equal values share the bin of their middle rank, so the order of the problems has no effect. If there are many equal
    values, the next bins are empty.
    """
    from scipy.stats import rankdata  # imported here because it is slow

    # The tolerance keeps whole numbers that rounding has made slightly smaller.
    tenths = np.floor((rankdata(values) - 0.5) * NUM_BINS / max(len(values), 1) + 1e-9)
    bins: NDArray[np.intp] = np.minimum(tenths, NUM_BINS - 1).astype(np.intp)
    return bins


def calibration_error(predicted: Floats, happened: Floats, place: NDArray[np.intp]) -> CalibrationError:
    """Calibration error of n probabilities and, for outcomes of 1 and 0, its value for perfect calibration.

    Args:
        predicted: Probabilities, shape (n,).
        happened: Outcomes, shape (n,).
        place: Bin of each prediction.
    """
    n = len(predicted)
    if n == 0:
        return CalibrationError(value=None, n=0)
    member = (place[:, None] == np.arange(NUM_BINS)).astype(np.float64)

    def errors(gaps: Floats) -> Floats:
        """Calibration errors of B sets of gaps (predicted minus outcome), shapes (B, n) -> (B,)."""
        total: Floats = np.abs(weighted_sums(gaps, member)).sum(axis=1)
        return total / n

    value = float(errors((predicted - happened)[None])[0])
    if not np.isin(happened, (0.0, 1.0)).all():
        return CalibrationError(value=value, n=n)
    generator = np.random.default_rng(seed_for(0, "perfectly calibrated", n))
    simulated = [
        errors(predicted - (generator.random((SIMULATIONS_AT_ONCE, n)) < predicted))
        for _ in range(NUM_SIMULATIONS // SIMULATIONS_AT_ONCE)
    ]
    chance = np.concatenate(simulated)
    return CalibrationError(
        value=value, n=n, perfect=float(chance.mean()), perfect_high=float(np.quantile(chance, 0.95))
    )


# ---- fitted probabilities --------------------------------------------------------------------------------------------


def logistic(features: Floats, correct: Floats, others: Floats) -> Floats:
    """Probabilities that the rows of ``others`` are correct, by a standardised logistic regression on labelled rows."""
    # Imported here because the import takes seconds and many commands do not need it.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression())
    probabilities: Floats = model.fit(features, correct).predict_proba(others)[:, 1]
    return probabilities


def fitted(
    test: tuple[Floats, Floats],
    validation: tuple[Floats, Floats] | None,
    *,
    seed: int,
    fit: Callable[[Floats, Floats, Floats], Floats] = logistic,
) -> Floats | None:
    """Probabilities for the test problems, shape (P,). None if one class has too few problems.

    Args:
        test: Features (P, F) and outcomes (P,). Problems with NaN are excluded.
        validation: Features and outcomes of other problems, or None for cross-fitting on the test problems.
        seed: Seed of the folds.
        fit: Function (features (n, F), correct (n,), features to predict (m, F)) -> probabilities (m,).
    """
    features, correct = test
    usable = ~np.isnan(features).any(axis=1)
    learned_from = test if validation is None else validation
    known = ~(np.isnan(learned_from[0]).any(axis=1) | np.isnan(learned_from[1]))
    if not usable.any() or fewest_of_a_class(learned_from[1][known]) < MIN_PER_CLASS:
        return None
    probabilities = np.full(len(correct), math.nan)
    if validation is not None:
        probabilities[usable] = fit(validation[0][known], validation[1][known], features[usable])
        return probabilities
    fold = np.random.default_rng(seed_for(seed, "folds", len(correct))).permutation(len(correct)) % NUM_FOLDS
    for index in range(NUM_FOLDS):
        train, held_out = known & (fold != index), usable & (fold == index)
        if held_out.any() and len(set(correct[train])) == 2:
            probabilities[held_out] = fit(features[train], correct[train], features[held_out])
    return probabilities


LEARNED = "learned certainty"
CONFIDENCE = "confidence"
"""Name of the posterior's probability that its selection is correct."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stated:
    """Confidence in one selection per problem, with its correctness (1, 0 or NaN) and violation, shape (P,) each."""

    confidence: Floats
    correct: Floats
    violation: Floats
    """Violation scores in [0, 1]. All NaN if the task has none."""

    @property
    def worth(self) -> Floats:
        """Worth of the selections: 1 - violation, or correctness if the task has no violation scores."""
        return worth_of(self.correct, self.violation)

    def row(self, bootstrap: Bootstrap) -> SignalRow:
        words = "probability that the selection is right, by the posterior"
        (row,) = signal_rows((Signal(CONFIDENCE, words, self.confidence),), self.worth, bootstrap, correct=self.correct)
        return row

    def reliability(self, bootstrap: Bootstrap, *, name: str = CONFIDENCE) -> Reliability:
        return reliability(name, event_of(self.violation), self.confidence, self.worth, bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Signals and calibration for the selections by E = mu + lambda * E_constraint."""

    signals: tuple[SignalRow, ...]
    reliabilities: tuple[Reliability, ...]
    sigma_bins: tuple[SigmaBin, ...]
    """Accuracy, or 1 - violation, per tenth of the problems by sigma. Empty with one adapter."""
    fitted_on: str


def trust(pools: PoolTable, validation: PoolTable, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> Trust | None:
    """Evaluate all signals about the selections by energy, with one learned from the others, and their calibration.
    None without energies.

    Problems without a pick have no certainty and are excluded here. The selector table counts them.
    """
    if pools.num_members == 0:
        return None
    picked = pools.select(lambda_)
    correct, violation = pools.at(pools.correct, picked), pools.at(pools.violation, picked)
    pick_signals = signals(pools, lambda_)
    by_name = {signal.name: signal.values for signal in pick_signals}
    reliabilities = [
        reliability(f"{name} (as it is)", CORRECT, by_name[name], correct, bootstrap)
        for name in ("energy-weighted share", "vote share")
        if name in by_name
    ]
    others, outcomes, where = by_name, None, "other folds of the test picks"
    fitted_on = "the picks of other test problems (5 folds)"
    if validation.num_pools > 0 and validation.num_members == pools.num_members:
        others = {signal.name: signal.values for signal in signals(validation, lambda_)}
        outcomes = validation.at(validation.correct, validation.select(lambda_))
        where, fitted_on = "validation picks", "the picks of validation problems"
    if shared := [name for name in others if name in by_name]:
        features, of_others = (np.stack([each[name] for name in shared], axis=1) for each in (by_name, others))
        learned = fitted((features, correct), None if outcomes is None else (of_others, outcomes), seed=seed)
        if learned is not None:
            name = f"logistic regression of all signals, fitted on {where}"
            reliabilities.append(reliability(name, CORRECT, learned, correct, bootstrap))
            how = f"logistic regression of all the other signals, fitted on {fitted_on}"
            pick_signals.append(Signal(LEARNED, how, learned))
    worth = worth_of(correct, violation)
    return Trust(
        signals=signal_rows(pick_signals, worth, bootstrap, correct=correct),
        reliabilities=tuple(reliabilities),
        sigma_bins=() if SIGMA not in by_name else sigma_bins(-by_name[SIGMA], worth, bootstrap),
        fitted_on=fitted_on,
    )
