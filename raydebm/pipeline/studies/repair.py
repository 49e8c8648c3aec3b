"""The repair of a run's scorer: heads refitted on data that is balanced over generators.

In:   the pipeline of a finished run (missing stages are run first).
Out:  ``<run>/repair``, a run directory, and a report that compares both scorers.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raydebm.config import Recipe
from raydebm.errors import ConfigError
from raydebm.evaluation.confounding.repair_report import RepairReport, repair_texts
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION, StageContext
from raydebm.pipeline.pools import evaluated_pools, later_passes
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.energies import make_energies
from raydebm.pipeline.studies.confounding import settings_of, swap_inputs, write_report
from raydebm.pipeline.writing_lock import write_lock
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import REPAIRED

if TYPE_CHECKING:
    from raydebm.evaluation.confounding.refit import RepairText

_LOG = logging.getLogger(__name__)


def repair_run(
    pipeline: Pipeline, *, on_step: Callable[[str], None] = lambda line: None, **changes: Any
) -> tuple[RepairReport, str]:
    """Refit the heads on group-balanced data (DFR), and write ``<run>/repair/scorer`` and a report on both scorers.

    ``<run>/repair`` becomes a run directory with the energies of the repaired scorer, computed from stored features
    where there are any. Later stages are not run. The posterior of that run learns from validation problems alone,
    because the heads saw all training problems.

    Args:
        on_step: called with a line before each long step.
        changes: changed fields of ``RepairSettings``.

    Raises:
        PoolError: too few generators have answers of both labels.
        ConfigError: the run directory is not a local path.
    """
    if not pipeline.run.is_local:
        raise ConfigError(f"repair writes a checkpoint folder below the run; {pipeline.run.root!r} is not a local path")
    from raydebm.pipeline.ray.confounding import repaired_heads

    pipeline.make("calibration")
    swap = swap_inputs(pipeline, {})
    texts = {split: _texts(pipeline, split) for split in (TRAIN, VALIDATION)}
    folder = RunDir(pipeline.run.uri("repair"))
    with write_lock(folder):
        # First: if the process is killed later, no old scorer can pass for the new one.
        folder.remove("scorer")
        folder.write_json(_repair_marker(pipeline), REPAIRED.marker)
        report, known = repaired_heads(
            pipeline.run, texts, settings_of(pipeline), swap, changes=changes, on_step=on_step
        )
        repaired = complete_scorer_run(pipeline, pipeline.recipe.model_copy(update={"run_dir": folder.root}))
        address = write_report(report, pipeline, "repair")
        facts = make_energies(repaired, known)
        repaired.run.finish("energies", new_manifest("energies", repaired.recipe, repaired.run, facts=facts))
    return report, address


def complete_scorer_run(pipeline: Pipeline, recipe: Recipe) -> Pipeline:
    """Complete a run directory that has only a scorer: copy the stages before it and the baseline scores.

    The result can be scored, calibrated, evaluated and served like any other run.

    Args:
        pipeline: the original run, with a trained scorer.
        recipe: the original's recipe with another ``run_dir`` and any changes of the scorer.
    """
    changed = replace(pipeline, recipe=recipe)
    for stage in ("problems", "candidates", "labels", "pairs"):
        pipeline.run.copy_stage(stage, changed.run)
    with write_lock(changed.run):
        pipeline.run.copy_scores(changed.run)
    for stage in ("energies", "calibration", "passes", "evaluation"):  # of an earlier scorer
        changed.run.remove(stage)
    # The journals stay, because their answers were paid for.
    for stage in (*later_passes(changed, VALIDATION), *later_passes(changed, TEST)):
        changed.run.reopen(stage)
    changed.run.write_recipe(changed.recipe)
    facts = pipeline.run.facts("scorer")
    changed.run.finish("scorer", new_manifest("scorer", changed.recipe, changed.run, facts=facts))
    return changed


def _texts(context: StageContext, split: str) -> list["RepairText"]:
    return repair_texts(evaluated_pools(context, split).as_scored(context.recipe.scorer.reasoning))


def ensure_repaired(pipeline: Pipeline) -> None:
    """Repair a run's scorer, unless this scorer was already repaired."""
    pipeline.make("scorer")
    if _finished_repair(pipeline) != _repair_marker(pipeline):
        repair_run(pipeline)


def repair_of(pipeline: Pipeline) -> Pipeline | None:
    """The repaired run of the current scorer, whatever the settings. None without a repair.

    A repair of an earlier scorer is skipped with a warning.
    """
    marker = _finished_repair(pipeline)
    if marker is None:
        return None
    pipeline.make("scorer")
    folder = pipeline.run.uri("repair")
    if marker.get("scorer") != pipeline.basis("scorer"):
        _LOG.warning("%s is left out: the run's scorer was trained again after the repair; repair it again", folder)
        return None
    return replace(pipeline, recipe=pipeline.recipe.model_copy(update={"run_dir": folder}))


def _finished_repair(pipeline: StageContext) -> dict[str, Any] | None:
    """Marker of a repair with a finished scorer, else None."""
    repaired = RunDir(pipeline.run.uri("repair"))
    if repaired.manifest("scorer") is None:
        return None
    return repaired.read_object(REPAIRED.marker, remedy=REPAIRED.remedy)


def _repair_marker(pipeline: StageContext) -> dict[str, Any]:
    """Contents of the marker: the run and the scorer that are repaired."""
    return {"repair_of": pipeline.run.root, "scorer": pipeline.basis("scorer")}
