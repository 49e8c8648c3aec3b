"""What a finished run decides by: its recipe, task and policy, read from the run directory.

Does not know: adapters, generators, Ray, HTTP.
"""

import json
from pathlib import Path
from typing import Any

from raydebm.config import Recipe, parse_recipe
from raydebm.decision.policy import Policy, policy_of
from raydebm.errors import ConfigError
from raydebm.store import RunDir
from raydebm.tasks import get_task, task_of
from raydebm.tasks.base import Task


def read_recipe(run: RunDir) -> Recipe:
    """The recipe that the run was made with.

    Raises:
        ConfigError: recipe.json is missing or is not a recipe.
    """
    where = run.uri("recipe.json")
    tree = _json(run, "recipe.json", remedy="make a run first (`raydebm run` or `make demo`), or correct `run_dir`")
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} must hold a recipe, got {type(tree).__name__}")
    return parse_recipe(tree, where=where)


def read_task(recipe: Recipe, name: str | None = None) -> Task:
    """The recipe's task, or another one by its name. Raises UnknownNameError."""
    return task_of(recipe.task) if name in (None, recipe.task.name) else get_task(str(name))


def read_policy(run: RunDir, recipe: Recipe, task: Task, wanted: str | None = None) -> Policy:
    """The policy to decide by.

    Args:
        run: holds calibration/policy.json.
        recipe: of the run.
        task: whose lambda counts where the recipe states none.
        wanted: None: the calibrated policy of the run; ``recipe``: the recipe's own thresholds; else a policy file.

    Raises:
        ConfigError: there is no such policy, or it is wrong.
    """
    if wanted == "recipe":
        return policy_of(recipe.triage, task.defaults, recipe.generators)
    if wanted is None:
        remedy = "run `raydebm calibrate`, or set `policy: recipe` to use the recipe's own thresholds"
        value, where = _json(run, "calibration", "policy.json", remedy=remedy), run.uri("calibration", "policy.json")
    else:
        value, where = _json_file(wanted), wanted
    try:
        return Policy.from_json(value)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where} is not a policy: {error}") from error


def _json(run: RunDir, *parts: str, remedy: str) -> Any:
    try:
        return run.read_json(*parts)
    except FileNotFoundError as error:
        raise ConfigError(f"{run.uri(*parts)} does not exist; {remedy}") from error
    except ValueError as error:
        raise ConfigError(f"{run.uri(*parts)} is not JSON: {error}") from error


def _json_file(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"policy file {path!r} does not exist; give a file, `recipe`, or leave `policy` out"
        ) from error
    except ValueError as error:
        raise ConfigError(f"policy file {path!r} is not JSON: {error}") from error
