"""Array functions: mean and minimum per group, quotients with a zero check, the logistic function."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


def lowest(values: Floats, groups: Ints, count: int) -> Floats:
    """Minimum per group; NaN for a group without a value."""
    minima = np.full(count, math.inf)
    np.minimum.at(minima, groups, values)
    return np.where(np.isinf(minima), math.nan, minima)


def mean(values: Floats, groups: Ints, count: int) -> Floats:
    """Mean per group; NaN for a group without a value."""
    sizes = np.bincount(groups, minlength=count)
    return ratio(np.bincount(groups, values, count), sizes)


def ratio(top: NDArray[Any], bottom: NDArray[Any]) -> Floats:
    """Quotients of two vectors; NaN where the divisor is 0."""
    quotients: Floats = np.divide(top, bottom, out=np.full(len(top), math.nan), where=bottom > 0)
    return quotients


def sigmoid(log_odds: Floats) -> Floats:
    """Elementwise probabilities of log-odds."""
    probabilities: Floats = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
    return probabilities
