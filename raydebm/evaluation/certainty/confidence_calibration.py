"""Calibration of a confidence in bins of equal mass.

Bins of equal width (``reliability``) leave most of them nearly empty when a confidence gathers near 1. Here each of ten
bins holds a tenth of the problems, as in Nguyen and O'Connor (2015, "Posterior calibration and exploratory analysis for
natural language processing models", section 3), so that every bin's accuracy rests on equally many.
"""

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import NUM_BINS, Binning, Reliability, reliability
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
    outside = confidence[~np.isnan(happened) & ((confidence < 0) | (confidence > 1))]
    if len(outside):
        raise PoolError(f"{name} is no probability: it is {outside[0]:g} for a problem, and must be in [0, 1]")
    return reliability(name, event, confidence, happened, bootstrap, EQUAL_MASS)


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


EQUAL_MASS = Binning(
    place=equal_mass_bins,
    edges=lambda index, confidence: (float(confidence.min()), float(confidence.max())),
)
"""A tenth of the problems per bin; the edges are the lowest and highest confidence in it."""
