"""How far probabilities can be taken at their word: reliability bins, ECE and Brier score.

Of what probability is stated with every result. For "the selection is correct": the raw energy-weighted share of the
pick's answer, the vote share, and two fits on the picks of validation problems (logistic regression of mu, sigma and
the agreement signals; isotonic regression of sigma alone). Without validation problems the fits are made on the test
problems by five-fold cross-fitting (no problem is predicted by a fit that saw it), which the name then says. For "this
candidate is the correct one of the two": sigmoid of the energy difference, which is what training fits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.certainty.calibration_error import (
    NUM_BINS,
    CalibrationError,
    calibration_error,
    equal_mass_bins,
)
from raydebm.evaluation.certainty.signals import SIGMA, Signal
from raydebm.evaluation.certainty.worth import CORRECT
from raydebm.evaluation.pools.pool import Floats, Ints
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import MIN_PER_CLASS, Bootstrap, Estimate, fewest_of_a_class
from raydebm.evaluation.stats.logistic import standardized_logistic
from raydebm.identity import seed_for

NUM_FOLDS = 5
POOLS_AT_ONCE = 1024
"""Pools whose pairs are compared together, which bounds the memory."""
FitAndPredict = Callable[[Floats, Floats, Floats], Floats]
"""(features (n, F), correct (n,), features to predict (m, F)) -> probabilities (m,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    low: float
    high: float
    n: int
    mean_predicted: float
    accuracy: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """One probability and what happened."""

    name: str
    event: str
    """What it is the probability of."""
    ece: CalibrationError
    """Expected calibration error, in ten bins of equal mass."""
    brier: Estimate
    """Mean squared error; lower is better."""
    base_brier: float | None
    """Brier score of always saying the mean accuracy, which knows nothing about single problems."""
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmaBin:
    """Accuracy of the picks, or 1 - their violation, within one tenth of the problems by sigma."""

    low: float
    high: float
    accuracy: Estimate


def reliability(name: str, event: str, predicted: Floats, happened: Floats, bootstrap: Bootstrap) -> Reliability:
    """Compare probabilities with what happened, in ten bins of equal mass. NaN in either leaves a problem out."""
    known = np.flatnonzero(~(np.isnan(predicted) | np.isnan(happened)))
    p, y = predicted[known], happened[known]
    place = equal_mass_bins(p)
    return Reliability(
        name=name,
        event=event,
        ece=calibration_error(p, y, place),
        brier=bootstrap.mean((predicted - happened) ** 2),
        base_brier=float(((y - y.mean()) ** 2).mean()) if len(known) else None,
        bins=tuple(_bin(known[place == index], predicted, happened, bootstrap) for index in np.unique(place)),
    )


def _bin(rows: NDArray[np.intp], predicted: Floats, happened: Floats, bootstrap: Bootstrap) -> Bin:
    inside = np.full(len(happened), math.nan)
    inside[rows] = happened[rows]
    return Bin(
        low=float(predicted[rows].min()),
        high=float(predicted[rows].max()),
        n=len(rows),
        mean_predicted=float(predicted[rows].mean()),
        accuracy=bootstrap.proportion(inside),
    )


def sigma_bins(sigma: Floats, worth: Floats, bootstrap: Bootstrap) -> tuple[SigmaBin, ...]:
    """Mean worth in bins of equally many problems, from the lowest sigma to the highest (paper, calibration figure)."""
    known = np.flatnonzero(~(np.isnan(sigma) | np.isnan(worth)))
    groups = np.array_split(known[np.argsort(sigma[known], kind="stable")], NUM_BINS)
    bins = []
    for group in groups:
        if len(group):
            values = np.full(len(sigma), math.nan)
            values[group] = worth[group]
            low, high = float(sigma[group].min()), float(sigma[group].max())
            bins.append(SigmaBin(low=low, high=high, accuracy=bootstrap.proportion(values)))
    return tuple(bins)


def logistic(features: Floats, correct: Floats, asked: Floats) -> Floats:
    """Probabilities that ``asked`` is correct, by a standardised logistic regression on labelled rows."""
    probabilities: Floats = standardized_logistic().fit(features, correct).predict_proba(asked)[:, 1]
    return probabilities


def isotonic(features: Floats, correct: Floats, asked: Floats) -> Floats:
    """An isotonic fit of the first feature alone, rising."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    probabilities: Floats = model.fit(features[:, 0], correct).predict(asked[:, 0])
    return probabilities


def fitted(
    fit: FitAndPredict,
    test: tuple[Floats, Floats],
    validation: tuple[Floats, Floats] | None,
    *,
    seed: int,
) -> Floats | None:
    """Probabilities (P,) for the test problems; None when there are too few of one class to fit on.

    Args:
        fit: how.
        test: features (P, F) and outcomes (P,); NaN leaves a problem out.
        validation: the same of other problems; None: cross-fitting on the test problems.
        seed: of the folds.
    """
    features, correct = test
    usable = ~np.isnan(features).any(axis=1)
    labelled = usable & ~np.isnan(correct)
    probabilities = np.full(len(correct), math.nan)
    if not usable.any():
        return None
    if validation is not None:
        known = ~(np.isnan(validation[0]).any(axis=1) | np.isnan(validation[1]))
        if not _both_classes(validation[1][known]):
            return None
        probabilities[usable] = fit(validation[0][known], validation[1][known], features[usable])
        return probabilities
    if not _both_classes(correct[labelled]):
        return None
    fold = np.random.default_rng(seed_for(seed, "folds", len(correct))).permutation(len(correct)) % NUM_FOLDS
    for index in range(NUM_FOLDS):
        train, asked = labelled & (fold != index), usable & (fold == index)
        if asked.any() and len(set(correct[train])) == 2:
            probabilities[asked] = fit(features[train], correct[train], features[asked])
    return probabilities


def _both_classes(correct: Floats) -> bool:
    """Fewer correct or incorrect picks say nothing about a probability."""
    return fewest_of_a_class(correct) >= MIN_PER_CLASS


def _columns(signals: Sequence[Signal], names: Sequence[str]) -> Floats:
    """(P, F): signals as features, in the order of the names."""
    by_name = {signal.name: signal.values for signal in signals}
    return np.stack([by_name[name] for name in names], axis=1)


def pick_reliabilities(
    signals: Sequence[Signal],
    correct: Floats,
    bootstrap: Bootstrap,
    *,
    validation: tuple[Sequence[Signal], Floats] | None,
    seed: int,
) -> tuple[list[Reliability], Floats | None]:
    """Reliability of each estimate that the selection is correct, and the logistic fit's probabilities as a signal."""
    event = CORRECT
    by_name = {signal.name: signal.values for signal in signals}
    raw = [
        reliability(f"{name} (as it is)", event, by_name[name], correct, bootstrap)
        for name in ("energy-weighted share", "vote share")
        if name in by_name
    ]
    where = "validation picks" if validation is not None else "other folds of the test picks"
    shared = list(by_name) if validation is None else [s.name for s in validation[0] if s.name in by_name]
    if not shared:
        return raw, None
    logistic_fit: Floats | None = None
    for name, how, fit, names in (
        ("logistic", "of all signals", logistic, shared),
        ("isotonic", "of sigma", isotonic, [SIGMA] if SIGMA in shared else []),
    ):
        if not names:
            continue
        others = None if validation is None else (_columns(validation[0], names), validation[1])
        probabilities = fitted(fit, (_columns(signals, names), correct), others, seed=seed)
        if probabilities is not None:
            raw.append(
                reliability(f"{name} regression {how}, fitted on {where}", event, probabilities, correct, bootstrap)
            )
            logistic_fit = probabilities if name == "logistic" else logistic_fit
    return raw, logistic_fit


def pair_reliability(stack: Stack, bootstrap: Bootstrap) -> Reliability | None:
    """Reliability of "this one of a pair is the correct one", sigmoid(E_other - E_this), as trained.

    Both readings of each pair count (p and 1 - p), so the accuracy in the bins is symmetric about one half; each
    problem weighs the same. Pairs of one problem share candidates, so what chance alone brings is not stated.
    """
    if stack.num_members == 0:
        return None
    pairs = _Pairs.of(stack.mu(), stack.correct)
    if not len(pairs.row):
        return None
    sums, edges = pairs.by_bin(len(stack.problems))
    total, known = sums.sum(axis=0), np.any(sums[:, :, 0] > 0, axis=1)
    squares = np.bincount(pairs.row, weights=2 * pairs.weight * (1 - pairs.p) ** 2, minlength=len(stack.problems))
    missed = float(np.abs(total[:, 1] - total[:, 2]).sum() / total[:, 0].sum())
    return Reliability(
        name="sigmoid of the difference of mu (as trained)",
        event="this one of a correct and an incorrect candidate of a problem is the correct one",
        ece=CalibrationError(value=missed, n=int(known.sum())),
        brier=bootstrap.mean(np.where(known, squares, math.nan)),
        base_brier=0.25,
        bins=tuple(
            Bin(
                low=edges[index][0],
                high=edges[index][1],
                n=int((sums[:, index, 0] > 0).sum()),
                mean_predicted=float(total[index, 1] / total[index, 0]),
                accuracy=bootstrap.ratio(sums[:, index, 2], sums[:, index, 0]),
            )
            for index in sorted(edges)
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """All pairs of a correct and an incorrect candidate of one problem."""

    row: Ints
    """The problem."""
    p: Floats
    """That the correct one is the correct one."""
    weight: Floats
    """What one reading weighs; the two readings of all pairs of a problem weigh 1."""

    @classmethod
    def of(cls, mu: Floats, correct: Floats) -> "_Pairs":
        """Pairs of scored candidates."""
        scored = ~np.isnan(mu)
        good, bad = scored & (correct == 1), scored & (correct == 0)
        rows, probabilities = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
        for start in range(0, len(mu), POOLS_AT_ONCE):
            part = slice(start, start + POOLS_AT_ONCE)
            row, one, other = np.nonzero(good[part][:, :, None] & bad[part][:, None, :])
            rows.append(row + start)
            probabilities.append(0.5 * (1 + np.tanh(0.5 * (mu[row + start, other] - mu[row + start, one]))))
        row = np.concatenate(rows)
        return cls(row, np.concatenate(probabilities), 1 / (2 * np.bincount(row, minlength=len(mu))[row]))

    def by_bin(self, num_problems: int) -> tuple[Floats, dict[int, tuple[float, float]]]:
        """Each problem's readings by bin, as weight, mean prediction and outcome, (num_problems, NUM_BINS, 3); and the
        lowest and highest prediction of each bin that has one."""
        weight, predicted = np.tile(self.weight, 2), np.concatenate([self.p, 1 - self.p])
        place = equal_mass_bins(predicted, weight)
        happened = np.repeat([1.0, 0.0], len(self.p))
        cell = np.tile(self.row, 2) * NUM_BINS + place
        sums = [
            np.bincount(cell, weights=weight * values, minlength=num_problems * NUM_BINS)
            for values in (np.ones(len(predicted)), predicted, happened)
        ]
        edges = {
            int(index): (float(predicted[place == index].min()), float(predicted[place == index].max()))
            for index in np.unique(place)
        }
        return np.stack(sums, axis=1, dtype=np.float64).reshape((num_problems, NUM_BINS, 3)), edges
