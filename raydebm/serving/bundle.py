"""What a run directory gives to the service: recipe, policy, checkpoint, and the versions that answers carry.

Everything that can be wrong with a run directory is found here, before a replica starts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm import __version__
from raydebm.config import GeneratorConfig, Recipe, parse_recipe
from raydebm.errors import CheckpointError, ConfigError, UnknownNameError
from raydebm.generators.passes import PassRequests
from raydebm.identity import content_id
from raydebm.store import RunDir
from raydebm.tasks import get_task
from raydebm.triage.policy import Policy, policy_of


class AppArgs(BaseModel):
    """The ``args`` of the application in ``serve_config.yaml``. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: str
    """Holds recipe.json, scorer/ and calibration/policy.json: a local path that every replica's node can read, or a
    filesystem URL."""
    task: str | None = None
    """None: the recipe's task."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """A subset of the recipe's generators; None: all of them."""
    policy: str | None = None
    """None: calibration/policy.json of the run; ``"recipe"``: the recipe's own thresholds; else a policy file."""
    device: str = "auto"
    """Of the scorer: ``auto``, ``cpu``, ``cuda``."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int | None = Field(None, ge=1)
    """CPU threads of one scorer replica and of local generators; None: torch's default."""
    batching: bool = True
    """Score the candidates of requests that arrive together in one batch."""
    max_problem_chars: int = Field(32_000, ge=1)
    max_body_bytes: int = Field(1_000_000, ge=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A run directory, read and checked. Everything in it can be sent to replicas."""

    recipe: Recipe
    policies: Mapping[str, Policy]
    """One per served task; the order is the order in which ``raydebm/auto`` tries them."""
    generators: tuple[str, ...]
    """Names of the served generators, in the recipe's order."""
    checkpoint: str
    versions: Mapping[str, str]
    max_problem_chars: int
    max_body_bytes: int

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.policies)

    def generator_configs(self) -> tuple[GeneratorConfig, ...]:
        return tuple(config for config in self.recipe.generators if config.name in self.generators)

    @property
    def regenerator(self) -> str:
        """The generator of later passes: the recipe's, or the first one when the recipe's is not served."""
        task = get_task(self.tasks[0])
        return PassRequests(recipe=self.recipe, task=task, generators=self.generators).regenerator.name


def load_bundle(args: AppArgs) -> Bundle:
    """Read and check a run directory.

    Raises:
        ConfigError: the run directory, its recipe or its policy is missing or wrong; an unknown generator.
        UnknownNameError: an unknown task.
        CheckpointError: there is no trained ensemble in it.
    """
    run = RunDir(args.run_dir)
    recipe = _recipe(run)
    task = get_task(args.task or recipe.task.name)
    generators = _generators(recipe, args.generators)
    policy = _policy(run, recipe, args.policy, task.name)
    ensemble = _ensemble(run)
    return Bundle(
        recipe=recipe,
        policies={task.name: policy},
        generators=generators,
        checkpoint=run.uri("scorer"),
        versions={
            "raydebm": __version__,
            "recipe": recipe.name,
            "backbone": str(ensemble.get("backbone", recipe.scorer.backbone)),
            "checkpoint": content_id(ensemble, length=12),
            "policy": content_id(policy.to_json(), length=12),
        },
        max_problem_chars=args.max_problem_chars,
        max_body_bytes=args.max_body_bytes,
    )


def _recipe(run: RunDir) -> Recipe:
    where = run.uri("recipe.json")
    tree = _json(run, "recipe.json", way_out="make a run first (`raydebm run` or `make demo`), or correct `run_dir`")
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} must hold a recipe, got {type(tree).__name__}")
    return parse_recipe(tree, where=where)


def _generators(recipe: Recipe, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    known = [config.name for config in recipe.generators]
    if wanted is None:
        return tuple(known)
    for name in wanted:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    return tuple(name for name in known if name in wanted)


def _policy(run: RunDir, recipe: Recipe, wanted: str | None, task_name: str) -> Policy:
    if wanted == "recipe":
        return policy_of(recipe.triage, get_task(task_name).defaults)
    if wanted is None:
        way_out = "run `raydebm calibrate`, or set `policy: recipe` to serve the recipe's own thresholds"
        value, where = _json(run, "calibration", "policy.json", way_out=way_out), run.uri("calibration", "policy.json")
    else:
        value, where = _json_file(wanted), wanted
    try:
        return Policy.from_json(value)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where} is not a policy: {error}") from error


def _ensemble(run: RunDir) -> dict[str, Any]:
    where = run.uri("scorer")
    try:
        ensemble = run.read_json("scorer", "ensemble.json")
    except FileNotFoundError as error:
        raise CheckpointError(f"{where} holds no trained ensemble (no ensemble.json); run `raydebm train`") from error
    except ValueError as error:
        raise CheckpointError(f"{where}/ensemble.json is not JSON: {error}; train again") from error
    if not isinstance(ensemble, dict):
        raise CheckpointError(f"{where}/ensemble.json must be an object, got {type(ensemble).__name__}; train again")
    return ensemble


def _json(run: RunDir, *parts: str, way_out: str) -> Any:
    try:
        return run.read_json(*parts)
    except FileNotFoundError as error:
        raise ConfigError(f"{run.uri(*parts)} does not exist; {way_out}") from error
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
