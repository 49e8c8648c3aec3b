import math

import numpy as np
import pytest

from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.stats.significance import (
    compare,
    distinct,
    holm_adjusted,
    mcnemar_p_value,
    p_text,
    sign_flip_p_values,
)


def test_mcnemar_by_hand():
    """Eight problems where only one is right, seven of them the first: 2 * (1 + 8) / 2**8."""
    difference = np.array([1.0] * 7 + [-1.0] + [0.0] * 20 + [math.nan])

    assert mcnemar_p_value(difference) == pytest.approx(18 / 256)


def test_without_any_disagreement_nothing_is_shown():
    assert mcnemar_p_value(np.zeros(5)) == 1.0
    assert mcnemar_p_value(np.array([math.nan])) is None


def test_signs_are_flipped_where_both_are_known():
    """Of the eight signs of three gains two are as extreme; the fourth problem is not known of both."""
    gains, nothing = np.array([1.0, 1.0, math.nan, 1.0]), np.full(4, math.nan)

    some, none = sign_flip_p_values([gains, nothing], seed=0)

    assert some == pytest.approx(2 / 8, abs=0.02)
    assert none is None


def test_sign_flips_are_the_same_for_the_same_seed_and_never_zero():
    difference = np.ones(40) * 0.5

    assert sign_flip_p_values([difference], seed=1) == sign_flip_p_values([difference], seed=1) == [1 / 10_001]


def test_holm_by_hand():
    assert holm_adjusted([0.01, None, 0.04, 0.03]) == [
        pytest.approx(0.03),
        None,
        pytest.approx(0.06),
        pytest.approx(0.06),
    ]


def test_pairs_that_differ_in_order_alone_are_one_hypothesis():
    assert distinct([("a", "b"), ("c", "a"), ("b", "a"), ("a", "b")]) == [("a", "b"), ("c", "a")]


def test_a_verdict_counts_the_other_comparisons_of_the_table():
    """p = 2 / 2**6 alone, and twice that next to one other comparison."""
    values = {"a": np.array([1.0] * 6 + [0.0] * 20), "b": np.zeros(26), "c": np.zeros(26)}
    bootstrap = Bootstrap.of(26, num_bootstrap=100, seed=0)

    (first, _) = compare(values, [("a", "b"), ("b", "c")], bootstrap=bootstrap, seed=0)

    assert (first.p_holm, first.verdict) == (pytest.approx(4 / 64), "not shown")


def test_binary_and_expected_values_get_the_test_that_fits():
    values = {
        "energy (paper)": np.array([1.0, 1, 0, 1]),
        "vote": np.array([1.0, 0, 0, 0]),
        "random": np.array([0.5, 0.2, 0.1, 0]),
    }
    bootstrap = Bootstrap.of(4, num_bootstrap=100, seed=0)

    vote, chance = compare(
        values,
        [("energy (paper)", "vote"), ("energy (paper)", "random"), ("energy (paper)", "absent")],
        bootstrap=bootstrap,
        seed=0,
    )

    assert (vote.test, vote.p_value, vote.only_one, vote.only_other) == ("McNemar, exact", 0.5, 2.0, 0.0)
    assert chance.test == "sign-flip permutation"
    assert chance.difference.value == pytest.approx((0.5 + 0.8 - 0.1 + 1.0) / 4)


def test_a_selector_without_a_common_problem_has_no_p_value():
    values = {"a": np.array([1.0, math.nan]), "b": np.array([math.nan, 1.0])}

    (comparison,) = compare(values, [("a", "b")], bootstrap=Bootstrap.of(2, num_bootstrap=100, seed=0), seed=0)

    assert (comparison.p_value, comparison.test, comparison.difference.value) == (None, "none", None)


def test_p_values_as_text():
    given = (None, math.nan, 0.0009, 0.001, 0.0421)

    assert [p_text(p) for p in given] == ["-", "-", "<0.001", "0.001", "0.042"]


def test_several_trainings_differ_by_the_mean_over_those_that_know_both():
    values = {"a": np.array([[1.0, 1.0], [math.nan, 0.0]]), "b": np.array([[1.0, 0.0], [0.0, 1.0]])}

    (comparison,) = compare(values, [("a", "b")], bootstrap=Bootstrap.of(2, num_bootstrap=100, seed=0), seed=0)

    assert (comparison.difference.value, comparison.only_one, comparison.only_other) == (0.0, 0.0, 0.0)


def test_trainings_that_do_not_agree_are_no_wins_and_losses():
    values = {"a": np.array([[1.0, 1.0], [1.0, 0.0]]), "b": np.zeros((2, 2))}

    (comparison,) = compare(values, [("a", "b")], bootstrap=Bootstrap.of(2, num_bootstrap=100, seed=0), seed=0)

    assert (comparison.test, comparison.difference.value) == ("sign-flip permutation", 0.75)
