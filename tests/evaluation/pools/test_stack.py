import math

import numpy as np
import pytest

from raydebm.evaluation.pools.pool import pool_of
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.selector_metrics import picks
from raydebm.evaluation.selectors.selector import values_of
from raydebm.evaluation.selectors.standard import standard_selectors
from raydebm.records import Problem


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
    ours = next(selector for selector in standard_selectors(stack, lambda_=0.7) if selector.name == "ours")

    assert stack.correct_at(stack.select(0.7)).tolist() == values_of(ours, stack).correct.tolist()
    np.testing.assert_allclose(stack.at(stack.sigma(), stack.select(0.7)), picks(stack, 0.7).sigma, equal_nan=True)


def test_a_tolerance_counts_what_violates_little_as_correct(make_pool):
    stack = Stack.of([make_pool((1, {}), (0, {}), (0, {}), violations=[0.0, 0.15, 0.2])])

    assert stack.with_tolerance(0.15).correct.tolist() == [[1.0, 1.0, 0.0]]
    assert stack.correct.tolist() == [[1.0, 0.0, 0.0]]


def test_a_stack_knows_what_texts_cost_and_how_they_ended(make_pool):
    stack = Stack.of(
        [
            make_pool(
                (1, {"text": "abc", "cost_usd": 0.5, "finish_reason": "length"}),
                (0, {"text": "a", "finish_reason": "stop", "broken": [("budget", 1.0), ("budget", 0.5)]}),
                (None, {"text": None, "generator": "h", "cost_usd": 0.25}),
                (0, {"generator": "h", "greedy": True}),
            ),
            make_pool((1, {}), problem_id="q"),
        ]
    )

    assert stack.length.tolist() == [[3, 1], [4, pytest.approx(math.nan, nan_ok=True)]]
    assert stack.cut_off.tolist()[0] == [1, 0]
    np.testing.assert_array_equal(stack.cost_usd[0], [0.5, math.nan])
    np.testing.assert_array_equal(stack.broken["budget"][0], [math.nan, 1.5])
    assert [(request.pool, request.generator, request.cost_usd) for request in stack.failed] == [(0, "h", 0.25)]
    assert (stack.generators, stack.greedy.generators) == (("g",), ("h",))
    assert stack.greedy.present.tolist() == [[True], [False]]


def test_columns_follow_the_ids_and_remember_the_place_in_the_pool(make_item):
    problem = Problem(task="toy", problem_id="p", prompt="?")
    stack = Stack.of([pool_of(problem, [make_item("b", key="x"), make_item("a", key="y"), make_item("c")], labels={})])

    assert stack.place.tolist() == [[1, 0, 2]]
    assert stack.answer.tolist() == [[0, 1, 2]]


def test_some_of_the_pools_in_another_order(stack):
    part = stack.only([2, 0])

    assert [problem.problem_id for problem in part.problems] == ["p3", "p1"]
    assert part.sizes.tolist() == [3, 2]
    assert part.select(0.0).tolist() == [1, 1]


def test_no_pools_are_an_empty_stack():
    assert Stack.of([]).select(1.0).shape == (0,)
    assert Stack.of([]).generators == ()
