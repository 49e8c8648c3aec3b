"""Fields of a structured answer: paths, keys, kinds, verdicts."""

import json
import math
from dataclasses import replace
from itertools import permutations

import pytest
from task_data import label

from raydebm.records import Gold, Problem
from raydebm.tasks.declared import DeclaredTask
from raydebm.tasks.fields import MAX_FIELDS, compare_fields, kind_of_field, leaves, merged, named_path, value_key
from raydebm.testing import check

ITEMS = {"properties": {"items": {"type": "array", "x-key": "sku"}}}


def test_leaves_are_named_by_their_path_in_document_order():
    answer = {"total": 3, "seller": {"name": "Ada"}, "items": [{"price": 1}, {"price": 2}], "notes": []}

    assert list(leaves(answer).items()) == [
        ("total", 3), ("seller.name", "Ada"), ("items[0].price", 1), ("items[1].price", 2), ("notes", []),
    ]  # fmt: skip


def test_a_key_that_is_no_name_is_quoted():
    assert list(leaves({"a.b": 1, 'say "x"': 2, "": 3, "Zoë": 4})) == ['["a.b"]', '["say \\"x\\""]', '[""]', "Zoë"]


def test_items_with_a_key_column_are_named_by_it():
    answer = {"items": [{"sku": "B", "price": 2}, {"sku": "A", "price": 1}]}

    assert leaves(answer, ITEMS)['items[sku="A"].price'] == 1


@pytest.mark.parametrize(
    "items",
    [[{"sku": "A"}, {"sku": "A"}], [{"sku": "A"}, {"price": 1}], [{"sku": None}], ["A"], [{"sku": ["A"]}]],
    ids=["twice", "missing", "null", "no object", "a list"],
)
def test_items_without_different_keys_are_named_by_position(items):
    assert all(path.startswith(("items[0]", "items[1]")) for path in leaves({"items": items}, ITEMS))


@pytest.mark.parametrize("answer", ["text", 3, None, True, {}, []])
def test_a_bare_value_has_no_fields(answer):
    assert leaves(answer) == {}


def test_too_many_leaves_are_none():
    assert len(leaves(list(range(MAX_FIELDS)))) == MAX_FIELDS
    assert leaves(list(range(MAX_FIELDS + 1))) == {}


def test_a_deep_value_ends_in_one_leaf():
    deep = current = {}
    for _ in range(100):
        current["a"] = current = {}

    (path,) = leaves(deep)
    assert path == ".".join(["a"] * 16)


def test_values_have_one_text_whatever_their_form():
    assert value_key(1) == value_key(1.0) == "1"
    assert value_key({"b": 1, "a": 2}) == value_key({"a": 2, "b": 1})
    assert value_key(math.nan) == '"nan"'


def test_the_kind_of_a_field_forgets_the_item():
    assert kind_of_field("items[12].price") == kind_of_field('items[sku="a]b"].price') == "items[*].price"
    assert kind_of_field('items[item no="A1"].price') == "items[*].price"
    assert kind_of_field('["a.b"]') == '["a.b"]'


def test_a_field_that_only_one_side_has_is_wrong():
    assert compare_fields({"a": 1, "b": 2}, {"a": 1, "c": 3}) == {"a": True, "c": False, "b": False}


def test_numbers_within_the_tolerance_are_equal_and_texts_are_not():
    found, gold = {"total": 10.01, "id": "10.01"}, {"total": 10.0, "id": "10.0"}

    assert compare_fields(found, gold, tolerance=0.01) == {"total": True, "id": False}


def test_a_fraction_is_not_an_integer_beyond_every_float():
    assert compare_fields({"total": 10**400}, {"total": 1.5}, tolerance=0.01) == {"total": False}


@pytest.mark.parametrize("order", [*permutations(["118.4", "118.401", "118.39"])])
def test_numbers_within_the_tolerance_of_one_that_most_are_near_to_count_as_it(order):
    """118.39 and 118.401 are 0.011 apart, and both within 0.01 of 118.4."""
    assert merged(order, [1, 1, 1], 0.01) == ["118.4"] * 3


def test_a_chain_of_numbers_is_divided_from_where_most_votes_are():
    """1.01 and 1.02 have the same votes within 0.01. The smaller one wins, or the one with more votes of its own."""
    texts = ["1", "1.01", "1.02", "1.03"]

    assert merged(texts, [1, 1, 1, 1], 0.01) == ["1.01", "1.01", "1.01", "1.03"]
    assert merged(texts, [1, 1, 2, 1], 0.01) == ["1", "1.02", "1.02", "1.02"]


