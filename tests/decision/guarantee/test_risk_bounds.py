import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from raydebm.decision.guarantee.risk_bounds import (
    BETTING_LEVEL,
    betting_p_value,
    betting_upper_bound,
    risk_p_value,
    risk_upper_bound,
)

losses_lists = st.lists(st.floats(0, 1), min_size=1, max_size=60).map(np.array)


def test_p_value_of_wrong_answers_is_binomial():
    assert risk_p_value(1, 10, 0.2) == pytest.approx(0.8**10 + 10 * 0.2 * 0.8**9)


def test_an_answer_that_is_half_wrong_counts_as_wrong():
    assert risk_p_value(0.5, 10, 0.2) == risk_p_value(1, 10, 0.2)
    assert risk_upper_bound(0.5, 10, 0.05) == risk_upper_bound(1, 10, 0.05)


def test_a_rounding_error_of_a_sum_is_no_loss():
    assert risk_p_value(3 + 1e-12, 10, 0.2) == risk_p_value(3, 10, 0.2)


def test_upper_bound_is_clopper_pearsons():
    expected = binomtest(7, 50).proportion_ci(confidence_level=0.9, method="exact").high

    assert risk_upper_bound(7, 50, 0.05) == pytest.approx(expected)


def test_a_capital_is_put_on_losses_below_alpha():
    """Of two losses 0.2 and 0 the first meets the variance 1/4; it leaves the mean (1/2 + 0.2) / 2 = 0.35 and the
    variance (1/4 + 0.15^2) / 2. The share is at most 1."""
    first = min(math.sqrt(2 * math.log(1 / BETTING_LEVEL) / (2 * 0.25)), 1)
    second = min(math.sqrt(2 * math.log(1 / BETTING_LEVEL) / (2 * (0.25 + 0.15**2) / 2)), 1)

    capital = (1 + first * (0.5 - 0.2)) * (1 + second * (0.5 - 0))

    assert betting_p_value(np.array([0.2, 0.0]), 0.5) == pytest.approx(1 / capital)


def test_later_shares_follow_the_variance_of_the_losses_so_far():
    """Of 100 losses the first is 1: the mean (1/2 + 1) / 2 = 3/4 leaves the variance (1/4 + 1/16) / 2 = 5/32 for the
    second share. The second loss, 0, leaves the mean 1/2 and the variance (5/16 + 1/4) / 3 = 3/16 for the third."""
    first, second, third = (math.sqrt(2 * math.log(20) / (100 * variance)) for variance in (1 / 4, 5 / 32, 3 / 16))
    losses = np.array([1.0, 0.0, 0.0] + [1.0] * 97)

    capital = (1 + first * (0.9 - 1)) * (1 + second * 0.9) * (1 + third * 0.9)

    assert betting_p_value(losses, 0.9) == pytest.approx(1 / capital)


def test_the_share_shrinks_with_the_number_of_losses():
    """200 losses: the first share is sqrt(2 log 20 / (200 / 4)) = 0.346, and a loss above alpha costs it."""
    share = math.sqrt(2 * math.log(20) / 50)
    losses = np.array([0.0] + [1.0] * 199)

    assert betting_p_value(losses, 0.3) == pytest.approx(1 / (1 + 0.3 * share))


@given(losses=losses_lists, level=st.floats(0.001, 0.5))
def test_the_upper_bound_is_where_the_p_value_reaches_the_level(losses, level):
    bound = betting_upper_bound(losses, level)

    assert losses.mean() - 1e-9 <= bound <= 1
    if bound < 1 - 1e-6:
        assert betting_p_value(losses, bound + 1e-6) <= level + 1e-9
        if bound > losses.mean() + 1e-6:
            assert betting_p_value(losses, bound - 1e-6) >= level - 1e-6


@given(losses=losses_lists, alpha=st.floats(0.01, 0.98))
def test_a_larger_error_is_easier_to_guarantee(losses, alpha):
    assert betting_p_value(losses, alpha + 0.01) <= betting_p_value(losses, alpha) + 1e-9
    wrong = float((losses > 0.5).sum())
    assert risk_p_value(wrong, len(losses), alpha + 0.01) <= risk_p_value(wrong, len(losses), alpha) + 1e-9


@pytest.mark.parametrize("shape", [(0.2, 1.8), (2.0, 18.0), (0.05, 0.45)], ids=["skewed", "narrow", "nearly binary"])
def test_a_false_mean_is_accepted_no_more_often_than_guaranteed(shape):
    """Losses with the mean 0.1, against "it is above 0.1 - 1e-9"."""
    rng = np.random.default_rng(0)

    p_values = np.array([betting_p_value(rng.beta(*shape, size=60), 0.1) for _ in range(2000)])

    for level in (0.025, 0.1):
        assert (p_values <= level).mean() <= level
