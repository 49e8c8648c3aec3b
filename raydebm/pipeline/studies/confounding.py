"""Confounding of a run's scorer: does it recognise the author of an answer?

In:   the pipeline of a finished run (missing stages are run first).
Out:  a report, as JSON, Markdown and HTML.
"""

from collections.abc import Callable, Mapping

from raydebm.decision.table import PoolTable
from raydebm.evaluation.confounding.repair_report import RepairReport
from raydebm.evaluation.confounding.report import ConfoundingReport, ConfoundingSettings, confounding_steps
from raydebm.evaluation.confounding.swap import SwapInputs, swap_keys
from raydebm.evaluation.stats.json_results import command_line, versions
from raydebm.generators import Secret
from raydebm.pipeline.context import TEST, VALIDATION, StageContext
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.runner import Pipeline


def screen_of(context: StageContext, pools: PoolTable, validation: PoolTable) -> ConfoundingReport:
    """Signs of a shortcut in the energies alone; needs no encoder."""
    *_, report = confounding_steps(
        pools.with_trained_labels(),
        settings=settings_of(context),
        validation=validation.with_trained_labels(),
        name=context.name,
    )
    assert isinstance(report, ConfoundingReport)
    return report


def settings_of(context: StageContext) -> ConfoundingSettings:
    """Settings of the confounding report from the recipe and the calibrated policy."""
    recipe = context.recipe
    return ConfoundingSettings(
        lambda_=calibrated_policy(context).lambda_,
        task=recipe.task.name,
        seed=recipe.seed,
        max_texts=recipe.confounding.max_texts,
    )


def confounding(
    pipeline: Pipeline, *, on_step: Callable[[str], None] = lambda line: None
) -> tuple[ConfoundingReport, str]:
    """Run screen, style ablation and style swap on a run's scorer; returns the report and its address.

    Args:
        on_step: called with a line before each long step.

    Raises:
        MissingKeyError: the key of the rewriting endpoint is not in the environment.
        PoolError: a generator of ``confounding.swap`` has no correct answer.
    """
    from raydebm.pipeline.ray.confounding import confounding_of

    keys = swap_keys(pipeline.recipe)
    pipeline.make("calibration")
    swap = swap_inputs(pipeline, keys)
    report = confounding_of(pipeline.run, settings_of(pipeline), swap, name=pipeline.name, on_step=on_step)
    return report, write_report(report, pipeline, "confounding")


def swap_inputs(context: StageContext, keys: Mapping[str, Secret]) -> SwapInputs:
    """The run's data for a style swap."""
    return SwapInputs(
        recipe=context.recipe,
        run=context.run.absolute(),
        keys=keys,
        test=evaluated_pools(context, TEST),
        validation=evaluated_pools(context, VALIDATION),
        golds=context.golds(),
    )


def write_report(report: ConfoundingReport | RepairReport, context: StageContext, stage: str) -> str:
    """Write metrics.json, report.md and report.html below the run; returns the page's address."""
    provenance = {
        "command": command_line(),
        "seed": str(context.recipe.seed),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    context.run.write_json(report.to_json() | {"provenance": provenance}, stage, "metrics.json")
    return report.document(provenance).write(context.run, stage)
