"""The table of pools: rows, columns and values by pool, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from raydebm.decision.table import PoolTable, on_common_problems
from raydebm.records import Label, Problem, Verdict
from raydebm.testing import scored_candidate

RIGHT = {1: Verdict.CORRECT, 0: Verdict.INCORRECT, None: Verdict.UNLABELED}


def table_of(**pools):
    """Pools by problem; a candidate is (correct, violation score, fields of ``scored_candidate``)."""
    candidates, labels = [], {}
    for problem_id, rows in pools.items():
        candidates.append([])
        for place, (correct, violation, fields) in enumerate(rows):
            fields = {"answer": "A", "candidate_id": f"{problem_id}{place}", **fields}
            scored = scored_candidate(**fields)
            name = scored.candidate.candidate_id
            candidates[-1].append(scored)
            labels[name] = Label(
                candidate_id=name, problem_id=problem_id, verdict=RIGHT[correct], violation_score=violation
            )
    problems = [Problem(task="t", problem_id=problem_id, prompt="?") for problem_id in pools]
    return PoolTable.of(candidates, problems=problems, labels=labels)


@pytest.fixture
def table():
    """p: the first has the lower mu with its penalty. q: nothing can be selected. r: two equal ones, one unscored."""
    equal = {"energies": (1.0, 1.0)}
    return table_of(
        p=[(1, None, {"energies": (0.0, 2.0)}), (0, None, {"energies": (0.5, 0.5), "penalty": 1.0})],
        q=[(0, None, {"energies": (3.0, 3.0), "answer": None})],
        r=[(None, None, {}), (0, None, equal), (1, None, equal)],
    )


def test_rows_stand_pool_after_pool(table):
    assert table.sizes.tolist() == [2, 1, 3]
    assert table.offsets.tolist() == [0, 2, 3, 6]


def test_the_lowest_energy_is_selected_and_ties_go_to_the_smaller_id(table):
    assert table.select(0.0).tolist() == [1, -1, 4]
    assert table.select(1.0).tolist() == [0, -1, 4]


def test_a_subset_of_adapters_chooses_for_itself(table):
    assert table.of_adapters([0]).select(0.0)[0] == 0


def test_mu_and_sigma_are_nan_where_nothing_was_scored(table):
    np.testing.assert_equal(table.mu, [1.0, 0.5, 3.0, math.nan, 1.0, 1.0])
    np.testing.assert_equal(table.sigma, [1.0, 0.0, 0.0, math.nan, 0.0, 0.0])


def test_votes_by_energy_are_relative_to_the_pools_lowest(table):
    votes = table.energy_votes(1.0)

    assert votes.tolist() == pytest.approx([1.0, math.exp(-0.5), 0.0, 0.0, 1.0, 1.0])


def test_nothing_to_select_is_wrong_in_a_labelled_pool(table):
    assert table.correct_at(table.select(0.0)).tolist() == [0.0, 0.0, 0.0]


def test_chance_leaves_the_unlabeled_out(table):
    assert table.by_chance().tolist() == [0.5, 0.0, 0.5]


def test_some_of_the_pools_in_another_order(table):
    part = table.of_pools([2, 0])

    assert [problem.problem_id for problem in part.problems] == ["r", "p"]
    assert part.select(0.0).tolist() == [1, 4]
    assert part.cluster_of_row.tolist() == [0, 0, 0, 1, 1]


def test_some_of_the_rows_keep_their_pools_and_clusters(table):
    part = table.kept(table.correct == 1)

    assert part.sizes.tolist() == [1, 0, 1]
    assert part.cluster_of_row.tolist() == [0, 1]


def test_tables_are_cut_to_the_problems_that_all_have(table):
    one, other = on_common_problems([table.of_pools([0, 1, 2]), table.of_pools([2, 1])])

    assert [problem.problem_id for problem in one.problems] == ["q", "r"]
    assert one.mu.tolist()[0] == other.mu.tolist()[0] == 3.0


def test_a_grid_ends_short_pools_with_the_empty_value(table):
    np.testing.assert_equal(table.grid(table.place_of_row, -1), [[0, 1, -1], [0, -1, -1], [0, 1, 2]])


def test_a_tolerance_counts_what_violates_little_as_correct():
    table = table_of(p=[(1, 0.0, {}), (0, 0.15, {}), (0, 0.2, {})])

    assert table.with_tolerance(0.15).correct.tolist() == [1.0, 1.0, 0.0]


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
def test_the_trained_labels_are_the_best_quarter(violations, expected):
    table = table_of(p=[(0, violation, {}) for violation in violations], other=[(0, 0.05, {})])

    assert table.with_trained_labels().correct.tolist() == [*expected, 1]


def test_a_pool_without_violation_scores_keeps_its_labels():
    table = table_of(q=[(0, 0.5, {})], p=[(1, None, {}), (0, None, {}), (None, None, {})])

    np.testing.assert_equal(table.with_trained_labels().correct, [1.0, 1.0, 0.0, math.nan])


def test_posteriors_learn_from_violation_scores_where_there_are_any():
    """Of two authors only g has a labelled candidate, and q is left out with h, who wrote nothing else."""
    table = table_of(
        p=[(0, 0.25, {"generator": "g"}), (1, None, {"generator": "g"})], q=[(1, None, {"generator": "h"})]
    )

    known = table.with_worth()

    np.testing.assert_equal(table.worth, [0.75, math.nan, math.nan])
    assert ([problem.problem_id for problem in known.problems], known.authors) == (["p"], ("g",))
    assert [values.tolist() for values in known.worth_by_author] == [[[0.75]], [[1.0]]]


def test_rows_follow_the_ids_and_remember_the_place_in_the_pool():
    named = [{"candidate_id": name, "answer": answer} for name, answer in (("b", "x"), ("a", "y"), ("c", None))]
    table = table_of(p=[(0, None, fields) for fields in named])

    assert table.place_of_row.tolist() == [1, 0, 2]
    assert table.answer.tolist() == [1, 0, -1]
    assert table.rows_of(0).tolist() == [1, 0, 2]
    assert table.answered.place_of_row.tolist() == [1, 0]
    assert table.unparsed.tolist() == [pytest.approx(1 / 3)]


def test_a_table_knows_what_texts_cost_and_how_they_ended():
    table = table_of(
        p=[
            (1, None, {"text": "abc", "cost_usd": 0.5, "finish_reason": "length", "generator": "g"}),
            (0, None, {"text": "a", "finish_reason": "stop", "generator": "g"}),
            (None, None, {"text": None, "generator": "h", "cost_usd": 0.25}),
        ]
    )

    assert table.length.tolist() == [3, 1]
    assert table.cut_off.tolist() == [1, 0]
    np.testing.assert_equal(table.cost_usd, [0.5, math.nan])
    assert table.authors == ("g",)
    assert [(pool, scored.candidate.cost_usd) for pool, scored in table.failed] == [(0, 0.25)]


def test_no_pools_are_an_empty_table():
    table = PoolTable.of([])

    assert table.select(1.0).shape == (0,)
    assert replace(table).authors == ()
