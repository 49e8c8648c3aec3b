"""The policy to decide by: a run's calibrated one, its recipe's own, or that of a file."""

import json
from pathlib import Path
from typing import Any

from raydebm.config import Recipe
from raydebm.decision.policy import Policy, policy_of
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.tasks.base import Task


def read_policy(run: RunDir, recipe: Recipe, task: Task, wanted: str | None = None) -> Policy:
    """The policy to decide by.

    Args:
        run: holds calibration/policy.json.
        recipe: the run's.
        task: whose lambda counts where the recipe states none.
        wanted: None: the calibrated policy of the run; ``recipe``: the recipe's own thresholds; else a policy file.

    Raises:
        ConfigError: there is no such policy, or it is wrong.
    """
    if wanted == "recipe":
        return policy_of(recipe.triage, task.defaults, recipe.generators)
    if wanted is None:
        value, where = _calibrated(run), run.uri("calibration", "policy.json")
    else:
        value, where = _json_file(wanted), wanted
    try:
        return Policy.from_json(value)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where} is not a policy: {error}") from error


def _calibrated(run: RunDir) -> Any:
    where = run.uri("calibration", "policy.json")
    try:
        return run.read_json("calibration", "policy.json")
    except FileNotFoundError as error:
        remedy = "run `raydebm calibrate`, or set `policy: recipe` to use the recipe's own thresholds"
        raise ConfigError(f"{where} does not exist; {remedy}") from error
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error


def _json_file(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"policy file {path!r} does not exist; give a file, `recipe`, or leave `policy` out"
        ) from error
    except ValueError as error:
        raise ConfigError(f"policy file {path!r} is not JSON: {error}") from error
