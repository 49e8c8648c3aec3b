"""Labels and gold-free reports of candidates, and the candidates of the first pass."""

import logging

from raydebm.generators.tally import SavedSamples
from raydebm.pipeline.context import Facts, StageContext

_LOG = logging.getLogger(__name__)


def make_labels(context: StageContext) -> Facts:
    """Label and check the candidates of the first pass."""
    return label_candidates(context, "candidates", "labels")


def label_candidates(context: StageContext, source: str, stage: str) -> Facts:
    """Label the candidates of the stage ``source``, and write the tables to ``stage``."""
    from raydebm.pipeline.ray.label import label

    return label(
        context.problems(),
        context.golds(),
        context.run.stored_candidates(source),
        recipe=context.recipe,
        run=context.run,
        stage=stage,
        on_progress=context.progress(stage),
    )


def make_candidates(context: StageContext) -> Facts:
    """Sample the first pass of every split."""
    from raydebm.pipeline.ray.generate import generate, generate_in_waves

    problems, bar = context.problems(), context.progress("candidates")
    requests = context.requests(problems.values())
    for remark in context.passes.remarks_on_waves:
        _LOG.warning("%s", remark)
    recipe, run = context.recipe, context.run
    if context.passes.waves is None:
        return generate(requests, recipe=recipe, run=run, problems=problems.values(), on_progress=bar).facts()
    return generate_in_waves(requests, recipe=recipe, run=run, problems=problems, on_progress=bar).facts()


def saved_samples(context: StageContext) -> SavedSamples | None:
    """Samples saved by early stopping; None if the first pass was not sampled in waves."""
    saved = context.run.facts("candidates").get("saved")
    return None if saved is None else SavedSamples(**saved)
