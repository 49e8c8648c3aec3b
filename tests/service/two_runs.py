"""Run directories of two tasks for one service: puzzles, whose reader is strict, and word problems, which read any
text."""

import pytest

from raydebm.config import parse_recipe
from raydebm.decision.policy import Policy
from raydebm.run.directory import RunDir
from raydebm.run.tables import SplitProblem
from raydebm.service.settings import AppArgs, RunArgs
from raydebm.tasks import get_task

NAMES, GOODS, OTHERS = ("Ben", "Ida", "Leo", "Mia", "Tom"), ("apples", "pears", "eggs"), ("friend", "uncle", "niece")
QUESTIONS = [
    f"{name} buys 12 {goods} and gives 5 {goods} to a {other}. How many {goods} are left?"
    for name in NAMES
    for goods in GOODS
    for other in OTHERS
]
"""45 word problems that differ in a few words."""
LIKE_THEM = "Ida buys 96 eggs and gives 12 eggs to a niece. How many pears are left?"


def write_problems(run, task_name, texts):
    task = get_task(task_name)
    run.write_problems(SplitProblem(problem=task.problem_from_text(text), split="train") for text in texts)


def puzzles(count=30):
    pairs = get_task("knights_knaves").load("train", source="generate:2-3", limit=count, seed=1)
    return [problem.prompt for problem, _ in pairs]


def write_second_run(folder, recipe, task_name="gsm8k", texts=QUESTIONS):
    """The second run's directory, with adapters and a generator of its own under a known name."""
    run = RunDir(str(folder))
    own = {**recipe, "name": "second", "task": {"name": task_name}, "generators": recipe["generators"][:1]}
    run.write_json(parse_recipe(own).model_dump(mode="json", by_alias=True), "recipe.json")
    run.write_json(Policy(num_regenerate=2, theta_sigma=0.5).to_json(), "calibration", "policy.json")
    ensemble = {"backbone": "embedded:encoder-mini", "adapters": ["a0", "a1"], "meta": {"name": "second"}}
    run.write_json(ensemble, "scorer", "ensemble.json")
    if texts:
        write_problems(run, task_name, texts)
    return run.root


@pytest.fixture
def two_runs(write_run, recipe, tmp_path):
    """Arguments of a service of both runs; changes are further arguments."""
    first = RunDir(write_run())
    write_problems(first, "knights_knaves", puzzles())
    second = write_second_run(tmp_path / "second", recipe)

    def args(**changes):
        return AppArgs(run_dir=first.root, further_runs=(RunArgs(run_dir=second),), **changes)

    return args
