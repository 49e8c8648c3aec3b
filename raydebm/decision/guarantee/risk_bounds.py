"""What a sample of losses says about their mean: p-values of "it is above alpha", and upper confidence bounds.

Losses that are 0 or 1 are counted and binomial. Losses in between, such as violation scores, are bet against, which
is much sharper than a bound by their sum alone where they scatter little.
"""

import math

import numpy as np
from scipy.special import bdtr, betaincinv

from raydebm.decision.evidence.groups import Floats

BETTING_LEVEL = 0.05
"""The bets are made for p-values of about this size; those of any other size are as valid."""


def risk_p_value(wrong: float, count: int, alpha: float) -> float:
    """p-value of "the share of wrong answers is above alpha" after ``count`` answers; 1 without any."""
    return 1.0 if count == 0 else float(bdtr(_whole(wrong), count, alpha))


def _whole(wrong: float) -> int:
    """Wrong answers, an answer that is half wrong counted as wrong, but for rounding errors of their sum."""
    return math.ceil(round(wrong, 9))


def betting_p_value(losses: Floats, alpha: float) -> float:
    """p-value of "the mean loss is above alpha"; 1 without any loss.

    A capital of 1 is put on losses below alpha: each loss multiplies it by 1 + share * (alpha - loss). Where the mean
    is above alpha no share is expected to gain, so the capital ever reaches 1 / p with probability p at most (Ville's
    inequality). The share follows from the losses before: sqrt(2 log(1 / BETTING_LEVEL) / (n * their variance)), at
    most 1 (Waudby-Smith and Ramdas, arXiv 2010.09686).

    Args:
        losses: (n,) in [0, 1], in an order that says nothing about them.
        alpha: in (0, 1).
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
    """The largest share of wrong answers that is not rejected at this level (Clopper-Pearson)."""
    if count == 0:
        return 1.0
    whole = _whole(wrong)
    return 1.0 if whole >= count else float(betaincinv(whole + 1, count - whole, 1 - level))


def betting_upper_bound(losses: Floats, level: float) -> float:
    """The largest mean loss that is not rejected at this level."""
    if len(losses) == 0:
        return 1.0
    low, high = float(losses.mean()), 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if betting_p_value(losses, middle) > level else (low, middle)
    return high
