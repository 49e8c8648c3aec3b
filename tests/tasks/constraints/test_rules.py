"""Declarative rules: what they find, what it costs, what they say."""

import math

import pytest
from pydantic import ValidationError

from raydebm.records import Problem
from raydebm.tasks.constraints import violations_of
from raydebm.tasks.constraints.rule import compile_rule
from raydebm.tasks.constraints.rule_kinds import read_rule

PROBLEM = Problem(
    task="shop",
    problem_id="p",
    prompt="?",
    data={"budget": 100, "catalog": [{"id": "a"}, {"id": "b"}], "day": "2026-03-01"},
)


def violations(answer, **tree):
    """(penalty, message) of every violation."""
    constraint = compile_rule(read_rule({"name": "c", **tree}))
    return [
        (pytest.approx(violation.penalty), violation.message)
        for violation in violations_of([constraint], PROBLEM, answer)
    ]


def cost(answer, **tree):
    return math.fsum(penalty.expected for penalty, _ in violations(answer, **tree))


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "value", "expected"),
    [
        ({"at_most": 100}, 100, 0),
        ({"at_most": 100}, 150, 0.5),
        ({"at_most": 100}, 500, 1.0),
        ({"at_most": "problem.budget"}, 110, 0.1),
        ({"at_most": "multiply(problem.budget, `2`)"}, 210, 0.05),
        ({"at_least": 10}, 5, 0.5),
        ({"at_least": 0}, -0.25, 0.25),
        ({"less_than": 100}, 100, 1e-6),
        ({"more_than": 1}, 2, 0),
        ({"equal": 8}, 10, 0.25),
        ({"equal": 8, "tolerance": 2.0}, 10, 0),
        ({"not_equal": 8}, 8.0, 1.0),
        ({"equal": "'yes'"}, "yes", 0),
        ({"equal": "'yes'"}, "no", 1.0),
        ({"equal": True}, True, 0),
        ({"equal": 1}, True, 1.0),
        ({"at_least": "problem.day"}, "2026-02-28", 1.0),
        ({"at_least": "problem.day"}, "2026-03-02", 0),
        ({"at_most": 5}, "4", 1.0),
        ({"at_most": 5}, True, 1.0),
        ({"at_most": 5}, None, 1.0),
    ],
)
def test_compare(bounds, value, expected):
    assert cost({"x": value}, rule="compare", value="answer.x", **bounds) == pytest.approx(expected)


def test_a_fixed_penalty_is_the_same_for_any_excess():
    assert cost(101, rule="compare", value="answer", at_most=100, penalty="fixed") == 1.0


def test_several_values_count_one_nth_each():
    """Two of four prices are too high, one by half and one by all of the limit: (0.5 + 1) / 4."""
    assert cost({"p": [10, 15, 20, 1]}, rule="compare", value="answer.p", at_most=10) == pytest.approx(0.375)


def test_a_message_has_the_values_at_hand():
    message = "{path}: {value:,.2f} is {excess:,.2f} over the {bound} {limit}"

    assert violations({"x": 1312.5}, rule="compare", value="answer.x", at_most="problem.budget", message=message) == [
        (1.0, "answer.x: 1,312.50 is 1,212.50 over the at most 100")
    ]


def test_an_item_without_the_value_is_noticed_only_with_each():
    answer = {"items": [{"price": 5}, {}]}

    assert violations(answer, rule="compare", value="answer.items[].price", at_most=10) == []
    assert violations(answer, rule="compare", each="answer.items", value="price", at_most=10) == [
        (0.5, "answer.items[1].price is missing")
    ]


def test_a_message_that_needs_a_value_is_not_used_where_there_is_none():
    assert violations({}, rule="compare", value="answer.x", at_most=1, message="{excess} too much") == [
        (1.0, "answer.x is missing")
    ]


def test_a_limit_that_is_not_there_is_a_violation_that_says_so():
    assert violations({"x": 1}, rule="compare", value="answer.x", at_most="problem.limit") == [
        (1.0, "c: the limit problem.limit is not there")
    ]


def test_sum():
    answer = {"items": [{"price": 60}, {"price": 90}]}
    assert violations(answer, rule="sum", value="answer.items[].price", at_most="problem.budget") == [
        (0.5, "the sum of answer.items[].price is 150; it must be at most 100")
    ]
    assert violations({"items": []}, rule="sum", value="answer.items[].price", at_most=1) == []


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"price": 1}, {}], "answer.items[1].price is missing"),
        ([{"price": "1"}], "c: answer.items[0].price must be a number, got text"),
        ([{"price": 1e308}, {"price": 1e308}], "c: inf is not a number to compare"),
        (None, "c: answer.items must be a list, got nothing"),
    ],
)
def test_a_sum_that_cannot_be_made_is_a_violation(items, message):
    assert violations({"items": items}, rule="sum", each="answer.items", value="price", at_most=5) == [(1.0, message)]


