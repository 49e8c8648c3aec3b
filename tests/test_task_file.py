"""A task file inside a recipe: from a path to a definition that travels with it."""

import json

import pytest
import yaml

from raydebm.config import load_recipe, parse_recipe
from raydebm.errors import ConfigError
from raydebm.pipeline.checker import DeadlineChecker
from raydebm.records import Candidate
from raydebm.tasks import task_of

TASK = {
    "name": "reply",
    "instructions": "Answer.",
    "prompt": "{question}",
    "output": {"format": "json"},
    "constraints": [
        {"name": "cost", "rule": "compare", "value": "answer.cost", "at_most": 5, "message": "over by ${excess}"}
    ],
    "gold": {"field": "gold", "value": "answer.cost", "match": "number"},
}
RECIPE = {"name": "r", "task": {"name": "reply.yaml"}, "generators": [{"kind": "openai", "name": "g", "model": "m"}]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reply.yaml").write_text(yaml.safe_dump(TASK), encoding="utf-8")
    return tmp_path


@pytest.fixture
def recipe(folder):
    return parse_recipe(RECIPE)


def test_the_path_becomes_the_tasks_name_and_content(recipe):
    assert recipe.task.name == "reply"
    assert recipe.task.definition == {"folder": ".", **TASK}
    assert recipe.resolved_run_dir == "runs/r"


def test_the_recipe_needs_the_file_no_longer(recipe, folder):
    """What a run directory keeps, and what the service and resumed runs read."""
    (folder / "reply.yaml").unlink()
    again = parse_recipe(json.loads(json.dumps(recipe.model_dump(mode="json", by_alias=True))))

    assert again == recipe
    assert task_of(again.task).constraints[0].name == "cost"


def test_dollar_signs_of_messages_are_no_variables_of_the_environment(recipe):
    assert task_of(recipe.task).definition.constraints[0].message == "over by ${excess}"


def test_the_path_may_come_from_the_command_line(folder):
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, "task": {"name": "gsm8k"}}), encoding="utf-8")

    assert load_recipe("recipe.yaml", overrides=["task.name=./reply.yaml"]).task.name == "reply"


def test_data_lies_beside_the_task_file_wherever_that_is(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "reply.yml").write_text(yaml.safe_dump({**TASK, "data": {"train": "rows.jsonl"}}))
    (folder / "deep" / "rows.jsonl").write_text('{"question": "?", "gold": 1}\n')
    task = task_of(parse_recipe({**RECIPE, "task": {"name": "deep/reply.yml"}}).task)

    assert [problem.prompt for problem, _ in task.load("train")] == ["?"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "task file 'reply.yaml' does not exist .*raydebm task new"),
        ("a: [", "is not YAML"),
        ("name: reply\nname: b", "task file 'reply.yaml': key 'name' is given twice, in lines 1 and 2"),
        ("- a", "must be a mapping with a name"),
        ("description: x", "must be a mapping with a name"),
        ("name: reply\nday: 2026-01-01", "put dates and the like in quotes"),
        ("name: reply\nx: .nan", "put dates and the like in quotes"),
    ],
)
def test_a_file_that_is_no_task_is_named(content, words, folder):
    (folder / "reply.yaml").unlink()
    if content is not None:
        (folder / "reply.yaml").write_text(content)
    with pytest.raises(ConfigError, match=words):
        parse_recipe(RECIPE)


def test_a_path_and_a_definition_exclude_each_other(folder):
    with pytest.raises(ConfigError, match="leave one of them out"):
        parse_recipe({**RECIPE, "task": {"name": "reply.yaml", "definition": TASK}})


def test_a_name_and_a_definition_must_agree(folder):
    with pytest.raises(ConfigError, match=r"task\.name is 'gsm8k', but task\.definition declares 'reply'"):
        parse_recipe({**RECIPE, "task": {"name": "gsm8k", "definition": TASK}})


def test_a_wrong_task_is_found_before_anything_starts(folder):
    (folder / "reply.yaml").write_text(yaml.safe_dump({**TASK, "vote": "reply"}))
    with pytest.raises(ConfigError, match="vote: expression 'reply' starts at 'reply'"):
        task_of(parse_recipe(RECIPE).task)


def test_the_checkers_own_process_knows_the_task(recipe, folder):
    (folder / "reply.yaml").unlink()
    problem, gold = task_of(recipe.task).problem_and_gold({"question": "?", "gold": 7}, "row 1")
    checker = DeadlineChecker(recipe.task, deadline_s=30.0)
    candidate = Candidate(
        candidate_id="c", task="reply", problem_id=problem.problem_id, generator="g", text='{"cost": 7}'
    )
    try:
        label, report = checker.check(problem, gold, candidate)
    finally:
        checker.close()

    assert label.verdict == "correct"
    assert report.penalty == pytest.approx(0.4)
    assert "over by $2" in report.violations[0].message
