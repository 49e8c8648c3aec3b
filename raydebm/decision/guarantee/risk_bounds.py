"""p-values of "the mean loss is above alpha", and upper confidence bounds of the mean loss.

The sum of losses of 0 or 1 is binomial. Losses in between, such as violation scores, are tested by betting, which is
much sharper than a bound on their sum if their variance is small.
"""

import math

import numpy as np
from scipy.special import bdtr, betaincinv

from raydebm.decision.table import Floats

BETTING_LEVEL = 0.05
"""p-value for which the bets are most efficient. They are valid for every p-value."""


def risk_p_value(wrong: float, count: int, alpha: float) -> float:
    """p-value of "the share of wrong answers is above alpha" after ``count`` answers; 1 without answers."""
    return 1.0 if count == 0 else float(bdtr(_whole(wrong), count, alpha))


def _whole(wrong: float) -> int:
    """Number of wrong answers: a sum of losses, rounded up after removing rounding errors."""
    return math.ceil(round(wrong, 9))


def betting_p_value(losses: Floats, alpha: float) -> float:
    """p-value of "the mean loss is above alpha"; 1 without losses.

    A capital of 1 is bet on losses below alpha: each loss multiplies it by 1 + share * (alpha - loss). If the mean is
    above alpha, no share has a positive expected gain, so the capital ever reaches 1 / p with probability at most p
    (Ville's inequality). The share depends only on earlier losses: sqrt(2 log(1 / BETTING_LEVEL) / (n * their
    variance)), at most 1 (Waudby-Smith and Ramdas, arXiv 2010.09686).

    Args:
        losses: losses in [0, 1], shape (n,), in an order independent of their values.
        alpha: hypothesised mean, in (0, 1).
    """
    if len(losses) == 0:
        return 1.0
    count = np.arange(1, len(losses) + 1)
    means = (0.5 + np.cumsum(losses)) / (count + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    share = np.minimum(np.sqrt(2 * math.log(1 / BETTING_LEVEL) / (len(losses) * before)), 1.0)
    capital = np.cumsum(np.log1p(share * (alpha - losses)))
    return float(min(np.exp(-capital.max()), 1.0))


def risk_upper_bound(wrong: float, count: int, level: float) -> float:
    """Largest share of wrong answers that is not rejected at this level (Clopper-Pearson)."""
    if count == 0:
        return 1.0
    whole = _whole(wrong)
    return 1.0 if whole >= count else float(betaincinv(whole + 1, count - whole, 1 - level))


def betting_upper_bound(losses: Floats, level: float) -> float:
    """Largest mean loss that is not rejected at this level."""
    if len(losses) == 0:
        return 1.0
    low, high = float(losses.mean()), 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if betting_p_value(losses, middle) > level else (low, middle)
    return high