def test_count():
    assert violations({"x": [1, 2, 3]}, rule="count", of="answer.x", at_most=2) == [
        (0.5, "answer.x has 3 item(s); it must have at most 2")
    ]
    assert cost({}, rule="count", of="answer.x", at_least=2) == 1.0
    assert cost({"x": "abc"}, rule="count", of="answer.x", at_least=1) == 1.0


# ---- lists -----------------------------------------------------------------------------------------------------------


def test_unique():
    assert violations({"x": ["a", "b", "a", "a"]}, rule="unique", value="answer.x") == [
        (0.5, "answer.x has a 3 times; each may occur only once")
    ]
    assert cost({"x": [1, 1.0, True]}, rule="unique", value="answer.x") == pytest.approx(1 / 3)
    assert cost({"x": ["A", "a"]}, rule="unique", value="answer.x") == 0


def test_member():
    assert violations({"x": ["a", "c"]}, rule="member", value="answer.x", table="problem.catalog[].id") == [
        (0.5, "answer.x[1] is c, which is not one of a, b")
    ]
    assert cost({"x": "a"}, rule="member", value="answer.x", table="problem.budget") == 1.0


def test_a_long_table_is_looked_up_once():
    """20,000 values in a table of 20,000 rows: row by row it would be 400 million comparisons."""
    names = [f"n{index}" for index in range(20_000)]

    assert violations({"x": names}, rule="member", value="answer.x", table=names) == []


def test_more_than_twenty_places_are_summed_up():
    places = violations({"x": [2] * 50}, rule="compare", value="answer.x", at_most=1)

    assert len(places) == 20
    assert places[-1][1] == "and 31 more places like these"
    assert sum(penalty.expected for penalty, _ in places) == pytest.approx(1.0)


# ---- text, schema, expressions ---------------------------------------------------------------------------------------


def test_matches():
    assert violations({"x": "no thanks"}, rule="matches", value="answer.x", pattern="(?i)sorry") == [
        (1.0, "answer.x is no thanks, which does not match (?i)sorry")
    ]
    assert cost({"x": "ab"}, rule="matches", value="answer.x", pattern="a") == 0
    assert cost({"x": "ab"}, rule="matches", value="answer.x", pattern="c", negate=True) == 0
    assert violations({"x": 5}, rule="matches", value="answer.x", pattern="5") == [
        (1.0, "answer.x must be text, got 5")
    ]


def test_a_pattern_that_ruins_backtracking_engines_takes_no_time():
    assert cost({"x": "a" * 100_000 + "b"}, rule="matches", value="answer.x", pattern="^(a+)+$") == 1.0


def test_holds():
    assert cost({"a": 2, "b": 2}, rule="holds", that="answer.a == answer.b") == 0
    assert violations({"a": 2}, rule="holds", that="answer.a > `3`", message="a is too small") == [
        (1.0, "a is too small")
    ]
    assert cost({}, rule="holds", that="answer.a > `3`") == 1.0


def test_a_constraint_cannot_see_gold():
    """What stands in the document: the answer and Problem.data, which has no gold."""
    assert cost(1, rule="holds", that="length(keys(@)) == `2`") == 0


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "place", "reason"),
    [
        ({"rule": "compare", "value": "answer.x", "at_most": 1, "wait": 2}, "wait", "Extra inputs"),
        ({"rule": "compare", "value": "answer.x"}, "compare", "at least one of at_most"),
        ({"rule": "compare", "value": "gold.x", "at_most": 1}, "compare", "starts at 'gold'"),
        ({"rule": "compare", "value": "answer.x", "at_most": "ten"}, "at_most", "starts at 'ten'"),
        ({"rule": "compare", "value": "answer.x", "at_most": math.nan}, "at_most", "finite"),
        ({"rule": "comapre"}, "", "'compare', 'sum'"),
        ({"rule": "matches", "value": "answer.x", "pattern": "(?=a)b"}, "pattern", "lookaround"),
        ({"rule": "holds", "that": "answer.x", "message": "{x.__class__}"}, "holds", "plain names"),
        ({"rule": "holds", "that": "answer.x", "message": "{excess}"}, "holds", "known: path"),
        ({"rule": "holds", "that": "answer.x", "weight": -1.0}, "weight", "greater than or equal to 0"),
        ({"rule": "holds", "that": "answer.x", "weight": math.inf}, "weight", "finite"),
        ({"rule": "holds", "that": "answer.x", "penalty": "none"}, "penalty", "'graded' or 'fixed'"),
        ({"rule": "schema", "schema": {"type": "objekt"}}, "schema", "type"),
    ],
)
def test_wrong_declarations_are_refused_with_key_and_reason(tree, place, reason):
    with pytest.raises(ValidationError) as caught:
        read_rule({"name": "c", **tree})

    (error,) = [error for error in caught.value.errors() if reason in error["msg"]] or [caught.value.errors()[0]]
    assert reason in error["msg"]
    assert place in [str(part) for part in (*error["loc"], "")]
