"""The trained adapters."""

from typing import Any

from raydebm.pairs import training_groups
from raydebm.pipeline.context import TRAIN, VALIDATION, Facts, StageContext
from raydebm.pipeline.stages.pairs import candidates_as_scored


def make_scorer(context: StageContext) -> Facts:
    """Train all adapters on the pairs."""
    from raydebm.distributed.train import train_ensemble

    problems, run = context.problems(), context.run
    groups = {
        split: training_groups(run.stored_pairs(split), candidates_as_scored(context), problems.values())
        for split in (TRAIN, VALIDATION)
    }
    return train_ensemble(
        recipe=context.recipe,
        run=context.run,
        train=groups[TRAIN],
        validation=groups[VALIDATION],
        stage="scorer",
        on_progress=context.progress("scorer"),
    ).facts()


def training_curves(context: StageContext) -> dict[str, Any]:
    """Contents of training.json by adapter."""
    names = [adapter.name for adapter in context.recipe.scorer.adapters]
    return {name: context.run.needed_object("scorer", name, "training.json") for name in names}