@pytest.mark.parametrize(
    ("texts", "votes", "expected"),
    [
        (["10", "10.01"], [1, 1], ["10", "10"]),
        (["10", "10.01"], [1, 2], ["10.01", "10.01"]),
        (["10", "10.0101"], [1, 1], ["10", "10.0101"]),
        (['"10"', '"10.001"', '"nan"', "true", "1", "null", ""], [1] * 7, None),
        ([str(2**60), str(2**60 + 1)], [1, 1], None),
        ([str(10**400), "1.5"], [1, 1], None),
    ],
    ids=["the smaller", "the more frequent", "beyond", "no numbers", "long ids", "beyond every float"],
)
def test_which_values_of_two_are_one(texts, votes, expected):
    assert merged(texts, votes, 0.01) == (expected or texts)


INVOICE = {
    "name": "invoice",
    "instructions": "Answer in JSON.",
    "prompt": "{text}",
    "output": {"format": "json", "schema": {"type": "object"}},
    "constraints": [
        {"name": "sum", "rule": "sum", "value": "answer.items[].price", "equal": "answer.total"},
        {"name": "positive", "rule": "compare", "value": "answer.total", "at_least": 0},
    ],
    "gold": {"field": "gold", "match": "json", "tolerance": 0.005},
}

PROBLEM = Problem(task="invoice", problem_id="p", prompt="t", data={"text": "t"})


def test_a_declared_json_task_gives_fields_and_the_field_of_a_violation():
    report = check(DeclaredTask(INVOICE), '{"text": "t"}', '{"total": -1.0, "items": [{"price": 2}]}')

    assert report.fields == {"total": "-1", "items[0].price": "2"}
    assert report.field_tolerance == 0.005
    assert [violation.path for violation in report.violations] == ["items", "total"]


@pytest.mark.parametrize(
    ("gold", "tolerance"),
    [
        ({"by_kind": {"rough": {"match": "json", "tolerance": 5}}}, 5),
        ({"match": "number", "value": "answer.total", "tolerance": 5}, 0),
    ],
    ids=["of the kind of question", "of one number of the answer"],
)
def test_the_tolerance_of_fields_is_that_of_the_whole_answer(gold, tolerance):
    task = DeclaredTask({**INVOICE, "data": {"kind": "kind"}, "gold": {"field": "gold", "match": "json", **gold}})

    assert task.field_tolerance(replace(PROBLEM, kind="rough")) == tolerance


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("items[1].price", 'items[sku="B"].price'),
        ("items[1].subtract(price, tax)", 'items[sku="B"]'),
        ("items[0].discount", 'items[sku="A"].discount'),
        ("items", "items"),
        ("items[9].price", "items"),
        ("[day=1].dinner", "[day=1].dinner"),
        ("", ""),
    ],
)
def test_a_rule_s_path_is_named_like_the_fields(path, named):
    answer = {"items": [{"sku": "A", "price": 1}, {"sku": "B", "price": 2}]}

    assert named_path(path, answer, ITEMS) == named


def test_a_label_has_a_verdict_on_every_field_of_answer_and_gold():
    task = DeclaredTask(INVOICE)
    gold = Gold(task="invoice", problem_id="p", value={"answer": {"total": 3.0, "date": "2026-01-02"}})
    text = json.dumps({"total": 3.004, "extra": 1})

    judged = label(task, PROBLEM, gold, text)
    assert judged.verdict == "incorrect"
    assert judged.fields == {"total": True, "date": False, "extra": False}


def test_items_in_another_order_are_the_same_answer_where_they_have_keys():
    schema = {"type": "object", **ITEMS}
    task = DeclaredTask({**INVOICE, "output": {"format": "json", "schema": schema}})
    gold = Gold(task="invoice", problem_id="p", value={"answer": {"items": [{"sku": "A"}, {"sku": "B"}]}})
    text = '{"items": [{"sku": "B"}, {"sku": "A"}]}'
    assert label(task, PROBLEM, gold, text).verdict == "correct"


def test_json_answers_within_the_tolerance_are_correct():
    task = DeclaredTask(INVOICE)
    gold = Gold(task="invoice", problem_id="p", value={"answer": {"total": 3.0}})
    assert label(task, PROBLEM, gold, '{"total": 3.004}').verdict == "correct"
