"""Runs below a run directory that share its problems, candidates and labels: seeds, folds, variants.

Nothing is generated, paid or labelled twice: finished stages are copied, and paid answers (later passes, judges) are in
journals of the parent run.
"""

from dataclasses import replace

from raydebm.config import Recipe
from raydebm.pipeline.runner import Pipeline, StageReport
from raydebm.pipeline.writing_lock import write_lock
from raydebm.run.directory import SCORES_FOLDER

SHARED = ("problems", "candidates", "labels")


def child_run(shared: Pipeline, name: str, recipe: Recipe) -> Pipeline:
    """The run ``<run_dir>/<name>``, whose own stages are reported under its name.

    Args:
        recipe: the child's recipe; its run directory is set here.
    """

    def on_stage(report: StageReport) -> None:
        if report.stage not in SHARED:
            shared.on_stage(replace(report, stage=f"{name} {report.stage}"))

    return Pipeline(
        recipe=recipe.model_copy(update={"run_dir": shared.run.uri(name)}),
        progress=lambda stage: shared.progress(f"{name} {stage}"),
        on_stage=on_stage,
        payer=shared.payer or shared.run,
    )


def share_stages(first: Pipeline, other: Pipeline) -> None:
    """Copy problems, candidates and labels that differ from one run to another."""
    for stage in SHARED:
        share_stage(first, other, stage)


def share_stage(first: Pipeline, other: Pipeline, stage: str) -> None:
    """Copy one stage from one run to another if it differs."""
    theirs, own = (pipeline.run.manifest(stage) for pipeline in (first, other))
    if theirs != own:
        with write_lock(other.run):
            first.run.copy_stage(stage, other.run)


def share_scores(first: Pipeline, other: Pipeline) -> None:
    """Copy baseline scores, with the judges' journals, to a run without any: answers about the same candidates are
    paid."""
    if first.run.manifest(SCORES_FOLDER) is not None and other.run.manifest(SCORES_FOLDER) is None:
        with write_lock(other.run):
            first.run.copy_stage(SCORES_FOLDER, other.run)
