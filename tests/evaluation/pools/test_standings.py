"""Order within rows, by hand and against counting every pair."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydebm.evaluation.pools.stack import pair_accuracies

VALUES = st.sampled_from([0.0, 1.0, 2.5, math.inf])


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
