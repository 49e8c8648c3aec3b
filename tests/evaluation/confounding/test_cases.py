"""Wrong selections with right answers beside them, by hand."""

import json

import pytest
from hand_made import table_of

from raydebm.evaluation.confounding.cases import case_studies, case_tables
from raydebm.evaluation.confounding.report import ConfoundingSettings, confounding_steps


@pytest.fixture
def pools(make_pool):
    """a: loud is selected and wrong, quiet is right (E 0.5 against -1, then 2). b: loud is selected and right.
    c: nobody is right. d: loud is selected and wrong, and the right answer cannot be selected. e: no label."""
    inf = float("inf")
    return table_of(
        [
            make_pool(
                (0, {"generator": "loud", "members": (-1.5, -0.5)}),
                (1, {"generator": "quiet", "members": (2.0, 2.0)}),
                (1, {"generator": "quiet", "members": (0.0, 0.0), "penalty": 0.5}),
                problem_id="a",
                difficulty="hard",
            ),
            make_pool(
                (1, {"generator": "loud", "members": (-1.0, -1.0)}),
                (0, {"generator": "quiet", "members": (0.0, 0.0)}),
                problem_id="b",
                difficulty="easy",
            ),
            make_pool((0, {"generator": "quiet", "members": (0.0, 0.0)}), problem_id="c", difficulty="hard"),
            make_pool(
                (0, {"generator": "loud", "members": (3.0, 3.0)}),
                (1, {"generator": "quiet", "members": (0.0, 0.0), "penalty": inf}),
                problem_id="d",
                difficulty="hard",
            ),
            make_pool((None, {"generator": "loud", "members": (0.0, 0.0)}), problem_id="e"),
        ]
    )


def test_selections_are_counted_by_generator_and_difficulty(pools):
    counts = case_studies(pools, lambda_=1.0).counts
    assert [
        (row.generator, row.difficulty, row.num_picked, row.num_right, row.num_avoidable, row.num_hopeless)
        for row in counts
    ] == [("loud", "easy", 1, 1, 0, 0), ("loud", "hard", 2, 0, 2, 0), ("quiet", "hard", 1, 0, 0, 1)]


def test_a_case_is_the_selection_beside_the_best_right_answer(pools):
    case = case_studies(pools, lambda_=1.0).cases[1]
    assert (case.problem_id, case.picked, case.right, case.num_right, case.num_candidates) == (
        "a",
        "loud",
        "quiet",
        2,
        3,
    )
    assert (case.margin, case.margin_mu, case.sigma) == (1.5, 1.0, 0.5)


def test_a_right_answer_that_cannot_be_selected_lost_by_most(pools):
    case = case_studies(pools, lambda_=1.0).cases[0]
    assert (case.problem_id, case.margin, case.margin_mu) == ("d", None, -3.0)


def test_lambda_decides_which_right_answer_was_the_best(pools):
    """At lambda 10 the quiet answer with the penalty has E 5, and the other one 2."""
    case = case_studies(pools, lambda_=10.0).cases[1]
    assert (case.margin, case.margin_mu) == (3.0, 3.0)


def test_a_single_adapter_has_no_sigma(make_pool):
    pool = make_pool((0, {"members": (0.0,)}), (1, {"members": (1.0,)}))
    assert case_studies(table_of(pool), lambda_=1.0).cases[0].sigma is None


def test_the_tables_say_whose_the_cases_are(pools):
    counts, cases = case_tables(case_studies(pools, lambda_=1.0))
    assert ("loud", "hard", "2", "0", "2", "0") in counts.rows
    assert "2 of loud" in cases.caption
    assert cases.rows[0][5] == "not selectable"


def test_without_a_case_there_is_no_table_of_them(make_pool):
    pool = make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}))
    assert len(case_tables(case_studies(table_of(pool), lambda_=1.0))) == 1


def test_the_report_has_them_as_strict_json(pools):
    (report,) = confounding_steps(pools, settings=ConfoundingSettings(lambda_=1.0))
    parsed = json.loads(json.dumps(report.to_json()["cases"], allow_nan=False))
    assert [case["problem_id"] for case in parsed["cases"]] == ["d", "a"]
    assert "Wrong selections from pools with a right answer" in [table.title for table in report.tables()]
