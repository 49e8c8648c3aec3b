import math

import numpy as np
import pytest

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.selector_metrics import picks
from raydebm.evaluation.selectors.selector import value_of
from raydebm.evaluation.selectors.standard import standard_selectors


@pytest.fixture
def stack(make_pool):
    equal = {"members": (1.0, 1.0)}
    return Stack.of(
        [
            make_pool((1, {"members": (0.0, 2.0)}), (0, {"members": (0.5, 0.5), "penalty": 1.0}), problem_id="p1"),
            make_pool((0, {"members": (3.0, 3.0), "penalty": math.inf}), problem_id="p2"),
            make_pool((None, {"members": None}), (0, equal), (1, equal), problem_id="p3"),
        ]
    )


def test_short_pools_are_padded_and_padding_is_never_chosen(stack):
    assert stack.sizes.tolist() == [2, 1, 3]
    assert stack.select(0.0).tolist() == [1, -1, 1]


def test_lambda_weighs_the_penalty(stack):
    assert stack.select(1.0)[0] == 0


def test_a_subset_of_adapters_chooses_for_itself(stack):
    assert stack.select(0.0, [0])[0] == 0
    assert stack.sigma()[0].tolist()[:2] == [1.0, 0.0]


def test_nothing_to_select_is_wrong_in_a_labelled_pool(stack):
    assert stack.correct_at(stack.select(0.0)).tolist() == [0.0, 0.0, 0.0]


def test_chance_and_oracle_leave_the_unlabeled_out(stack):
    assert stack.by_chance().tolist() == [0.5, 0.0, 0.5]
    assert stack.oracle().tolist() == [1.0, 0.0, 1.0]


def test_it_selects_what_the_policy_selects_on_random_pools(make_pool):
    rng = np.random.default_rng(3)
    pools = [
        make_pool(
            *[
                (
                    int(rng.integers(2)),
                    {
                        "members": None if rng.random() < 0.1 else (float(rng.integers(3)), float(rng.integers(3))),
                        "penalty": float(rng.choice([0.0, 1.0, math.inf])),
                        "key": str(rng.choice(["x", "y"])),
                    },
                )
                for _ in range(rng.integers(1, 7))
            ],
            problem_id=f"p{index}",
        )
        for index in range(60)
    ]
    stack = Stack.of(pools)
    ours = next(selector for selector in standard_selectors(pools, lambda_=0.7) if selector.name == "ours")

    assert stack.correct_at(stack.select(0.7)).tolist() == [value_of(ours, pool).correct for pool in pools]
    np.testing.assert_allclose(
        stack.at(stack.sigma(), stack.select(0.7)), [pick.sigma for pick in picks(pools, 0.7)], equal_nan=True
    )
