"""A run directory around a scorer that was made from another run's: repaired, or distilled."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raydebm.config import Recipe
from raydebm.pipeline.context import TEST, VALIDATION
from raydebm.pipeline.pools import later_passes
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.studies.children import share_scores
from raydebm.pipeline.writing_lock import write_lock
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import Given


@contextmanager
def new_scorer(run: RunDir, given: Given, made_from: Mapping[str, Any]) -> Iterator[None]:
    """A block in which a run directory gets its scorer. It says what it is before, and an earlier scorer goes first.

    A process that is killed then leaves no folder that looks like a run with a scorer still to be trained, and no
    earlier scorer that passes for the one that was to be made.
    """
    with write_lock(run):
        run.remove("scorer")
        run.write_json(dict(made_from), given.marker)
        yield


def run_of_scorer(pipeline: Pipeline, recipe: Recipe) -> Pipeline:
    """Make the recipe's run directory, whose scorer is there already, one that can be scored, calibrated, evaluated and
    served like any other. What comes before the scorer is copied from the original run, and so are the scores of its
    baselines.

    Args:
        pipeline: the original run, with a trained scorer.
        recipe: the original's, with a ``run_dir`` of its own and whatever else is different of the scorer.
    """
    changed = replace(pipeline, recipe=recipe)
    for stage in ("problems", "candidates", "labels", "pairs"):
        pipeline.run.copy_stage(stage, changed.run)
    share_scores(pipeline, changed)
    for stage in ("energies", "calibration", "evaluation"):  # of an earlier scorer
        changed.run.remove(stage)
    for stage in (*later_passes(changed, VALIDATION), *later_passes(changed, TEST)):  # its journals stay: they are paid
        changed.run.reopen(stage)
    changed.run.write_recipe(changed.recipe)
    facts = pipeline.run.facts("scorer")
    changed.run.finish("scorer", new_manifest("scorer", changed.recipe, changed.run, facts=facts))
    return changed
