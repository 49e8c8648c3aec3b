"""Constraints: what a violation says and costs."""

import math

import pytest

from raydebm.errors import ConstraintError
from raydebm.records import Problem, Violation
from raydebm.tasks.constraints import Constraint, Finding, violations_of

PROBLEM = Problem(task="toy", problem_id="p", prompt="?")


def constraint(*findings, **fields):
    return Constraint(name="c", check=lambda problem, answer: findings, **fields)


def test_the_message_is_filled_with_the_findings_values():
    violations = violations_of(
        [constraint(Finding(penalty=0.5, values={"day": 2, "field": "dinner"}), message="day {day}: {field} missing")],
        PROBLEM,
        None,
    )

    assert violations == (Violation(constraint="c", penalty=0.5, weight=1.0, message="day 2: dinner missing"),)


def test_a_finding_may_bring_its_own_message():
    (violation,) = violations_of([constraint(Finding(penalty=1.0, message="odd"), message="even")], PROBLEM, None)

    assert violation.message == "odd"


def test_braces_in_a_value_are_text():
    (violation,) = violations_of(
        [constraint(Finding(penalty=1.0, values={"x": "{y}"}), message="got {x}")], PROBLEM, None
    )

    assert violation.message == "got {y}"


@pytest.mark.parametrize("penalty", [math.nan, math.inf, 0.0, -1.0])
def test_a_penalty_that_is_none_is_refused(penalty):
    with pytest.raises(ConstraintError, match="'c' has penalty"):
        violations_of([constraint(Finding(penalty=penalty))], PROBLEM, None)


def test_a_message_without_its_value_is_refused():
    with pytest.raises(ConstraintError, match=r"'at \{day\}' does not fit the values \(none\)"):
        violations_of([constraint(Finding(penalty=1.0), message="at {day}")], PROBLEM, None)
