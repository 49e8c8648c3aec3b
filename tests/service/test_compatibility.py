"""docs/compatibility.md: what version 1.0 offered is offered still, and what it wrote is read.

A new major version writes what it offers: RAYDEBM_WRITE_SURFACE=1 pytest tests/service/test_compatibility.py
"""

import inspect
import json
import os
import shutil

import pytest
from decisions_by_hand import record, report, scored, stored_in
from hand_written_run import PUZZLE, RIGHT, WRONG

import raydebm
from raydebm.choose import Chooser
from raydebm.cli.commands import VERBS, command_of
from raydebm.config import Recipe
from raydebm.service.store.outcomes import OutcomeLog
from raydebm.service.store.reader import DecisionReader


def python():
    for name in raydebm.__all__:
        yield name
        thing = getattr(raydebm, name)
        if inspect.isfunction(thing):
            yield from (f"{name}({parameter})" for parameter in inspect.signature(thing).parameters)


def commands():
    for verb in VERBS:
        command = command_of(verb)
        for name, each in {verb: command, **getattr(command, "commands", {})}.items():
            yield from (f"{verb} {name} {option}" for parameter in each.params for option in parameter.opts)


def fields_of(schema, defs, path="", within=()):
    """(path, schema, whether required) of every field, also of fields of fields."""
    name = schema.get("$ref", "").split("/")[-1]
    if name in within:
        return
    schema, within = defs.get(name, schema), (*within, name) if name else within
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from fields_of(part, defs, path, within)
    if "items" in schema:
        yield from fields_of(schema["items"], defs, f"{path}[]", within)
    for key, field in schema.get("properties", {}).items():
        yield f"{path}.{key}", field, key in schema.get("required", ())
        yield from fields_of(field, defs, f"{path}.{key}", within)


def recipe():
    schema = Recipe.model_json_schema()
    for path, field, _ in fields_of(schema, schema["$defs"]):
        default = field.get("default", "without default")
        yield f"{path} = {json.dumps(default)}" if not isinstance(default, dict) else path


def http(document, *, required=False):
    schemas = document["components"]["schemas"]
    for route, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method} {route}"
            bodies = {"request": operation.get("requestBody", {}), "response": operation["responses"].get("200", {})}
            for side, body in bodies.items():
                schema = body.get("content", {}).get("application/json", {}).get("schema", {})
                for path, _, is_required in fields_of(schema, schemas):
                    if not required or (is_required and side == "request"):
                        yield f"{method} {route} {side}{path}"


@pytest.fixture
def of_1_0(repository):
    """The folder of what 1.0 offered and wrote."""
    folder = repository / "tests/compatibility"
    if "RAYDEBM_WRITE_SURFACE" in os.environ and not (folder / "run").exists():
        packaged = repository / "raydebm/embedded/demo_run"
        for name in ("recipe.json", "calibration/policy.json"):
            (folder / "run" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(packaged / name, folder / "run" / name)
        made = record(0, scored("a", -2.0, 0.5), scored("b", -1.0, 0.0, key="43"))
        stored_in(folder / "decisions", [made])
        report(OutcomeLog(str(folder / "decisions")), made, False, answer="43")
    return folder


@pytest.fixture
def compared(of_1_0, app):
    """Part -> (lines of 1.0, lines of now)."""
    surface = {
        "python": python(), "commands": commands(), "recipe": recipe(), "http": http(app.openapi()),
        "required": http(app.openapi(), required=True),
    }  # fmt: skip
    now, file = {part: sorted(set(lines)) for part, lines in surface.items()}, of_1_0 / "surface.json"
    if "RAYDEBM_WRITE_SURFACE" in os.environ:
        file.write_text(json.dumps(now, indent=0) + "\n", encoding="utf-8")
    old = json.loads(file.read_text(encoding="utf-8"))
    return {part: (set(old[part]), set(now[part])) for part in now}


@pytest.mark.parametrize("part", ["python", "commands", "recipe", "http"])
def test_nothing_is_gone(compared, part):
    old, now = compared[part]
    assert old - now == set()


def test_no_request_needs_a_further_field(compared):
    old, now = compared["required"]
    assert {line for line in now - old if " ".join(line.split()[:2]) in old} == set()


def test_a_run_of_1_0_chooses(of_1_0):
    choice = Chooser.load(str(of_1_0 / "run"), energies=False).best_of(PUZZLE, [WRONG, RIGHT])

    assert (choice.selected, choice.confidence) == (1, 1.0)


def test_decisions_that_1_0_stored_are_listed_with_their_outcomes(of_1_0):
    reader = DecisionReader(str(of_1_0 / "decisions"))

    [listed] = reader.page().data
    stored = reader.get(listed.record_id)
    assert (listed.decision, listed.outcome) == ("accept", "wrong")
    assert [each.report.answer for each in stored.outcome.pool] == ["42", "43"]
