"""Several trainings of one recipe on the same candidates, by seeds and by folds, and their summary.

Problems, candidates and labels are created once, in the run directory itself; with folds, over the problems of
``task.train`` and ``task.test`` together. ``<run_dir>/seed-<n>``, ``<run_dir>/fold-<k>`` and
``<run_dir>/fold-<k>/seed-<n>`` (seeds other than the recipe's) are separate run directories for everything that is
fitted or chosen. Paid answers (later passes, judges) are recorded in journals of the run directory, shared by all
trainings.
"""

from collections.abc import Iterable, Mapping, Sequence

from raydebm.config import Fold
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.results.evaluation import Evaluation, selector_entries
from raydebm.evaluation.stats.json_results import command_line
from raydebm.evaluation.trainings import (
    Training,
    TrainingFacts,
    TrainingSummary,
    summarise,
    write_summary,
)
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.pools import texts_read_of
from raydebm.pipeline.runner import Pipeline, child_run, share_stages
from raydebm.pipeline.stages.evaluation import evaluation_inputs
from raydebm.pipeline.stages.scores import check_judges
from raydebm.pipeline.studies.confounding import screen_of
from raydebm.records import Label, Verdict
from raydebm.scorer.pairs import deal_folds


def train_several(
    shared: Pipeline, *, seeds: Sequence[int], folds: int | None = None, retry_failed: bool = False
) -> tuple[TrainingSummary, str]:
    """Train and evaluate with every seed, or every fold with every seed, and summarise. Finished trainings are reused.

    A seed determines the split into training and validation, the pairs, the bags and the adapters (``pairs.seed``). The
    test problems, the candidates and the folds are those of the recipe's own seed.

    Args:
        shared: run whose problems, candidates and labels all trainings use. The summary is written there.
        seeds: at least two seeds, or with folds at least one.
        folds: number of folds. Default: the recipe's own test problems.
        retry_failed: also repeat requests that failed in an earlier run. Default: keep the failures.

    Returns:
        The summary and the address of its report.

    Raises:
        ConfigError: too few seeds or a repeated one, fewer than two folds, more folds than problems, or a recipe that
            is already one fold.
        PoolError: a fold's test problems have no correct or no incorrect candidate, or a fold has nothing to train on.
        MissingKeyError: the key of a needed endpoint is not in the environment.
    """
    recipe, least = shared.recipe, 2 if folds is None else 1
    if len(seeds) < least or len(set(seeds)) < len(seeds):
        raise ConfigError(f"give {'two' if least == 2 else 'one'} or more different seeds, got {list(seeds)}")
    if folds is not None and recipe.pairs.fold is not None:
        raise ConfigError("the recipe sets pairs.fold, which makes it one fold; remove it to train all folds")
    fold_of: dict[str, int] = {}
    if folds is not None:
        shared.make("problems")
        prompts = {problem_id: problem.prompt for problem_id, problem in shared.problems().items()}
        fold_of = deal_folds(prompts, count=folds, seed=recipe.seed)
    parts = [None] if folds is None else [(number, folds) for number in range(folds)]
    pipelines = [_pipeline(shared, fold, seed) for fold in parts for seed in seeds]
    if retry_failed:
        for pipeline in [shared, *pipelines]:
            pipeline.forget_failed()
    shared.check_keys(judges=False)
    for pipeline in pipelines:
        check_judges(pipeline.recipe, pipeline.run, basis=pipeline.basis("pairs"))
    shared.make("labels")
    if fold_of:
        check_classes(fold_of, shared.run.labels())
    trainings = []
    for pipeline in pipelines:
        share_stages(shared, pipeline)
        trainings.append(_trained(pipeline))
    summary = summarise(trainings, title=recipe.name, task=recipe.task.name, seed=recipe.seed)
    return summary, write_summary(summary, shared.run, command=command_line())


def _pipeline(shared: Pipeline, fold: Fold | None, seed: int) -> Pipeline:
    """Run of one training, with progress reports of its stages under its name."""
    recipe = shared.recipe
    pairs = recipe.pairs.model_copy(update={"seed": seed, "fold": fold or recipe.pairs.fold})
    if fold is None:
        name = f"seed-{seed}"
    else:
        name = f"fold-{fold[0]}" if seed == recipe.training_seed else f"fold-{fold[0]}/seed-{seed}"
    return child_run(shared, name, recipe.model_copy(update={"pairs": pairs}))


def check_classes(fold_of: Mapping[str, int], labels: Iterable[Label]) -> None:
    """Check before training that each fold has better and worse candidates.

    Args:
        fold_of: fold by problem id.
        labels: labels of candidates. Those of other problems are ignored.

    Raises:
        PoolError: all labelled candidates of a fold are correct, or all incorrect (or have the same violation score),
            or none is labelled. The message names the fold.
    """
    worth: dict[int, set[object]] = {fold: set() for fold in fold_of.values()}
    for label in labels:
        if label.verdict is not Verdict.UNLABELED and label.problem_id in fold_of:
            value = str(label.verdict) if label.violation_score is None else label.violation_score
            worth[fold_of[label.problem_id]].add(value)
    for fold, values in sorted(worth.items()):
        if len(values) < 2:
            size = sum(index == fold for index in fold_of.values())
            only = f"all labelled candidates are {values.pop()}" if values else "no candidate has a label"
            raise PoolError(
                f"fold {fold} of {len(worth)} cannot be tested: {only} on its {size} problems; ask for fewer folds, or "
                "use more problems or generators of different strength"
            )


def _trained(pipeline: Pipeline) -> Training:
    """Train and evaluate once.

    Raises:
        PoolError: as in ``Pipeline.evaluate``, with the fold named.
    """
    fold = pipeline.recipe.pairs.fold
    try:
        evaluation = pipeline.evaluate()
    except PoolError as error:
        raise error if fold is None else PoolError(f"fold {fold[0]} of {fold[1]}: {error}") from error
    return training_of(pipeline, evaluation)


def training_of(pipeline: Pipeline, evaluation: Evaluation) -> Training:
    """Results of every selector, the loop and the confidence on each test pool of a finished run."""
    recipe, splits, inputs = pipeline.recipe, pipeline.splits(), evaluation_inputs(pipeline)
    _, entries, _ = selector_entries(inputs)
    screen = screen_of(pipeline, inputs.pools, inputs.validation).screen
    return Training(
        facts=TrainingFacts(
            seed=recipe.training_seed,
            fold=None if recipe.pairs.fold is None else recipe.pairs.fold[0],
            num_test=len(splits[TEST]),
            num_train=len(splits[TRAIN]),
            num_validation=len(splits[VALIDATION]),
            num_pairs=pipeline.run.facts("pairs")[TRAIN]["pairs"],
            lambda_=inputs.policy.lambda_,
            sigma_auroc=evaluation.sigma_auroc.value,
            within_generator=screen.within_auroc.value,
            screen=screen.verdict(),
        ),
        problem_ids=tuple(problem.problem_id for problem in inputs.pools.problems),
        entries=entries,
        decision=None if inputs.decided is None else inputs.decided.stated(inputs.pools),
        texts_read=texts_read_of(pipeline),
    )
