"""The evaluation: all selectors on the test split, and the report."""

from dataclasses import replace

from raydebm.config import Recipe
from raydebm.evaluation.certainty.confidence import Decided
from raydebm.evaluation.results.evaluation import Evaluation, EvaluationInputs, evaluate
from raydebm.generators.account import paid_usd
from raydebm.generators.journal import spent_usd
from raydebm.pipeline.context import TEST, VALIDATION, Facts, StageContext
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools, fit_in_force, recorded_labels, texts_read_of
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.pipeline.stages.posterior import learned_from
from raydebm.pipeline.stages.problems import saved_samples
from raydebm.run.directory import SCORES_FOLDER, RunDir


def make_evaluation(context: StageContext) -> Facts:
    """Compare all selectors on the test split, and write the report."""
    from raydebm.evaluation.report.evaluation_report import write_report  # loads plotting, which only this stage needs

    result = replace(
        evaluate(evaluation_inputs(context)),
        saved=saved_samples(context),
        texts_read=texts_read_of(context),
        paid_usd=paid_usd(context.run),
    )
    write_report(result, context.run)
    return result.facts()


def evaluation_inputs(context: StageContext) -> EvaluationInputs:
    """Inputs from the tables of a calibrated run."""
    recipe, policy = context.recipe, calibrated_policy(context)
    pools, validation = (evaluated_pools(context, split) for split in (TEST, VALIDATION))
    return EvaluationInputs(
        pools=pools,
        validation=validation,
        labelled=learned_from(context),
        decided=Decided.of(pools, policy),
        policy=policy,
        adapters=[adapter.name for adapter in recipe.scorer.adapters],
        outcomes=outcomes_of(context),
        labels=recorded_labels(context, TEST),
        fit=fit_in_force(context),
        judge_usd=_judge_prices(recipe, context.run),
        seed=recipe.seed,
        title=recipe.name,
        task=recipe.task.name,
        command=context.command,
    )


def _judge_prices(recipe: Recipe, run: RunDir) -> dict[str, float]:
    """US dollars per rated candidate by judge, as billed. Judges without a bill are left out, as are all on a file
    system that cannot append."""
    prices = {}
    for config in recipe.baselines:
        if config.kind != "judge" or not run.is_local or not run.has_scores(config.name):
            continue
        billed = spent_usd([run.uri(SCORES_FOLDER, f"{config.name}.journal")])
        rated = sum(row.score is not None for row in run.scores(config.name))
        if billed > 0 and rated:
            prices[config.name] = billed / rated
    return prices


def read_evaluation(run: RunDir) -> Evaluation:
    """The result of a finished evaluation."""
    return Evaluation.from_json(run.needed_object("evaluation", "metrics.json"))
