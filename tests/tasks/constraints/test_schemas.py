"""JSON Schema: what it finds, and that neither schema nor answer can make it slow or reach out."""

import json

import pytest
from task_data import cpu_within

from raydebm.errors import ConstraintError
from raydebm.records import Problem
from raydebm.tasks.constraints import violations_of
from raydebm.tasks.constraints.expressions import EvaluationError
from raydebm.tasks.constraints.rule import compile_rule
from raydebm.tasks.constraints.rule_kinds import read_rule
from raydebm.tasks.constraints.schemas import Steps, check_schema, faults_of, schema_faults, validator_of

PLAN = {
    "type": "object",
    "required": ["days"],
    "properties": {"days": {"type": "array", "items": {"$ref": "#/$defs/day"}}},
    "$defs": {"day": {"type": "object", "required": ["city"], "properties": {"city": {"pattern": "^[A-Z]"}}}},
}


def faults(schema, value):
    check_schema(schema)
    return [(fault.path, fault.reason) for fault in schema_faults(json.dumps(schema), value)]


def test_faults_name_place_and_reason():
    assert faults(PLAN, {"days": [{"city": "Rome"}, {"city": "rome"}, {}]}) == [
        ("days[1].city", "'rome' does not match '^[A-Z]'"),
        ("days[2]", "'city' is a required property"),
    ]


def test_each_fault_more_costs_more():
    """1/2 for one fault, 2/3 for two."""
    constraint = compile_rule(read_rule({"name": "c", "rule": "schema", "schema": PLAN}))
    problem = Problem(task="t", problem_id="p", prompt="?")

    def cost(answer):
        return sum(violation.penalty for violation in violations_of([constraint], problem, answer))

    assert cost({"days": []}) == 0
    assert cost({}) == pytest.approx(1 / 2)
    assert cost({"days": [{}, {}]}) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "https://example.com/schema.json"}, "outside the schema"),
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "outside the schema"),
        ({"patternProperties": {"(a+)+$": {}}}, "not supported"),
        ({"type": "string", "pattern": "(?=x)"}, "lookaround"),
        ({"type": 5}, "type"),
        ({"type": ["string"] * 17}, "at most 16"),
        ({"$defs": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}}, "may name its draft"),
        ({"properties": {"a": {"minimum": "one"}}}, "properties.a.minimum"),
    ],
)
def test_refused_schemas(schema, reason):
    with pytest.raises(ConstraintError, match=reason):
        check_schema(schema)


def test_a_reference_to_nothing_is_an_error_and_not_a_download():
    with pytest.raises(EvaluationError, match="not in it"):
        faults({"$ref": "#/$defs/nothing"}, {})


def test_a_schema_that_refers_to_itself_ends():
    with pytest.raises(EvaluationError):
        faults({"$ref": "#"}, {})


def test_branching_without_end_is_stopped_after_a_number_of_steps():
    schema = {"$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}, "minItems": 9}] * 4}}, "$ref": "#/$defs/n"}
    value = []
    for _ in range(40):
        value = [value]
    with cpu_within(10), pytest.raises(EvaluationError, match=r"steps|deep"):
        faults(schema, value)


def doubling(levels):
    """A schema of few lines whose check visits its last part 2^levels times."""
    twice = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**twice, f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


def test_several_checks_share_their_steps():
    """One check takes $ref, allOf, twice $ref, twice type: six steps."""
    steps = Steps(limit=12)
    validator = validator_of(doubling(1))
    assert [faults_of(validator, {}, steps), faults_of(validator, {}, steps), steps.taken] == [[], [], 12]
    with pytest.raises(EvaluationError, match="more than 12 steps"):
        faults_of(validator, {}, steps)


def test_a_long_list_costs_more_steps():
    steps = Steps()
    assert faults_of(validator_of({"enum": list(range(1000))}), 999, steps) == []
    assert steps.taken == 11  # one, and one for each hundred


def test_the_name_of_a_draft_does_not_lift_the_bound():
    """``$ref: #`` comes back to the whole schema, whose draft's own validator knows no steps."""
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = {**named, "properties": {"x": {"$ref": "#"}}, **doubling(20)}
    with pytest.raises(EvaluationError, match="steps"):
        faults(schema, {"x": {}})


def test_unique_items_take_one_look_at_each():
    items = [{"id": index} for index in range(20_000)]
    with cpu_within(5):
        assert faults({"uniqueItems": True}, items) == []
        assert faults({"uniqueItems": True}, [*items, {"id": 1}]) == [("", "1 item(s) are repeated")]


def test_the_standard_pattern_keyword_does_not_backtrack():
    assert len(faults({"pattern": "^(a+)+$"}, "a" * 50_000 + "b")) == 1


def test_deep_answers_are_refused():
    deep = {}
    for _ in range(3000):
        deep = {"x": deep}
    with pytest.raises(EvaluationError, match="more than 64 deep"):
        faults({"type": "object"}, deep)
