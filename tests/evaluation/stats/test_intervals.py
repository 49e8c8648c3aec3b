import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.cpus import usable_cpus
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, on_all_cpus, weighted_auroc


def test_every_resample_has_n_problems():
    assert (Bootstrap.of(7, num_bootstrap=50, seed=0).weights.sum(axis=1) == 7).all()


def test_the_same_seed_gives_the_same_resamples_and_another_does_not():
    one, same, other = (Bootstrap.of(20, num_bootstrap=10, seed=seed).weights for seed in (1, 1, 2))

    assert (one == same).all()
    assert (one != other).any()


def test_a_constant_has_no_width():
    estimate = Bootstrap.of(5, num_bootstrap=100, seed=0).mean(np.ones(5))

    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (1.0, 1.0, 1.0, 5)


def test_problems_without_value_are_left_out_of_mean_and_n():
    estimate = Bootstrap.of(4, num_bootstrap=100, seed=0).mean(np.array([1.0, math.nan, 0.0, math.nan]))

    assert (estimate.value, estimate.n) == (0.5, 2)


def test_nothing_known_has_no_value():
    estimate = Bootstrap.of(2, num_bootstrap=100, seed=0).mean(np.array([math.nan, math.nan]))

    assert (estimate.value, estimate.low, estimate.n) == (None, None, 0)


def test_a_gap_of_zero_cannot_be_closed():
    estimate = Bootstrap.of(3, num_bootstrap=100, seed=0).ratio(np.zeros(3), np.zeros(3))

    assert (estimate.value, estimate.n) == (None, 3)


def test_ratio_is_of_sums_not_a_mean_of_ratios():
    estimate = Bootstrap.of(2, num_bootstrap=100, seed=0).ratio(np.array([1.0, 0.0]), np.array([1.0, 3.0]))

    assert estimate.value == 0.25


def test_the_interval_of_a_ratio_is_divided_by_the_denominators():
    estimate = Bootstrap.of(2, num_bootstrap=100, seed=0).ratio(np.array([1.0, 0.0]), np.array([2.0, 2.0]))

    assert (estimate.low, estimate.high) == (0.0, 0.5)


def test_resamples_without_a_gap_are_left_out_of_the_interval():
    estimate = Bootstrap.of(2, num_bootstrap=400, seed=0).ratio(np.array([0.5, 0.0]), np.array([1.0, 0.0]))

    assert (estimate.value, estimate.low, estimate.high) == (0.5, 0.5, 0.5)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    resamples = Bootstrap.of(60, num_bootstrap=300, seed=0)
    hits = 0
    for _ in range(300):
        estimate = resamples.mean((generator.random(60) < 0.7).astype(float))
        hits += estimate.low <= 0.7 <= estimate.high

    assert 0.90 < hits / 300 < 0.98


@pytest.mark.parametrize(("num_wrong", "has_interval"), [(1, False), (4, False), (5, True)])
def test_an_auroc_has_an_interval_from_five_of_each_class(num_wrong, has_interval):
    """All wrong ones rank below all right ones: resamples of one wrong problem of 27 can give nothing but 1."""
    positives = np.array([0.0] * num_wrong + [1.0] * (27 - num_wrong))
    estimate = Bootstrap.of(27, num_bootstrap=100, seed=0).auroc(np.arange(27.0), positives)

    assert (estimate.value, estimate.low is not None, estimate.high is not None) == (1.0, has_interval, has_interval)


def test_auroc_of_one_class_has_no_value():
    assert Bootstrap.of(2, num_bootstrap=100, seed=0).auroc(np.array([0.1, 0.2]), np.ones(2)).value is None


def test_all_right_is_not_certainty():
    """Of five right ones: at least 0.025 ** (1 / 5) = 47.8 % with 97.5 % confidence."""
    estimate = Bootstrap.of(5, num_bootstrap=50, seed=0).proportion(np.ones(5))

    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(0.4782, abs=1e-4)


def test_minus_an_estimate_turns_its_interval_around():
    assert -Estimate(value=0.5, low=0.2, high=0.9, n=3) == Estimate(value=-0.5, low=-0.9, high=-0.2, n=3)
    assert -NOTHING == NOTHING


def test_items_have_the_weights_of_their_problems():
    """The first problem has two fields, right and wrong, the second one, right. The resample has the first, twice."""
    by_item = Bootstrap(np.array([[1, 1], [2, 0]], dtype=np.uint8)).of_items(np.array([0, 0, 1]))
    estimate = by_item.mean(np.array([1.0, 0.0, 1.0]))
    assert (estimate.value, estimate.low, estimate.high) == (pytest.approx(2 / 3), 0.5, 0.5)


@given(
    rows=st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=8),
    weights=st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=1, max_size=20),
)
def test_weighted_auroc_counts_every_pair_also_in_more_resamples_than_a_block(rows, weights):
    scores, positives = np.array(rows).T
    counts = np.array(weights, dtype=np.uint8)[:, : len(rows)]

    areas = weighted_auroc(scores, positives, counts)

    np.testing.assert_allclose(areas, [area_by_pairs(scores, positives, row.tolist()) for row in counts])


def area_by_pairs(scores, positives, weights):
    items = list(zip(scores, positives, weights, strict=True))
    pairs = [
        (weight * rival, 1.0 if score > other else 0.5 * (score == other))
        for score, label, weight in items
        for other, rival_label, rival in items
        if (label, rival_label) == (1, 0)
    ]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * won for weight, won in pairs) / total if total else math.nan


def test_parts_that_end_in_another_order_keep_their_own():
    """The first part waits until the second is done."""
    second_is_done = threading.Event()

    def work(part):
        if part == 1 and usable_cpus() > 1:
            second_is_done.wait(60)
        if part == 2:
            second_is_done.set()
        return 10 * part

    assert on_all_cpus(work, [1, 2]) == [10, 20]
