"""One round of learning from outcomes: what of a run is made again, and where it goes.

    <run>/improved-<n>/policy.json         the policy in force with thresholds chosen again, for the present scorer
    <run>/improved-<n>/...                 a run directory: old and new problems, a scorer trained on both, its policy
    <run>/improved-<n>/improvement.json    what it was made of, and how it did; written last

In:   a finished run, and the records folder of its service.
Out:  an ``ImprovementPlan``; then a policy, and a run directory that the pipeline brings to its calibration.
Does not know: Ray, HTTP, terminals. Nothing is sampled.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raydebm.config import Recipe
from raydebm.decision.policy import Policy
from raydebm.decision.policy_file import policy_in_force
from raydebm.decision_import.new_outcomes import (
    WITHOUT_HELD_OUT,
    NewOutcomes,
    Source,
    new_outcomes,
    saw_held_out,
    source_in_force,
)
from raydebm.decision_import.recertify import recertified
from raydebm.decision_import.run_folder import ImportedTables, recipe_of_import, write_tables
from raydebm.decision_import.sample import Origin, outcome_sample
from raydebm.decision_import.version_trial import VersionTrial
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.stats.significance import Comparison
from raydebm.pairs import text_key
from raydebm.pipeline.context import TEST, StageContext
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import holds_ensemble, read_ref
from raydebm.tasks import task_of

FILE = "improvement.json"
_FOLDER = re.compile(r"improved-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovementPlan:
    """What one round is made of."""

    run: RunDir
    recipe: Recipe
    """The run's, with the run directory where it is now."""
    origin: Origin
    policy: Policy
    """In force."""
    source: Source | None
    """What the policy in force was calibrated on; None: on no reported outcome."""
    outcomes: NewOutcomes
    number: int
    """1 is the first round."""

    @property
    def folder(self) -> RunDir:
        """Where the round is written."""
        return RunDir(self.run.uri(f"improved-{self.number}"))


def plan_improvement(run: RunDir, reader: DecisionReader, *, by: tuple[str, ...] | None, least: int) -> ImprovementPlan:
    """Read the run and the outcomes, and change nothing.

    Args:
        run: the one that is served, at an absolute local path.
        reader: its decisions.
        by: whose reports count; None: everybody's.
        least: outcomes to learn from, and to compare on.

    Raises:
        ConfigError: the run is not complete, or not on a local path.
        PoolError: there are too few outcomes, or none since the last round.
    """
    if not run.is_local:
        raise ConfigError(f"improve writes a run directory below the run; {run.root!r} is not a local path")
    recipe = run.recipe().model_copy(update={"run_dir": run.root})
    if not holds_ensemble(run.uri("scorer")) or run.manifest("labels") is None:
        raise ConfigError(f"{run.root} holds no labels and trained ensemble; bring it to its calibration first")
    policy, task = policy_in_force(run), task_of(recipe.task)
    origin = Origin(
        task=task,
        checkpoint=read_ref(run.uri("scorer")).fingerprint,
        where=Filter(task=task.name),
        by=by,
    )
    known = {text_key(row.problem.prompt) for row in run.problems()}
    source = source_in_force(run, policy)
    outcomes = new_outcomes(reader, origin, known=known, source=source)
    outcomes.check(least)
    plan = ImprovementPlan(
        run=run,
        recipe=recipe,
        origin=origin,
        policy=policy,
        source=source,
        outcomes=outcomes,
        number=_last_number(run) + 1,
    )
    _check_news(plan)
    return plan


def _last_number(run: RunDir) -> int:
    names = (path.name for path in Path(run.root).glob("improved-*"))
    return max((int(match[1]) for match in map(_FOLDER.fullmatch, names) if match is not None), default=0)


