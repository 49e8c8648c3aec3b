"""Order within rows, by hand and against counting every pair."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydebm.evaluation.pools.standings import medians, pair_accuracies, standings

VALUES = st.sampled_from([0.0, 1.0, 2.5, math.inf])


def test_equal_values_count_each_other_and_are_not_lower():
    lower, equal = standings(np.array([[2.0, 1.0, 2.0, 5.0]]))

    assert lower.tolist() == [[1, 0, 1, 3]]
    assert equal.tolist() == [[2, 1, 2, 1]]


@given(row=st.lists(VALUES, min_size=1, max_size=7))
def test_standings_count_every_other_value(row):
    lower, equal = standings(np.array([row]))

    assert lower[0].tolist() == [sum(other < value for other in row) for value in row]
    assert equal[0].tolist() == [sum(other == value for other in row) for value in row]


@given(
    rows=st.lists(
        st.lists(st.tuples(VALUES | st.just(math.nan), st.sampled_from([1.0, 0.0, math.nan])), min_size=4, max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_pair_accuracies_compare_every_pair(rows):
    energy, correct = np.moveaxis(np.array(rows), 2, 0)

    np.testing.assert_allclose(pair_accuracies(energy, correct), [share_of_pairs(row) for row in rows])


def share_of_pairs(row):
    good, bad = ([energy for energy, label in row if label == wanted and not math.isnan(energy)] for wanted in (1, 0))
    pairs = [1.0 if one < other else 0.5 * (one == other) for one in good for other in bad]
    return sum(pairs) / len(pairs) if pairs else math.nan


def test_a_median_is_within_the_mask():
    values = np.array([[3.0, 1.0, 9.0, 2.0], [4.0, 1.0, 0.0, 0.0], [0.0] * 4])
    mask = np.array([[True, True, False, True], [True, True, False, False], [False] * 4])

    np.testing.assert_array_equal(medians(values, mask), [2.0, 2.5, math.nan])
