"""Knights & Knaves: the statement checker is a proof exactly where the puzzle has one solution."""

import json

import pytest

from raydebm.testing import check

QUIZ = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    "lie. You meet 2 inhabitants: Ann, and Bob. {} So who is a knight and who is a knave?"
)
ONE_SOLUTION = QUIZ.format("Ann said that Bob is a knave. Bob said that Ann is a knave or Bob is a knave.")
TWO_SOLUTIONS = QUIZ.format("Ann said that Bob is a knave. Bob said that Ann is a knave.")
NO_SOLUTION = QUIZ.format("Ann said that Ann is a knave. Bob said that Ann is a knave.")


def report(quiz, **roles):
    return check("knights_knaves", quiz, json.dumps(roles))


def test_the_one_solution_is_proven():
    # Bob's "Ann is a knave or Bob is a knave" is false only when both are knights; then Ann's claim is false too.
    # So Bob is a knight, Ann is a knave, and Ann's claim "Bob is a knave" is false, as it must be.
    assert report(ONE_SOLUTION, Ann="knave", Bob="knight").proof is True


@pytest.mark.parametrize("roles", [("knight", "knave"), ("knight", "knight"), ("knave", "knave")])
def test_any_other_answer_is_refuted(roles):
    assert report(ONE_SOLUTION, Ann=roles[0], Bob=roles[1]).proof is False


@pytest.mark.parametrize("roles", [("knight", "knave"), ("knave", "knight")])
def test_with_two_solutions_nothing_is_proven_and_the_report_counts_them(roles):
    constraint_report = report(TWO_SOLUTIONS, Ann=roles[0], Bob=roles[1])

    assert (constraint_report.penalty, constraint_report.proof) == (0.0, None)
    assert "2 solutions" in constraint_report.note


def test_without_a_solution_nothing_is_refuted_either_and_the_report_says_so():
    constraint_report = report(NO_SOLUTION, Ann="knave", Bob="knight")

    assert constraint_report.penalty > 0
    assert constraint_report.proof is None
    assert "no solution" in constraint_report.note


def test_an_answer_that_does_not_parse_proves_nothing():
    assert check("knights_knaves", ONE_SOLUTION, "I do not know.").proof is None
