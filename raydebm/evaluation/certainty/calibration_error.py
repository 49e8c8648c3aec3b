"""Expected calibration error in bins of equal mass, and what a perfectly calibrated probability would have.

Bins of equal width leave most of them nearly empty when a confidence gathers near 1. Here each of ten bins holds a
tenth of the problems, as in Nguyen and O'Connor (2015, "Posterior calibration and exploratory analysis for natural
language processing models", section 3), so that every bin's accuracy rests on equally many.

The error is a mean of absolute values, so chance alone makes it larger than 0, and resampled problems make it larger
still: a percentile bootstrap would give a perfectly calibrated confidence an interval above its own value. It is stated
next to what chance alone brings instead.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.stats.intervals import Floats, weighted_sums
from raydebm.identity import seed_for

NUM_BINS = 10
NUM_SIMULATIONS = 1000
AT_ONCE = 100
"""Simulations that are drawn together, which bounds the memory."""
QUANTILE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """Mean over the bins of |mean of what happened - mean probability|, by their weight."""

    value: float | None
    """None without any problem."""
    n: int
    """Problems that it rests on."""
    perfect: float | None = None
    """What it would be on average, were each of the same problems right with just the probability stated for it; None
    where outcomes are graded, or not independent."""
    perfect_high: float | None = None
    """What it would then exceed with a chance of 5 %."""


def equal_mass_bins(values: Floats, weights: Floats | None = None) -> NDArray[np.intp]:
    """The bin, from 0 to 9, of each value: by its rank, so that each bin holds a tenth of the values.

    Equal values share the bin of their middle rank, so the order of the problems changes nothing. Many equal values
    leave the next bins empty.

    Args:
        values: shape (n,).
        weights: of each value, > 0; None: they all weigh the same.
    """
    if len(values) == 0:
        return np.zeros(0, dtype=np.intp)
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    mass = sizes if weights is None else np.bincount(group, weights=weights)
    # The middle of a group's mass, in tenths of all. What rounding leaves below a whole number belongs to it.
    middle = (np.cumsum(mass) - mass / 2) * NUM_BINS / mass.sum()
    bins: NDArray[np.intp] = np.minimum(np.floor(middle + 1e-9), NUM_BINS - 1).astype(np.intp)
    return bins[group]


def calibration_error(
    predicted: Floats, happened: Floats, place: NDArray[np.intp], *, seed: int = 0
) -> CalibrationError:
    """The error of probabilities of n problems, and for outcomes of 1 and 0 that of perfectly calibrated ones.

    Args:
        predicted: shape (n,).
        happened: shape (n,).
        place: the bin of each prediction.
        seed: of the simulated outcomes.
    """
    n = len(predicted)
    if n == 0:
        return CalibrationError(value=None, n=0)
    member = place[:, None] == np.arange(NUM_BINS)
    value = float(_errors((predicted - happened)[None], member)[0])
    if not np.isin(happened, (0.0, 1.0)).all():
        return CalibrationError(value=value, n=n)
    chance = _by_chance(predicted, member, seed=seed)
    return CalibrationError(
        value=value, n=n, perfect=float(chance.mean()), perfect_high=float(np.quantile(chance, QUANTILE))
    )


def _errors(gaps: Floats, member: NDArray[np.bool_]) -> Floats:
    """(B, n) gaps, predicted minus happened -> (B,): the error of each row."""
    errors: Floats = np.abs(weighted_sums(gaps, member.astype(np.float64))).sum(axis=1) / gaps.shape[1]
    return errors


def _by_chance(predicted: Floats, member: NDArray[np.bool_], *, seed: int) -> Floats:
    """The errors of outcomes that are drawn with the probabilities stated, one per simulation."""
    n = len(predicted)
    generator = np.random.default_rng(seed_for(seed, "perfectly calibrated", n))
    return np.concatenate(
        [
            _errors(predicted - (generator.random((AT_ONCE, n)) < predicted), member)
            for _ in range(NUM_SIMULATIONS // AT_ONCE)
        ]
    )