def _check_news(plan: ImprovementPlan) -> None:
    """Raises PoolError where the last finished round was made of the same outcomes."""
    for number in range(plan.number - 1, 0, -1):
        folder = RunDir(plan.run.uri(f"improved-{number}"))
        if folder.exists(FILE):
            earlier = folder.needed_object(FILE)
            if set(_ids(plan)["learned"]) <= set(earlier["learned"]):
                raise PoolError(
                    f"no outcome about another problem was reported since {folder.root}; report more, or try what "
                    "that round made"
                )
            return


def recalibrated(plan: ImprovementPlan, reader: DecisionReader) -> Policy:
    """The policy in force with thresholds chosen again on the outcomes that are learned from, for the present scorer.

    Its posterior stays, but one that was fitted on reported outcomes, which may be among these, is fitted again.

    Raises:
        ConfigError: the policy decides by thresholds on sigma.
        PoolError: none of these outcomes can be used for it.
    """
    sample = outcome_sample(reader, plan.origin)
    learned = {decision.record.record_id for decision in plan.outcomes.learned}
    held_out = {decision.problem.problem_id for decision in plan.outcomes.held_out}
    decisions = tuple(decision for decision in sample.decisions if decision.record.record_id in learned)
    if not decisions:
        raise PoolError("no answered decision with an outcome is among those that are learned from")
    own = replace(
        sample,
        decisions=decisions,
        abstained=tuple(decision for decision in sample.abstained if decision.problem_id not in held_out),
    )
    refit = plan.policy.posterior is not None and bool(plan.policy.posterior.reported_until)
    policy = recertified(own, plan.policy, plan.recipe.decision, refit=refit).policy
    if policy.guarantee is None or saw_held_out(plan.source):
        return policy
    source = {**policy.guarantee["outcomes"], WITHOUT_HELD_OUT: True}
    return policy.replaced(guarantee={**policy.guarantee, "outcomes": source})


def write_improved_run(plan: ImprovementPlan) -> Recipe:
    """Write problems, candidates and labels of the run and of the new outcomes; returns the recipe to go on with.

    Each old problem stays in its split: what tests there was never trained on. What is held out is in no table.

    Raises:
        PoolError: a table of the run is missing.
    """
    recipe = recipe_of_import(plan.recipe, plan.folder.root, name=f"improved-{plan.number}")
    # Folds would be dealt anew over all problems, and old training problems would test.
    recipe = recipe.model_copy(update={"pairs": recipe.pairs.model_copy(update={"fold": None})})
    tables = ImportedTables.of_run(plan.run)
    for decision in plan.outcomes.learned:
        tables.add(decision)
    test = StageContext(recipe=plan.recipe).splits()[TEST]
    write_tables(tables, plan.folder, recipe, test=frozenset(test))
    return recipe


def finish(plan: ImprovementPlan, *, policy: VersionTrial | None, scorer: VersionTrial | None) -> None:
    """Write what the round was made of, and how its versions did on held-out outcomes.

    Args:
        plan: the round.
        policy: the recalibrated policy with the present scorer; None: there was none to compare.
        scorer: the scorer that was trained again, with its policy; None: none was trained.
    """
    if policy is not None:
        plan.folder.write_json(policy.policy.to_json(), "policy.json")
    value = {**_ids(plan), "policy": _figures(policy), "scorer": _figures(scorer)}
    plan.folder.write_json(value, FILE)


def _ids(plan: ImprovementPlan) -> dict[str, list[str]]:
    outcomes = plan.outcomes
    return {
        "learned": sorted(decision.record.record_id for decision in outcomes.learned),
        "held_out": sorted(decision.record.record_id for decision in outcomes.held_out),
    }


def _figures(trial: VersionTrial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    comparison = trial.comparison
    return {
        "version": comparison.second.version,
        "in_force": comparison.first.version,
        "outcomes": comparison.num_outcomes,
        "right": _difference(comparison.right),
        "wrong": _difference(comparison.wrong),
        "worse": trial.is_worse,
    }


def _difference(test: Comparison) -> dict[str, float | None]:
    value = test.difference
    return {"difference": value.value, "low": value.low, "high": value.high, "p": test.p_value}
