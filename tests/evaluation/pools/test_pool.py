import math
import random
from dataclasses import replace

import numpy as np
import pytest

from raydebm.errors import PoolError
from raydebm.evaluation.pools.pool import (
    RecordedPools,
    assemble_pools,
    pool_of,
    with_trained_labels,
)
from raydebm.records import Label, Problem, Verdict

PROBLEM = Problem(task="toy", problem_id="p", prompt="?")


def assembled(items, labels=(), **options):
    recorded = RecordedPools(
        candidates={scored.candidate.candidate_id: scored.candidate for scored in items},
        labels={label.candidate_id: label for label in labels},
        reports={scored.candidate.candidate_id: scored.report for scored in items},
        energies={scored.candidate.candidate_id: scored.energies for scored in items},
    )
    return assemble_pools([PROBLEM], recorded, **options)


def order_of(pools):
    return [scored.candidate.candidate_id for scored in pools[0].candidates]


def test_the_order_is_shuffled_and_does_not_depend_on_the_tables(make_item):
    items = [make_item(name) for name in "abcdefgh"]

    one = order_of(assembled(items))
    other = order_of(assembled(random.Random(1).sample(items, 8)))

    assert one == other
    assert one != sorted(one)


def test_another_shuffle_seed_gives_another_order(make_item):
    items = [make_item(name) for name in "abcdefgh"]

    assert order_of(assembled(items)) != order_of(assembled(items, shuffle_seed=43))


def test_greedy_samples_stand_beside_the_pool_and_later_passes_nowhere(make_item):
    items = [make_item("a"), make_item("b", greedy=True), make_item("c", pass_index=2)]

    (pool,) = assembled(items)

    assert [scored.candidate.candidate_id for scored in pool.everything] == ["a", "b"]
    assert list(pool.in_pool) == [True, False]


def test_a_candidate_without_label_is_unlabeled(make_item):
    label = Label(candidate_id="a", problem_id="p", verdict=Verdict.CORRECT)

    (pool,) = assembled([make_item("a"), make_item("b")], [label])

    assert sorted(pool.correct, key=str) == [1.0, pytest.approx(math.nan, nan_ok=True)]


def test_a_candidate_without_report_cannot_be_selected(make_item):
    scored = make_item("a", members=(0.0,))

    (pool,) = assemble_pools(
        [PROBLEM], RecordedPools(candidates={"a": scored.candidate}, energies={"a": scored.energies})
    )

    assert pool.penalty[0] == math.inf
    assert pool.candidates[0].report.error == "no constraint report was recorded"


def test_problems_without_candidates_are_left_out(make_item):
    scored = make_item("a")

    pools = assemble_pools(
        [replace(PROBLEM, problem_id="other"), PROBLEM], RecordedPools(candidates={"a": scored.candidate})
    )

    assert [pool.problem.problem_id for pool in pools] == ["p"]


def test_no_candidate_at_all_is_an_error():
    with pytest.raises(PoolError, match="found no candidate of any of the problems"):
        assembled([])


def test_mu_is_nan_where_nothing_was_scored(make_pool):
    pool = make_pool((1, {"members": (1.0, 3.0)}), (0, {}))

    np.testing.assert_equal(pool.mu, [2.0, math.nan])


def test_energies_of_two_checkpoints_are_refused(make_item):
    with pytest.raises(PoolError, match="'b' has 1 energies where others have 2"):
        pool_of(PROBLEM, [make_item("a", members=(0.0, 1.0)), make_item("b", members=(0.0,))], labels={})


@pytest.mark.parametrize(
    ("violations", "expected"),
    [
        ([0.4, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8], [0, 1, 1, 0, 0, 0, 0, 0]),
        ([0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [1, 1, 1, 0, 0, 0, 0, 0]),
        ([0.9], [1]),
        ([0.0, 0.0], [1, 1]),
    ],
    ids=["two-of-eight", "ties-at-the-limit-all-count", "at-least-one", "all-equal"],
)
def test_the_trained_labels_are_the_best_quarter(make_pool, violations, expected):
    (pool,) = with_trained_labels([make_pool(*[(0, {})] * len(violations), violations=violations)])

    assert pool.correct.tolist() == expected


def test_a_task_without_violation_scores_keeps_its_labels(make_pool):
    pool = make_pool((1, {}), (0, {}), (None, {}))

    (relabelled,) = with_trained_labels([pool])

    np.testing.assert_array_equal(relabelled.correct, pool.correct)
