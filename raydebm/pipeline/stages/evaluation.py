"""The evaluation: all selectors on the test split, and the report."""

from dataclasses import replace

from raydebm.evaluation.certainty.confidence import Decided
from raydebm.evaluation.results.evaluation import Evaluation, EvaluationInputs, evaluate
from raydebm.generators.account import paid_usd
from raydebm.pipeline.context import TEST, VALIDATION, Facts, StageContext
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools, fit_in_force, recorded_labels, texts_read_of
from raydebm.pipeline.scores import judge_prices
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.pipeline.stages.posterior import learned_from
from raydebm.pipeline.stages.problems import saved_samples
from raydebm.run.directory import RunDir


def make_evaluation(context: StageContext) -> Facts:
    """Compare all selectors on the test split, and write the report."""
    from raydebm.evaluation.report.evaluation_report import write_report  # loads plotting, which only this stage needs

    recipe = context.recipe
    policy, outcomes = calibrated_policy(context), outcomes_of(context)
    pools, validation = (evaluated_pools(context, split) for split in (TEST, VALIDATION))
    inputs = EvaluationInputs(
        pools=pools,
        validation=validation,
        labelled=learned_from(context),
        decided=Decided.of(pools, policy),
        policy=policy,
        adapters=[adapter.name for adapter in recipe.scorer.adapters],
        outcomes=outcomes,
        labels=recorded_labels(context, TEST),
        fit=fit_in_force(context),
        config=recipe.evaluation,
        judge_usd=judge_prices(recipe, context.run),
        seed=recipe.seed,
        title=recipe.name,
        task=recipe.task.name,
        command=context.command,
    )
    result = replace(
        evaluate(inputs),
        saved=saved_samples(context),
        texts_read=texts_read_of(context),
        paid_usd=paid_usd(context.run),
    )
    write_report(result, context.run)
    return result.facts()


def read_evaluation(run: RunDir) -> Evaluation:
    """The result of a finished evaluation."""
    return Evaluation.from_json(run.needed_object("evaluation", "metrics.json"))
