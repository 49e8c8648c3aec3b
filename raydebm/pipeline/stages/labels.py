"""Labels and gold-free reports of candidates."""

from raydebm.pipeline.context import Facts, StageContext


def make_labels(context: StageContext) -> Facts:
    """Label the candidates of the first pass, and check them."""
    return label_candidates(context, "candidates", "labels")


def label_candidates(context: StageContext, source: str, stage: str) -> Facts:
    """Label the candidates of the stage ``source``; the tables go to ``stage``."""
    from raydebm.distributed.label import label

    return label(
        context.problems(),
        context.golds(),
        context.run.stored_candidates(source),
        recipe=context.recipe,
        run=context.run,
        stage=stage,
        on_progress=context.progress(stage),
    ).facts()
