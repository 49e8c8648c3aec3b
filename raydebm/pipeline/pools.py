"""Pools of a run's split: candidates of all passes with their labels, checks, energies and scores."""

import logging
from typing import Any

from raydebm.decision.policy import Policy, policy_id, policy_of
from raydebm.evaluation.pools.pool import EvaluatedPool, RecordedPools, assemble_pools
from raydebm.evaluation.results.texts_read import TextsRead, texts_read
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.scores import evidence_of, scores_of
from raydebm.run.directory import SCORES_FOLDER

log = logging.getLogger(__name__)


def recorded_pools(context: StageContext, split: str) -> RecordedPools:
    """All recorded candidates of a split, from all passes, with labels, checks and energies.

    Raises:
        PoolError: a table is missing or unreadable.
    """
    run, pools, problem_ids = context.run, RecordedPools(), frozenset(context.splits()[split])
    first = ("candidates", "labels", "energies")
    later = later_passes(context, split)
    for source, labelled, scored in (first, *((stage, stage, stage) for stage in later)):
        ids = {row.candidate_id: row for row in run.candidates(source) if row.problem_id in problem_ids}
        pools.candidates |= ids
        pools.reports |= {row.candidate_id: row for row in run.reports(labelled) if row.candidate_id in ids}
        pools.labels |= {row.candidate_id: row for row in run.labels(labelled) if row.candidate_id in ids}
        pools.energies |= {row.candidate_id: row.energies for row in run.energies(scored) if row.candidate_id in ids}
    for folder in (SCORES_FOLDER, *(f"{stage}/{SCORES_FOLDER}" for stage in later)):
        pools.add_scores(evidence_of(context.recipe, run, folder))
    return pools


def texts_read_of(context: StageContext) -> tuple[TextsRead, ...]:
    """Fractions of the first pass's texts that the scorer read, by split."""
    return texts_read(
        context.run.energies(),
        problem_of={candidate.candidate_id: candidate.problem_id for candidate in context.run.stored_candidates()},
        splits=context.splits(),
    )


def later_passes(context: StageContext, split: str) -> list[str]:
    """Complete stages of later passes of the current ensemble. Those of another ensemble's selections do not count."""
    basis, stages = context.basis("energies"), list[str]()
    while True:
        stage = later_pass(split, len(stages) + 1)
        manifest = context.run.manifest(stage)
        if manifest is None or manifest.get("fingerprint") != basis:
            return stages
        stages.append(stage)


def later_pass(split: str, number: int) -> str:
    """The folder of a split's n-th batch of later-pass requests."""
    return f"regenerated/{split}-{number}"


def evaluated_pools(context: StageContext, split: str) -> list[EvaluatedPool]:
    """The scored pools of a split, with the baseline scores so far."""
    pools = recorded_pools(context, split)
    return assemble_pools(
        context.problems_of(split),
        pools,
        scores=scores_of(context),
    )


def default_policy(context: StageContext) -> Policy:
    """The recipe's own policy, before calibration. Has one pass if a recorded pool has no replies to feedback."""
    policy = policy_of(context.recipe.triage, context.task.defaults, context.recipe.generators)
    is_asked = context.passes.regenerator.kind != "recorded"
    return policy if is_asked or context.recorded_replies is not None else policy.replaced(max_passes=1)


def calibrated_policy(context: StageContext) -> Policy:
    """The policy of the calibration stage."""
    return Policy.from_json(context.run.needed_object("calibration", "policy.json"))


def decision_fit(context: StageContext) -> dict[str, Any] | None:
    """The calibration's fit of the posterior; None without one."""
    if not context.run.exists("calibration", "decision.json"):
        return None
    return context.run.needed_object("calibration", "decision.json")


def fit_in_force(context: StageContext) -> dict[str, Any] | None:
    """The calibration's fit if its policy is in force. None, with a warning, if another file replaced that policy: its
    thresholds and guarantee do not follow from the fit."""
    fit, version = decision_fit(context), policy_id(calibrated_policy(context))
    if fit is None or fit["policy"] == version:
        return fit
    log.warning(
        "policy %s is in force, but calibration fitted %s: the report omits confidence and guarantee; remove "
        "calibration/manifest.json to calibrate again",
        version,
        fit["policy"],
    )
    return None
