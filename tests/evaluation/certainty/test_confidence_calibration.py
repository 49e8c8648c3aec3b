"""Calibration in bins of equal mass, every number by hand."""

import math

import numpy as np
import pytest

from raydebm.evaluation.certainty.reliability import calibration_error, equal_mass_bins, reliability
from raydebm.evaluation.stats.intervals import Bootstrap


def calibration(confidence, happened):
    values = np.array(confidence, dtype=float)
    bootstrap = Bootstrap.of(len(values), num_bootstrap=200, seed=0)
    return reliability("p", "it is so", values, np.array(happened, dtype=float), bootstrap)


def test_twenty_values_make_ten_bins_of_two():
    assert equal_mass_bins(np.arange(20.0)[::-1]).tolist() == [9 - place // 2 for place in range(20)]


def test_every_group_of_equal_values_has_the_bin_of_its_own_middle():
    # Masses 6, 2 and 2 of 10: their middles are 3, 7 and 9.
    values = np.array([0.1] * 6 + [0.2] * 2 + [0.3] * 2)

    assert equal_mass_bins(values).tolist() == [3] * 6 + [7] * 2 + [9] * 2


def test_ece_by_hand():
    """Twenty problems, two a bin, confidences of a bin equal: |0.05 - 0.5| in the lowest, else exactly right."""
    confidence = np.repeat([0.05, 0.0, 0.01, 0.02, 0.03, 0.04, 0.96, 0.97, 0.98, 0.99], 2)
    happened = np.array([1, 0] + [0] * 10 + [1] * 8)

    row = calibration(confidence, happened)

    gaps = [0.45, 0, 0.01, 0.02, 0.03, 0.04, 0.04, 0.03, 0.02, 0.01]
    assert row.ece.value == pytest.approx(sum(gaps) / 10)
    assert [bin_.n for bin_ in row.bins] == [2] * 10


def test_bins_say_range_mean_and_accuracy():
    row = calibration([0.9, 0.9, 0.1, 0.3], [1, 0, 0, 1])

    # Middle ranks 0.5 and 1.5 of 4 (tenths 1 and 3), and 3 for both 0.9 (tenth 7).
    assert [(b.low, b.high, b.mean_predicted, b.accuracy.value, b.n) for b in row.bins] == [
        (0.1, 0.1, 0.1, 0.0, 1),
        (0.3, 0.3, 0.3, 1.0, 1),
        (0.9, 0.9, pytest.approx(0.9), 0.5, 2),
    ]
    assert row.ece.value == pytest.approx((0.1 + 0.7 + 2 * 0.4) / 4)


def test_brier_scores_by_hand():
    row = calibration([0.9, 0.5], [1, 0])

    assert row.brier.value == pytest.approx((0.01 + 0.25) / 2)
    assert row.base_brier == pytest.approx(0.25)


def test_problems_without_confidence_or_outcome_are_left_out():
    row = calibration([0.5, math.nan, 0.5], [1, 1, math.nan])

    assert (row.ece.n, row.ece.value, row.bins[0].n) == (1, 0.5, 1)


def test_without_any_problem_there_is_no_number():
    row = calibration([math.nan], [1])

    assert (row.ece.value, row.brier.value, row.base_brier, row.bins) == (None, None, None, ())


def of_coins(n):
    """One bin: n problems of probability 1/2, all right."""
    return calibration_error(np.full(n, 0.5), np.ones(n), np.zeros(n, dtype=np.intp))


def test_a_perfect_confidence_in_two_coins_is_off_half_the_time():
    """Both right or both wrong, chance 1/2: off by 1/2. Else: not at all."""
    error = of_coins(2)

    assert error.perfect == pytest.approx(0.25, abs=0.03)
    assert error.perfect_high == 0.5


def test_a_perfect_confidence_in_four_hundred_coins_is_off_by_its_standard_error():
    """Normal with deviation 0.5 / sqrt(400) = 0.025: its absolute value has mean 0.025 sqrt(2 / pi), and 5 % of it are
    above 1.96 * 0.025."""
    error = of_coins(400)

    assert error.perfect == pytest.approx(0.0199, abs=0.002)
    assert error.perfect_high == pytest.approx(0.049, abs=0.004)


def test_graded_outcomes_have_no_perfect_confidence_to_compare_with():
    row = calibration([0.9, 0.5], [0.8, 0.5])

    assert (row.ece.perfect, row.ece.perfect_high) == (None, None)
    assert row.ece.value == pytest.approx((0.1 + 0.0) / 2)
