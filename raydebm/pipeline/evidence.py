"""Scores of the baselines that are evidence of the posterior, over every pass of a run."""

from raydebm.pipeline.context import TEST, VALIDATION, StageContext
from raydebm.pipeline.pools import later_passes
from raydebm.pipeline.scores import evidence_names, score_baselines, score_later_pass


def score_evidence(context: StageContext) -> None:
    """Score the candidates of every pass by the baselines that are evidence, where scores are missing."""
    if not context.recipe.evidence:
        return
    score_baselines(context, evidence_names(context.recipe))
    for split in (VALIDATION, TEST):
        for stage in later_passes(context, split):
            score_later_pass(context, stage)
