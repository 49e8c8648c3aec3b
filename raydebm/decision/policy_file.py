"""The policy to decide by: a run's calibrated one, its recipe's own, or that of a file; and whether it fits a run."""

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
    return policy_in_force(run) if wanted is None else policy_in(wanted)


def policy_in_force(run: RunDir) -> Policy:
    """The policy of ``calibration/policy.json``. Raises ConfigError when it is missing or wrong."""
    return _policy(_calibrated(run), run.uri("calibration", "policy.json"))


def policy_in(path: str) -> Policy:
    """The policy of a file. Raises ConfigError when it is missing or wrong."""
    return _policy(_json_file(path), path)


def check_fits(policy: Policy, recipe: Recipe, task: Task, *, what: str) -> None:
    """Check that a policy can decide about what a run's generators write.

    Args:
        policy: to check.
        recipe: the run's; says which scores are measured.
        task: of the problems.
        what: the policy in the words of the message.

    Raises:
        ConfigError: its posterior was fitted for another task, or rests on scores that nothing measures here.
    """
    if policy.posterior is None:
        return
    if policy.posterior.task not in ("", task.name):
        raise ConfigError(
            f"{what} was fitted for task {policy.posterior.task!r}, and this is task {task.name!r}; calibrate one for "
            "this task"
        )
    at_hand = {baseline.name for baseline in recipe.evidence}
    if any(generator.logprobs for generator in recipe.generators):
        at_hand |= {OWN_LOGPROB, OWN_WORST_LOGPROB}
    missing = sorted(name for name in _scores(policy.posterior) if not _is_measured(name, at_hand))
    if missing:
        raise ConfigError(
            f"{what} rests on evidence that nothing measures here: {', '.join(missing)}; at hand: "
            f"{', '.join(sorted(at_hand)) or 'none'}. Calibrate a policy without it, or add the baseline or `logprobs` "
            "to the recipe"
        )


def _scores(posterior: Posterior) -> set[str]:
    """Scores of baselines and generators that carry weight."""
    weights = [*posterior.weights.items(), *posterior.context_weights.items()]
    kinds = (SCORE, POOL_SCORE)
    return {name.removeprefix(kind) for name, weight in weights if weight for kind in kinds if name.startswith(kind)}


def _is_measured(score: str, at_hand: set[str]) -> bool:
    """Parts of a baseline's score are called ``<name>.<part>``."""
    return any(score == name or score.startswith(f"{name}.") for name in at_hand)


def _policy(value: Any, where: str) -> Policy:
    try:
        return Policy.from_json(value)
    except (ConfigError, TypeError) as error:
        raise ConfigError(
            f"{where} is not a policy: {error}. Where another version wrote it, calibrate again"
        ) from error


def _calibrated(run: RunDir) -> Any:
    remedy = "run `raydebm calibrate`, or set `policy: recipe` to use the recipe's own thresholds"
    value = run.read_object("calibration", "policy.json", remedy=remedy)
    if value is None:
        raise ConfigError(f"{run.uri('calibration', 'policy.json')} does not exist; {remedy}")
    return value


def _json_file(path: str) -> Any:
    text = text_of(path, what="policy file", missing="; give a file, `recipe`, or leave `policy` out")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy file {path!r} is not JSON: {error}") from error
