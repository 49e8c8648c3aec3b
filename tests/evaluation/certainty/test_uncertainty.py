import math

import numpy as np
import pytest
from hand_made import table_of

from raydebm.evaluation.certainty.signals import Signal, num_answered, risks, signal_rows, signals
from raydebm.evaluation.stats.intervals import Bootstrap


def row_of(certainty, correct):
    bootstrap = Bootstrap.of(len(correct), num_bootstrap=200, seed=0)
    signal = Signal("s", "", np.array(certainty, dtype=float))
    return signal_rows([signal], np.array(correct, dtype=float), bootstrap)[0]


def ones(n):
    return np.ones((1, n))


def test_risks_by_hand():
    """Most certain first: right, wrong, right. Of all 1/3 are wrong, without the last 1/2, of the first none."""
    certainty, right = np.array([1.0, 3.0, 2.0]), np.array([1.0, 1.0, 0.0])

    assert risks(certainty, right, ones(3), (0.0, 1 / 3, 2 / 3)).tolist() == [[pytest.approx(1 / 3), 0.5, 0.0]]


def test_equal_certainty_shares_its_errors():
    """All equal: the risk is 1/2 at every coverage, whatever the order."""
    assert risks(np.zeros(4), np.array([1.0, 0.0, 1.0, 0.0]), ones(4), (0.0, 0.75)).tolist() == [[0.5, 0.5]]


def test_a_weight_is_so_many_equal_problems():
    """Weights 2 and 1, without a third: the first problem's two copies are left."""
    assert risks(np.array([2.0, 1.0]), np.array([1.0, 0.0]), np.array([[2.0, 1.0]]), (1 / 3,)).tolist() == [[0.0]]


def test_graded_worth_sets_the_curves_and_correct_the_auroc():
    """The most certain four of five are worth 0.9, 0.8, 0.7 and 0.6; the two that are correct come first."""
    certainty, worth = np.array([5.0, 4, 3, 2, 1]), np.array([0.9, 0.8, 0.7, 0.6, 0.0])
    bootstrap = Bootstrap.of(5, num_bootstrap=200, seed=0)

    (row,) = signal_rows([Signal("s", "", certainty)], worth, bootstrap, correct=np.array([1.0, 1, 0, 0, 0]))

    assert row.accuracy_at_80.value == pytest.approx(0.75)
    assert row.gain_at_80.value == pytest.approx(0.75 - 0.6)
    assert row.auroc.value == 1.0


def test_problems_without_a_label_or_a_signal_are_left_out():
    row = row_of([3, math.nan, 1, 0], [1, 1, math.nan, 0])

    assert row.auroc.n == 2
    assert row_of([math.nan], [1]).auroc.value is None


def named(pools, lambda_=1.0):
    return {signal.name: signal.values for signal in signals(table_of(pools), lambda_)}


def test_signals_by_hand(make_pool):
    """First pool: x at E = 0, its rival y at 1, two of three say x, adapter 1 alone prefers y. Second: 5 against 9."""
    first = make_pool(
        (1, {"members": (-1.0, 1.0), "key": "x"}),
        (0, {"members": (3.0, 3.0), "key": "x"}),
        (0, {"members": (2.0, 0.0), "key": "y"}),
        problem_id="one",
    )
    second = make_pool(
        (1, {"members": (5.0, 5.0), "key": "x"}), (0, {"members": (9.0, 9.0), "key": "y"}), problem_id="two"
    )

    values = named([first, second])

    assert values["sigma"].tolist() == [-1.0, 0.0]
    assert values["mu of the pick"].tolist() == [0.0, -5.0]
    assert values["vote share"].tolist() == [pytest.approx(2 / 3), 0.5]
    assert values["energy margin"].tolist() == [1 / 2, 4 / 5]  # of 1 and 4
    assert values["adapter agreement"].tolist() == [0.5, 1.0]
    assert values["pool sigma"].tolist() == [pytest.approx(-2 / 3), 0.0]
    mass = [1.0, math.exp(-3.0), math.exp(-1.0)]
    assert values["energy-weighted share"][0] == pytest.approx((mass[0] + mass[1]) / sum(mass))
    assert values["vote entropy"][0] == pytest.approx(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))


def test_where_nothing_is_picked_there_is_no_certainty(make_pool):
    pools = [
        make_pool((0, {"members": (1.0, 2.0), "penalty": math.inf}), problem_id="one"),
        make_pool((1, {"members": (1.0, 2.0)}), problem_id="two"),
        make_pool((1, {"members": (1.0, 3.0)}), problem_id="three"),
    ]

    assert math.isnan(named(pools)["sigma"][0])


def test_a_signal_that_never_varies_is_no_signal(make_pool):
    pools = [make_pool((1, {"members": (0.0, float(i))}), problem_id=f"p{i}") for i in range(3)]

    assert "E_constraint of the pick" not in named(pools)


def test_one_adapter_has_no_spread(make_pool):
    rival = (0, {"members": (2.0,), "key": "y"})
    pools = [make_pool((1, {"members": (float(i),)}), rival, problem_id=f"p{i}") for i in range(3)]

    assert "mu of the pick" in named(pools)
    assert "sigma" not in named(pools)


def test_without_another_answer_the_margin_is_the_same_in_every_set_of_pools(make_pool):
    alone = make_pool((1, {"members": (0.0, 1.0), "key": "x"}), problem_id="p")
    near = make_pool((1, {"members": (0.0, 0.0), "key": "x"}), (0, {"members": (1.0, 1.0), "key": "y"}), problem_id="q")
    far = make_pool((1, {"members": (0.0, 0.0), "key": "x"}), (0, {"members": (9.0, 9.0), "key": "y"}), problem_id="r")

    margins = [
        next(signal for signal in signals(table_of([alone, other]), 1.0) if signal.name == "energy margin").values
        for other in (near, far)
    ]

    assert [margin.tolist() for margin in margins] == [[1.0, 0.5], [1.0, 0.9]]


def test_what_is_left_out_is_rounded_once():
    """10 % of 15 is 1.5: two are left out, and n says so."""
    right = np.array([1.0] * 13 + [0.0] * 2)

    assert num_answered(0.1, 15) == 13
    assert risks(np.arange(15.0, 0, -1), right, ones(15), (0.1,))[0, 0] == 0.0
