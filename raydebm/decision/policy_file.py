"""Read a policy from a run, a recipe or a file, and check that it fits a run."""

import json
from typing import Any

from raydebm.config import Recipe
from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_of
from raydebm.errors import ConfigError
from raydebm.records import OWN_LOGPROB, OWN_WORST_LOGPROB
from raydebm.run.directory import RunDir
from raydebm.tasks.base import Task
from raydebm.user_files import text_of


def read_policy(run: RunDir, recipe: Recipe, task: Task, wanted: str | None = None) -> Policy:
    """Read the policy to decide by.

    Args:
        run: run with calibration/policy.json.
        recipe: the run's recipe, for ``wanted="recipe"``.
        task: task whose lambda is the recipe's default.
        wanted: ``recipe`` for the recipe's own thresholds, or the path of a policy file. Default: the run's calibrated
            policy.

    Raises:
        ConfigError: the policy is missing or invalid.
    """
    if wanted == "recipe":
        return policy_of(recipe.decision, task.defaults, recipe.generators)
    return policy_in_force(run) if wanted is None else policy_in(wanted)


def policy_in_force(run: RunDir) -> Policy:
    """The policy of ``calibration/policy.json``. Raises ConfigError if it is missing or invalid."""
    remedy = "run `raydebm calibrate`, or set `policy: recipe` to use the recipe's own thresholds"
    value, where = run.read_object("calibration", "policy.json", remedy=remedy), run.uri("calibration", "policy.json")
    if value is None:
        raise ConfigError(f"{where} does not exist; {remedy}")
    return _policy(value, where)


def policy_in(path: str, *, remedy: str = "give a file, `recipe`, or leave `policy` out") -> Policy:
    """The policy of a file. Raises ConfigError if it is invalid, or missing (the message then ends with ``remedy``)."""
    text = text_of(path, what="policy file", missing=f"; {remedy}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy file {path!r} is not JSON: {error}") from error
    return _policy(value, path)


def check_fits(policy: Policy, recipe: Recipe, task: Task, *, what: str) -> None:
    """Check that a policy can decide about the candidates of a run.

    Args:
        policy: policy from a file or a calibration.
        recipe: the run's recipe, which defines the measured scores.
        task: task of the problems to decide about.
        what: name of the policy in the error message.

    Raises:
        ConfigError: the posterior was fitted for another task, or uses scores that are not measured in this run.
    """
    if policy.posterior is None:
        return
    if policy.posterior.task not in ("", task.name):
        raise ConfigError(
            f"{what} was fitted for task {policy.posterior.task!r}, but this run's task is {task.name!r}; "
            "calibrate a policy for this task"
        )
    at_hand = {baseline.name for baseline in recipe.evidence}
    if any(
        getattr(config, "logprobs", config.kind == "recorded") for config in recipe.generators
    ):  # a pool may have log-probabilities
        at_hand |= {OWN_LOGPROB, OWN_WORST_LOGPROB}
    missing = sorted(name for name in _scores(policy.posterior) if not _is_measured(name, at_hand))
    if missing:
        raise ConfigError(
            f"{what} needs evidence that is not measured here: {', '.join(missing)}; available: "
            f"{', '.join(sorted(at_hand)) or 'none'}. Calibrate a policy without it, or add the baseline or `logprobs` "
            "to the recipe"
        )


def _scores(posterior: Posterior) -> set[str]:
    """Scores of baselines and generators that have a nonzero weight."""
    weights = [*posterior.weights.items(), *posterior.context_weights.items()]
    kinds = (SCORE, POOL_SCORE)
    return {name.removeprefix(kind) for name, weight in weights if weight for kind in kinds if name.startswith(kind)}


def _is_measured(score: str, at_hand: set[str]) -> bool:
    """Whether a score is measured. Parts of a baseline's score are named ``<name>.<part>``."""
    return any(score == name or score.startswith(f"{name}.") for name in at_hand)


def _policy(value: Any, where: str) -> Policy:
    try:
        return Policy.from_json(value)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where} is not a policy: {error}. If another version wrote it, calibrate again") from error
