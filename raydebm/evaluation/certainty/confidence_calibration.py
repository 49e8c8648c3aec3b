"""Calibration of a confidence in bins of equal mass.

Bins of equal width (``reliability``) leave most of them nearly empty when a confidence gathers near 1. Here each of ten
bins holds a tenth of the problems, as in Nguyen and O'Connor (2015, "Posterior calibration and exploratory analysis for
natural language processing models", section 3), so that every bin's accuracy rests on equally many.
"""

import math

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import NUM_BINS, Bin, Reliability, calibration_error
from raydebm.evaluation.stats.intervals import Bootstrap, Floats


def confidence_calibration(
    name: str, event: str, confidence: Floats, happened: Floats, bootstrap: Bootstrap
) -> Reliability:
    """Compare a confidence with what happened, in ten bins of equal mass.

    ECE = sum over bins b of n_b / n * |mean of happened in b - mean confidence in b|. Its interval resamples problems
    and keeps the bins.

    Args:
        name: of the confidence.
        event: what it is the probability of.
        confidence: in [0, 1], shape (n,); NaN leaves a problem out.
        happened: 1 or 0, shape (n,); NaN leaves a problem out.
        bootstrap: resamples of the n problems.

    Raises:
        PoolError: a confidence is outside [0, 1].
    """
    known = ~(np.isnan(confidence) | np.isnan(happened))
    p, y, counts = confidence[known], happened[known], bootstrap.counts[:, known]
    outside = p[(p < 0) | (p > 1)]
    if len(outside):
        raise PoolError(f"{name} is no probability: it is {outside[0]:g} for a problem, and must be in [0, 1]")
    place = equal_mass_bins(p)
    member = place[:, None] == np.arange(NUM_BINS)
    n = len(p)
    value = float(calibration_error(np.ones((1, n)), p - y, member)[0]) if n else math.nan
    return Reliability(
        name=name,
        event=event,
        ece=bootstrap.interval(value, calibration_error(counts, p - y, member) if n else np.zeros(0), n),
        brier=bootstrap.mean((confidence - happened) ** 2),
        base_brier=float(y.mean() * (1 - y.mean())) if n else None,
        bins=tuple(
            _bin(np.flatnonzero(known)[place == index], confidence, happened, bootstrap) for index in np.unique(place)
        ),
    )


def _bin(rows: NDArray[np.intp], confidence: Floats, happened: Floats, bootstrap: Bootstrap) -> Bin:
    inside = np.full(len(happened), math.nan)
    inside[rows] = happened[rows]
    return Bin(
        low=float(confidence[rows].min()),
        high=float(confidence[rows].max()),
        n=len(rows),
        mean_predicted=float(confidence[rows].mean()),
        accuracy=bootstrap.proportion(inside),
    )


def equal_mass_bins(values: Floats) -> NDArray[np.intp]:
    """The bin, from 0 to 9, of each value: by its rank, so that each bin holds a tenth of the values.

    Equal values share the bin of their middle rank, so the order of the problems changes nothing. Many equal values
    leave the next bins empty.
    """
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    below = np.cumsum(sizes) - sizes
    # The middle rank of a group in [0, n] is below + size / 2; whole numbers keep the bins' edges exact.
    middle: NDArray[np.intp] = (2 * below + sizes) * NUM_BINS // (2 * max(len(values), 1))
    return middle[group]
