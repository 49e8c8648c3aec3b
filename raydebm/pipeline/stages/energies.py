"""Train the ensemble, and score candidates with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from raydebm.config.scorer import BAG_FRAC
from raydebm.errors import CheckpointError
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION, Facts, StageContext
from raydebm.pipeline.stages.pairs import candidates_as_scored
from raydebm.records import Candidate
from raydebm.run.ensemble_file import holds_ensemble
from raydebm.run.folder import Many, StoredTable
from raydebm.run.tables import KnownEnergies
from raydebm.scorer.pairs import out_of_bag, training_groups


def make_energies(context: StageContext, known: KnownEnergies | None = None) -> Facts:
    """Score all validation and test candidates, and the out-of-bag training candidates for the posterior.

    Args:
        known: energies that need no scoring.
    """
    members = adapters_out_of_bag(context)
    return score_candidates(context, pool_candidates(context), "energies", members=members, known=known)


def adapters_out_of_bag(context: StageContext) -> dict[str, tuple[bool, ...]]:
    """By id of a training problem, True for each adapter not trained on it. Empty if the posterior uses none."""
    recipe = context.recipe
    if not context.run.learns_out_of_bag(recipe):
        return {}
    return out_of_bag(
        {problem.problem_id: problem.prompt for problem in context.problems_of(TRAIN)},
        (pair.problem_id for pair in context.run.stored_pairs(TRAIN)),
        bag_frac=BAG_FRAC,
        seed=recipe.training_seed,
        adapters=[adapter.name for adapter in recipe.scorer.adapters],
    )


def pool_candidates(context: StageContext) -> StoredTable[Candidate]:
    """The candidates of the first pass that are to be scored."""
    splits = context.splits()
    scored = {*splits[VALIDATION], *splits[TEST], *adapters_out_of_bag(context)}
    return context.run.stored_candidates().where(
        lambda candidate: candidate.problem_id in scored and not candidate.is_greedy
    )


def score_candidates(
    context: StageContext,
    candidates: Many[Candidate],
    stage: str,
    *,
    members: Mapping[str, Sequence[bool]] | None = None,
    known: KnownEnergies | None = None,
) -> Facts:
    """Score candidates with the run's ensemble, and write the table to ``stage``.

    Args:
        members: by problem id, True for each adapter that scores its candidates. Default: all adapters.
        known: energies that need no scoring.
    """
    from raydebm.pipeline.ray.score import ScoringInput, score

    checkpoint = context.run.uri("scorer")
    if not holds_ensemble(checkpoint):
        raise CheckpointError(f"{checkpoint} does not contain an ensemble; run `raydebm run` first")
    return score(
        ScoringInput(problems=context.problems(), candidates=candidates, members=members or {}, known=known),
        checkpoint=checkpoint,
        recipe=context.recipe,
        run=context.run,
        stage=stage,
        on_progress=context.progress(stage),
    )


def make_scorer(context: StageContext) -> Facts:
    """Train all adapters on the pairs."""
    from raydebm.pipeline.ray.train import train_ensemble

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
    )


def training_curves(context: StageContext) -> dict[str, Any]:
    """Contents of training.json by adapter."""
    names = [adapter.name for adapter in context.recipe.scorer.adapters]
    return {name: context.run.needed_object("scorer", name, "training.json") for name in names}
