"""Whatever the answer, a rule gives finite positive penalties with words, or nothing; the same every time."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.records import Problem
from raydebm.tasks.constraints import violations_of
from raydebm.tasks.constraints.rule import compile_rule
from raydebm.tasks.constraints.rule_kinds import read_rule

FIELDS = ["a", "b", "items", "price", "name"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["", "a", "b", "2026-01-01", "\ud800", "{value}", "\0"])
    | st.text(max_size=8)
)
answers = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=25,
)
"""Any JSON value, and what Python's reader takes for one: NaN, infinity, lone surrogates, endless integers."""

paths = st.sampled_from(
    [
        "answer", "answer.a", "answer.items", "answer.items[].price", "answer.items[*].name", "answer.*", "answer[0]",
        "answer[]", "answer[-1]", "answer[1:3]", "answer.items[?price > `2`]", "problem.limit", "problem.table",
        "problem.none", "length(answer)", "sum(answer.items[].price)", "max(answer)", "words(answer.a)",
        "lower(answer.a)", "divide(`1`, answer.a)", "multiply(answer.a, answer.a)", "subtract(answer.a, answer.b)",
        "keys(answer)", "values(answer)", "join(answer.a, answer.items)", "sort(answer)", "avg(answer.items[].price)",
        "sort_by(answer.items, &price)[0].name", "to_number(answer.a)", "answer.a && answer.b", "!answer.a",
        "answer.a == answer.b", "answer.[a, b]", "merge(answer, problem)", "reverse(answer)", "ceil(answer.a)",
        "map(&price, answer.items)", "not_null(answer.a, answer.b)", "type(answer.a)", "abs(answer.a)", "@",
    ]
)  # fmt: skip
items = st.sampled_from(["@", "price", "name", "a.b", "[0]", "length(@)", "*"])
operands = paths | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
bounds = st.dictionaries(
    st.sampled_from(["at_most", "at_least", "less_than", "more_than", "equal", "not_equal"]), operands, min_size=1
)
commons = st.fixed_dictionaries(
    {"name": st.just("c"), "penalty": st.sampled_from(["graded", "fixed"])},
    optional={"message": st.just("{path} is wrong"), "weight": st.just(2)},
)
schemas = st.sampled_from(
    [
        {"type": "object", "required": ["a", "b"], "additionalProperties": False},
        {"type": "array", "uniqueItems": True, "items": {"multipleOf": 0.1, "minimum": 1}},
        {"properties": {"a": {"pattern": "^a+$", "maxLength": 2}, "items": {"minItems": 2, "contains": {"const": 1}}}},
        {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"enum": [1, None, "a"]}}},
        {"$ref": "#"},
        {"properties": {"items": {"items": {"$ref": "#"}}}, "not": {"type": "null"}, "propertyNames": {"maxLength": 4}},
    ]
)
of_values = st.fixed_dictionaries({"value": paths}) | st.fixed_dictionaries({"each": paths, "value": items})


def tree(kind, *parts):
    return st.tuples(commons, *parts).map(
        lambda fragments: {"rule": kind} | {k: v for part in fragments for k, v in part.items()}
    )


rules = st.one_of(
    tree("compare", of_values, bounds),
    tree("sum", of_values, bounds),
    tree("count", st.fixed_dictionaries({"of": paths}), bounds),
    tree("unique", of_values),
    tree("member", of_values, st.fixed_dictionaries({"table": paths | st.just(["a", 1, None])})),
    tree("matches", of_values, st.fixed_dictionaries({"pattern": st.sampled_from(["a", "^(a+)+$", "", r"\d{3}"])})),
    tree("schema", st.fixed_dictionaries({"schema": schemas, "value": paths})),
    tree("holds", st.fixed_dictionaries({"that": paths})),
)
PROBLEM = Problem(task="t", problem_id="p", prompt="?", data={"limit": 3, "table": ["a", "b", 1]})


def check(tree, answer):
    return violations_of([compile_rule(read_rule(tree))], PROBLEM, answer)


@settings(max_examples=1500)
@given(rules, answers)
def test_checking_is_total(tree, answer):
    violations = check(tree, answer)

    assert all(0 < violation.penalty < math.inf and violation.message.encode() for violation in violations)
    assert math.fsum(violation.penalty for violation in violations) <= 1 + 1e-5
    assert check(tree, answer) == violations


@given(rules)
def test_a_rule_survives_json(tree):
    """It travels inside a recipe; reading it back gives the same rule."""
    assert read_rule(json.loads(json.dumps(tree))) == read_rule(tree)


limits = st.integers(-1000, 1000) | st.floats(-1e6, 1e6)


@given(limits, st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_greater_excess_never_costs_less(limit, first, second):
    small, large = sorted([first, second])
    rule = {"name": "c", "rule": "compare", "value": "answer", "at_most": limit}
    cost = [sum(violation.penalty for violation in check(rule, limit + excess)) for excess in (small, large)]

    assert cost[0] <= cost[1]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8))
def test_one_more_repeat_never_costs_less(values):
    rule = {"name": "c", "rule": "unique", "value": "answer"}
    cost = [sum(violation.penalty for violation in check(rule, answer)) for answer in (values, [*values, *values[:1]])]

    assert cost[0] <= cost[1] + 1e-9


@given(st.lists(st.integers(0, 10), max_size=10), st.integers(0, 100))
def test_a_rule_that_holds_says_nothing(prices, budget):
    """Against plain Python."""
    rule = {"name": "c", "rule": "sum", "value": "answer", "at_most": budget}

    assert (check(rule, prices) == ()) == (sum(prices) <= budget)


@given(st.lists(st.text("ab", max_size=2), max_size=6), st.lists(st.text("ab", max_size=2), max_size=6))
def test_membership_is_membership(values, table):
    rule = {"name": "c", "rule": "member", "value": "answer", "table": table}
    penalty = sum(violation.penalty for violation in check(rule, values))

    assert math.isclose(penalty, sum(value not in table for value in values) / max(1, len(values)))
