"""A recorded and a replayed policy, tested on the answers that they gave out about the same problems."""

import pytest

from raydebm.service.store.stored_replay import ReplayedPair, compare_policies

PAIRS = [ReplayedPair(-1, 1)] * 6 + [ReplayedPair(1, 1)] * 3 + [ReplayedPair(1, 0)]


def test_differences_are_those_of_the_replayed_policy():
    right, wrong = compare_policies(PAIRS)
    assert (right.difference.value, right.only_one, right.only_other) == pytest.approx((0.5, 6, 1))
    assert (wrong.difference.value, wrong.only_one, wrong.only_other) == pytest.approx((-0.6, 0, 6))


def test_p_is_that_of_the_exact_mcnemar_test_corrected_for_both():
    right, wrong = compare_policies(PAIRS)
    assert right.p_value == pytest.approx(2 * (1 + 7) / 2**7)  # 6 of 7 or more extreme
    assert wrong.p_value == pytest.approx(2 / 2**6)
    assert (wrong.p_holm, right.p_holm) == pytest.approx((2 * wrong.p_value, right.p_value))


def test_pairs_that_agree_show_nothing():
    right, wrong = compare_policies([ReplayedPair(1, 1), ReplayedPair(0, 0)])
    assert (right.p_value, wrong.p_value, right.difference.value) == (1.0, 1.0, 0.0)
