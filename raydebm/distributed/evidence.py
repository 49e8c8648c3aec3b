"""Baselines' scores of a run's candidates, of all passes: evidence of the posterior, and selectors of reports."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from raydebm.baselines.running import STAGE
from raydebm.config import BaselineConfig
from raydebm.distributed.baselines import evidence_of, score_baselines, score_later_pass
from raydebm.distributed.recorded import RecordedPools

if TYPE_CHECKING:
    from raydebm.distributed.stages import Pipeline


def score_run(pipeline: "Pipeline", baselines: Sequence[BaselineConfig]) -> None:
    """Scores of the first pass by some of the recipe's baselines, where they are missing."""
    score_baselines(
        pipeline.recipe,
        pipeline.run,
        baselines,
        basis=pipeline.basis("pairs"),
        problems=pipeline.problems(),
        splits=pipeline.splits(),
        candidates=pipeline.candidates,
        payer=pipeline.payer,
    )


def score_evidence(pipeline: "Pipeline") -> None:
    """Scores of every pass by the baselines that are evidence, where they are missing."""
    if not pipeline.recipe.evidence:
        return
    score_run(pipeline, pipeline.recipe.evidence)
    for split in ("validation", "test"):
        for stage in pipeline.later_passes(split):
            score_pass(pipeline, stage)


def score_pass(pipeline: "Pipeline", stage: str) -> None:
    """Scores of one later pass by the baselines that are evidence, where they are missing."""
    score_later_pass(
        pipeline.recipe,
        pipeline.run,
        stage,
        basis=pipeline.basis("energies"),
        problems=pipeline.problems(),
        candidates=partial(pipeline.candidates, stage),
    )


def add_evidence(pipeline: "Pipeline", split: str, pools: RecordedPools) -> None:
    """Add the scores of every pass to what is recorded of a split."""
    for stage in (STAGE, *(f"{stage}/{STAGE}" for stage in pipeline.later_passes(split))):
        pools.add_scores(evidence_of(pipeline.recipe, pipeline.run, stage))
