import math

import pytest

from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import Problem
from raydebm.tasks.constraints import Constraint, Finding

PROBLEM = Problem(task="toy", problem_id="p", prompt="?")


def test_penalty_is_the_weighted_sum(task, make_candidate, monkeypatch):
    constraints = [
        Constraint(name="a", check=lambda problem, answer: [Finding(penalty=0.5)], weight=2.0),
        Constraint(name="b", check=lambda problem, answer: [Finding(penalty=1.0), Finding(penalty=2.0)]),
    ]
    monkeypatch.setattr(task, "constraints", constraints)

    report = check_candidate(task, PROBLEM, make_candidate("c", "4"))

    assert (report.penalty, report.answer, report.vote_key) == (4.0, "4", "4")


def test_text_that_does_not_parse_costs_infinity_without_being_an_error(task, make_candidate):
    report = check_candidate(task, PROBLEM, make_candidate("c", "no idea"))

    assert (report.penalty, report.answer, report.error) == (math.inf, None, None)


def test_half_a_character_in_an_answer_can_be_written_down(task, make_candidate, monkeypatch):
    """A plan in JSON can spell it."""
    monkeypatch.setattr(task, "parse", lambda problem, text: "Caf\ud83d")
    monkeypatch.setattr(task, "render", lambda problem, answer: answer)
    monkeypatch.setattr(task, "vote_key", lambda problem, answer: answer)
    said = Constraint(name="a", check=lambda problem, answer: [Finding(penalty=0.5, message=f"no {answer}")])
    monkeypatch.setattr(task, "constraints", [said])

    report = check_candidate(task, PROBLEM, make_candidate("c", "4"))

    assert (report.answer, report.vote_key, report.violations[0].message) == ("Caf\ufffd", "Caf\ufffd", "no Caf\ufffd")


def test_failed_candidate_keeps_its_error(task, make_candidate):
    report = check_candidate(task, PROBLEM, make_candidate("c", None))

    assert (report.penalty, report.error) == (math.inf, "no text to check: HTTP 500")


def test_crashing_checker_is_a_row_with_a_reason(task, make_candidate):
    report = check_candidate(task, PROBLEM, make_candidate("c", "crash"))

    assert report.penalty == math.inf
    assert "'toy' raised RuntimeError('boom')" in report.error


@pytest.mark.parametrize("penalty", [math.nan, math.inf, 0.0, -1.0])
def test_a_violation_without_a_usable_penalty_is_a_crash_of_the_checker(task, make_candidate, monkeypatch, penalty):
    bad = Constraint(name="a", check=lambda problem, answer: [Finding(penalty=penalty)])
    monkeypatch.setattr(task, "constraints", [bad])

    report = check_candidate(task, PROBLEM, make_candidate("c", "4"))

    assert report.penalty == math.inf
    assert "needs a finite penalty above 0" in report.error
