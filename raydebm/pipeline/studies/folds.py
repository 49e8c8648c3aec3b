"""Folds of one recipe: every problem tested once, by a training that did not see it, and one summary over all.

Problems, candidates and labels are made once, in the run directory itself, over the problems of ``task.train`` and
``task.test`` together. ``<run_dir>/fold-<k>`` is a run directory of its own for each fold, with ``pairs.fold`` in its
recipe, and everything that is fitted or chosen is made there from the other folds; ``<run_dir>/fold-<k>/seed-<n>``
holds seeds other than the recipe's. Answers that cost money (later passes, judges) go through journals of the run
directory, which all folds share.
"""

from collections.abc import Iterable, Mapping, Sequence

from raydebm.config import FoldConfig
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.provenance import command_line
from raydebm.evaluation.trainings.folds import FoldFacts, FoldSummary, FoldTraining, summarise_folds
from raydebm.evaluation.trainings.folds_report import write_folds
from raydebm.pairs import deal_folds
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.scores import check_judges
from raydebm.pipeline.studies.children import child_run, share_stages
from raydebm.pipeline.studies.seeds import training_of
from raydebm.records import Label, Verdict


def train_folds(
    shared: Pipeline, *, count: int, seeds: Sequence[int], retry_failed: bool = False
) -> tuple[FoldSummary, str]:
    """Train and evaluate every fold, and summarise them; finished ones are reused.

    Args:
        shared: the run that folds and summary lie in, with the problems, candidates and labels of all of them.
        count: folds.
        seeds: of the trainings of each fold (``pairs.seed``); the folds themselves follow from the recipe's seed.
        retry_failed: requests that failed in an earlier run are sent again.

    Returns:
        The summary and the address of its report.

    Raises:
        ConfigError: fewer than two folds, more than there are problems, a recipe that is one fold already, no seeds or
            a repeated one.
        PoolError: a fold's test problems have no correct or no incorrect candidate, or a fold has nothing to train on.
        MissingKeyError: the key of an endpoint that is to be asked is not in the environment.
    """
    recipe = shared.recipe
    if recipe.pairs.fold is not None:
        raise ConfigError("the recipe sets pairs.fold, which makes it one fold; remove it to train all folds")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"folds need one or more different seeds, got {list(seeds)}")
    shared.make("problems")
    prompts = {problem_id: problem.prompt for problem_id, problem in shared.problems().items()}
    fold_of = deal_folds(prompts, count=count, seed=recipe.seed)
    folds = [(FoldConfig(count=count, index=index), seed) for index in range(count) for seed in seeds]
    pipelines = [_pipeline(shared, fold, seed) for fold, seed in folds]
    if retry_failed:
        for pipeline in [shared, *pipelines]:
            pipeline.forget_failed()
    shared.check_keys(judges=False)
    for pipeline in pipelines:
        check_judges(pipeline.recipe, pipeline.run, basis=pipeline.basis("pairs"))
    shared.make("labels")
    check_classes(fold_of, shared.run.labels())
    parts = [_tested(shared, pipeline, fold) for pipeline, (fold, _) in zip(pipelines, folds, strict=True)]
    summary = summarise_folds(
        parts,
        title=recipe.name,
        task=recipe.task.name,
        num_bootstrap=recipe.evaluation.num_bootstrap,
        seed=recipe.seed,
    )
    return summary, write_folds(summary, parts, shared.run, command=command_line())


def _pipeline(shared: Pipeline, fold: FoldConfig, seed: int) -> Pipeline:
    """The run of one fold and seed; its own stages are reported, with the fold's name."""
    recipe = shared.recipe
    name = f"fold-{fold.index}" if seed == recipe.training_seed else f"fold-{fold.index}/seed-{seed}"
    pairs = recipe.pairs.model_copy(update={"seed": seed, "fold": fold})
    return child_run(shared, name, recipe.model_copy(update={"pairs": pairs}))


def check_classes(fold_of: Mapping[str, int], labels: Iterable[Label]) -> None:
    """Check that each fold's candidates differ in what they are worth, before anything is trained.

    Args:
        fold_of: fold of each problem id.
        labels: of candidates; those of other problems are passed over.

    Raises:
        PoolError: all labelled candidates of a fold are correct, or all incorrect (all of one violation score where
            the task has one), or none is labelled. The message names the fold.
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


def _tested(shared: Pipeline, pipeline: Pipeline, fold: FoldConfig) -> FoldTraining:
    """Train and evaluate one fold.

    Raises:
        PoolError: as in ``Pipeline.evaluate``, with the fold named.
    """
    share_stages(shared, pipeline)
    try:
        pipeline.evaluate()
    except PoolError as error:
        raise PoolError(f"fold {fold.index} of {fold.count}: {error}") from error
    training = training_of(pipeline, evaluated_pools(pipeline, TEST), evaluated_pools(pipeline, VALIDATION))
    splits = pipeline.splits()
    facts = FoldFacts(
        fold=fold.index,
        seed=training.seed,
        num_test=len(splits[TEST]),
        num_train=len(splits[TRAIN]),
        num_validation=len(splits[VALIDATION]),
        num_pairs=pipeline.run.facts("pairs")["train"]["pairs"],
        lambda_=calibrated_policy(pipeline).lambda_,
    )
    return FoldTraining(facts=facts, training=training)
