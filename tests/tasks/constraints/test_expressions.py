"""Field paths: closed, bounded, and clear about what is wrong."""

import pytest
from task_data import cpu_within

from raydebm.errors import ConstraintError
from raydebm.tasks.constraints.expressions import (
    EvaluationError,
    RuleInput,
    parse_expression,
    problem_fields,
    reads_answer,
)


def value_of(text, answer=None, **problem):
    return RuleInput({"answer": answer, "problem": problem}).value_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer.items[].price", [2, 3]),
        ("sum(answer.items[].price)", 5),
        ("answer.items[?price > `2`].name", ["b"]),
        ("answer.nowhere.at.all", None),
        ("subtract(problem.budget, sum(answer.items[].price))", 5.0),
        ("multiply(`3`, divide(`1`, `2`))", 1.5),
        ("add(`1`, `2`)", 3.0),
        ("words(lower('Two Words'))", 2),
        ("length(answer.items)", 2),
    ],
)
def test_values(text, expected):
    answer = {"items": [{"name": "a", "price": 2}, {"name": "b", "price": 3}]}

    assert value_of(text, answer, budget=10) == expected


@pytest.mark.parametrize(
    ("text", "answer", "reason"),
    [
        ("sum(answer)", "x", r"sum\(\) needs array-number, got string 'x'"),
        ("sum(answer)", [1, True], r"sum\(\) needs"),
        ("divide(`1`, answer)", 0, "division by zero"),
        ("multiply(answer, answer)", 1e200, "not a finite number"),
        ("words(answer)", None, r"words\(\) needs string, got null"),
        ("avg(answer)", ["a"], "avg"),
    ],
)
def test_what_cannot_be_computed_says_why(text, answer, reason):
    with pytest.raises(EvaluationError, match=reason):
        value_of(text, answer)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("answer..x", "is not JMESPath"),
        ("", "is not JMESPath"),
        ("gold.answer", "starts at 'gold'; expressions start at answer or problem"),
        ("answer.x == gold.x", "starts at 'gold'"),
        ("yes", "single quotes"),
        ("__import__('os')", "unknown function '__import__'"),
        ("to_string(answer)", "unknown function 'to_string'"),
        ("words()", r"words\(\) takes 1 argument\(s\), got 0"),
        ("answer.x | [@, @] | [@, @] | [@, @]", "at most 2 multi-selects"),
        ("answer.[" + ", ".join("a" * 9) + "]", "at most 2 multi-selects of at most 8"),
        ("(" * 400 + "answer" + ")" * 90, "is not JMESPath"),
        ("answer" + ".x" * 300, "at most 500 are allowed"),
    ],
)
def test_bad_expressions_are_refused(text, reason):
    with pytest.raises(ConstraintError, match=reason):
        parse_expression(text)


def test_attributes_of_python_objects_are_out_of_reach():
    assert value_of("answer.__class__", {"x": 1}) is None
    assert value_of("answer.__class__", "text") is None


def test_steps_are_bounded():
    """A list of 2,000 is searched once for each of its items: four million steps, of which 300,000 are allowed."""
    answer = {"items": [{"all": list(range(2000))} for _ in range(2000)]}
    with cpu_within(30), pytest.raises(EvaluationError, match="too many steps"):
        value_of("answer.items[?contains(all, `-1`)]", answer)


def test_joining_counts_by_its_result():
    with pytest.raises(EvaluationError, match="too many steps"):
        value_of("join(answer.glue, answer.parts)", {"glue": "x" * 50_000, "parts": [""] * 25_000})


def test_steps_are_shared_by_all_expressions_on_a_document():
    document = RuleInput({"answer": list(range(200)), "problem": {}}, steps=1000)

    assert [document.value_of("sum(answer)") for _ in range(4)] == [sum(range(200))] * 4
    with pytest.raises(EvaluationError, match="too many steps"):
        document.value_of("sum(answer)")


def test_deep_answers_are_an_error_and_not_a_crash():
    deep = []
    for _ in range(5000):
        deep = [deep]

    with pytest.raises(EvaluationError, match="nested too deeply"):
        value_of("answer == answer[0]", deep)


def test_fields_of_the_problem_are_known_before_anything_runs():
    assert problem_fields("contains(problem.table[].id, answer.problem.x)") == {"table"}
    assert problem_fields("answer.items[?id == `1`] | [0]") == set()
    assert (reads_answer("problem.limit"), reads_answer("multiply(problem.limit, answer.n)")) == (False, True)
