"""Several trainings of one recipe on the same candidates, and one summary over them.

``<run_dir>/seed-<n>`` is a run directory of its own for each; problems, candidates and labels are made once, in the
first, and copied. So nothing is generated, paid or labelled twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from raydebm.config import Recipe
from raydebm.errors import ConfigError
from raydebm.evaluation.certainty.confidence import Decided
from raydebm.evaluation.certainty.trust import certainty
from raydebm.evaluation.pools.pool import EvaluatedPool
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.provenance import command_line
from raydebm.evaluation.results.entries import entry_of, loop_entries
from raydebm.evaluation.results.evaluating import selectors_of
from raydebm.evaluation.results.outcomes import outcome_values
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.trainings.seeds import SeedSummary, summarise_seeds
from raydebm.evaluation.trainings.seeds_report import write_seeds
from raydebm.evaluation.trainings.training_values import Training, TrainingFacts
from raydebm.pipeline.context import TEST, VALIDATION, Progress, silent
from raydebm.pipeline.pools import evaluated_policy, evaluated_pools, recorded_pools, texts_read_of
from raydebm.pipeline.runner import Pipeline, StageReport
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.pipeline.stages.posterior import labelled_stack
from raydebm.pipeline.studies.children import share_scores, share_stages
from raydebm.pipeline.studies.confounding import screen_of
from raydebm.run.directory import RunDir


def train_seeds(
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    run: RunDir,
    retry_failed: bool = False,
    progress: Progress = silent,
    on_stage: Callable[[StageReport], None] = lambda report: None,
) -> tuple[SeedSummary, str]:
    """Train, evaluate and summarise; finished trainings are reused. Returns the summary and the report's address.

    Each seed decides the split into training and validation, the pairs, the bags and the adapters (``pairs.seed``).
    The test problems and all candidates stay those of the recipe's own seed.

    Args:
        retry_failed: requests that failed in an earlier run are sent again.

    Raises:
        ConfigError: fewer than two different seeds.
        MissingKeyError: the key of an endpoint that is to be asked is not in the environment.
    """
    if len(set(seeds)) < 2 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"a summary over seeds needs two or more different seeds, got {list(seeds)}")
    pipelines = [Pipeline(recipe=_with_seed(recipe, seed, run), progress=progress, on_stage=on_stage) for seed in seeds]
    if retry_failed:
        for pipeline in pipelines:
            pipeline.forget_failed()
    pipelines[0].check_keys()
    pipelines[0].make("labels")
    trainings = []
    for pipeline in pipelines:
        _share(pipelines[0], pipeline)
        result = pipeline.evaluate()
        pools = {split: evaluated_pools(pipeline, split) for split in (VALIDATION, TEST)}
        screen = screen_of(pipeline, pools).screen
        facts = TrainingFacts(
            sigma_auroc=result.sigma_auroc.value,
            within_generator=screen.within_auroc.value,
            screen=screen.verdict(),
        )
        trainings.append(replace(training_of(pipeline, pools[TEST], pools[VALIDATION]), facts=facts))
    summary = summarise_seeds(
        trainings,
        title=recipe.name,
        task=recipe.task.name,
        num_bootstrap=recipe.evaluation.num_bootstrap,
        seed=recipe.seed,
    )
    return summary, write_seeds(summary, run, command=command_line())


def _with_seed(recipe: Recipe, seed: int, run: RunDir) -> Recipe:
    pairs = recipe.pairs.model_copy(update={"seed": seed})
    return recipe.model_copy(update={"run_dir": run.uri(f"seed-{seed}"), "pairs": pairs})


def _share(first: Pipeline, other: Pipeline) -> None:
    """Give a run the finished stages that its seed does not touch."""
    share_stages(first, other)
    share_scores(first, other)


def training_of(pipeline: Pipeline, pools: Sequence[EvaluatedPool], validation: Sequence[EvaluatedPool]) -> Training:
    """What every selector, the loop and every signal of certainty say about each of a finished run's test pools.

    Args:
        pools: of the test split; ``validation`` likewise.
    """
    recipe, policy = pipeline.recipe, evaluated_policy(pipeline)
    adapters = [adapter.name for adapter in recipe.scorer.adapters]
    decided, stack, others = Decided.of(pools, policy), Stack.of(pools), Stack.of(validation)
    selectors = selectors_of(
        stack,
        lambda_=policy.lambda_,
        adapters=adapters,
        validation=others,
        labelled=labelled_stack(pipeline, validation),
        decided=decided,
    )
    entries = [entry_of(selector, stack) for selector in selectors]
    outcomes = outcome_values(stack, outcomes_of(pipeline), labels=recorded_pools(pipeline, TEST).labels)
    entries[-1:-1] = loop_entries(outcomes, policy)  # before the oracle
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=recipe.evaluation.num_bootstrap, seed=recipe.seed)
    return Training(
        seed=recipe.training_seed,
        problem_ids=tuple(pool.problem.problem_id for pool in pools),
        entries=entries,
        certainty=certainty(
            stack,
            others,
            lambda_=policy.lambda_,
            bootstrap=bootstrap,
            seed=recipe.seed,
            constant=True,
        ),
        decision=None if decided is None else decided.certainty(stack),
        texts_read=texts_read_of(pipeline),
    )
