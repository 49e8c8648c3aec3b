"""Calibration of a confidence, which must be a probability."""

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import Reliability, reliability
from raydebm.evaluation.stats.intervals import Bootstrap, Floats


def confidence_calibration(
    name: str, event: str, confidence: Floats, happened: Floats, bootstrap: Bootstrap
) -> Reliability:
    """Compare a confidence with what happened, as ``reliability`` does.

    Args:
        name: of the confidence.
        event: what it is the probability of.
        confidence: in [0, 1], shape (n,); NaN leaves a problem out.
        happened: 1 or 0, or graded in between, shape (n,); NaN leaves a problem out.
        bootstrap: resamples of the n problems.

    Raises:
        PoolError: a confidence is outside [0, 1].
    """
    outside = confidence[~np.isnan(happened) & ((confidence < 0) | (confidence > 1))]
    if len(outside):
        raise PoolError(f"{name} is no probability: it is {outside[0]:g} for a problem, and must be in [0, 1]")
    return reliability(name, event, confidence, happened, bootstrap)
