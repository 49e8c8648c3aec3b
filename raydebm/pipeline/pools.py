"""The pools of a run's split: candidates of all passes with what is known of them."""

from raydebm.evaluation.pools.pool import EvaluatedPool, RecordedPools, assemble_pools
from raydebm.evaluation.results.texts_read import TextsRead, texts_read
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.scores import evidence_of, scores_of
from raydebm.run.directory import SCORES_FOLDER


def recorded_pools(context: StageContext, split: str) -> RecordedPools:
    """All recorded candidates of a split, of all passes, with labels, checks and energies.

    Raises:
        PoolError: a table is missing or unreadable.
    """
    run, pools, problem_ids = context.run, RecordedPools(), frozenset(context.splits()[split])
    first = ("candidates", "labels", "energies")
    later = later_passes(context, split)
    for source, labelled, scored in (first, *((stage, stage, stage) for stage in later)):
        ids = {row.candidate_id: row for row in run.candidates(source) if row.problem_id in problem_ids}
        pools.candidates |= ids
        pools.reports |= {row.candidate_id: row for row in run.reports(labelled) if row.candidate_id in ids}
        pools.labels |= {row.candidate_id: row for row in run.labels(labelled) if row.candidate_id in ids}
        pools.energies |= {row.candidate_id: row.energies for row in run.energies(scored) if row.candidate_id in ids}
    for folder in (SCORES_FOLDER, *(f"{stage}/{SCORES_FOLDER}" for stage in later)):
        pools.add_scores(evidence_of(context.recipe, run, folder))
    return pools


def texts_read_of(context: StageContext) -> tuple[TextsRead, ...]:
    """What the run's scorer read of the texts of the first pass, by split."""
    return texts_read(
        context.run.energies(),
        problem_of={candidate.candidate_id: candidate.problem_id for candidate in context.run.stored_candidates()},
        splits=context.splits(),
    )


def later_passes(context: StageContext, split: str) -> list[str]:
    """Complete stages of later passes. They answer to one ensemble's picks, so another one's are not counted."""
    basis, stages = context.basis("energies"), list[str]()
    while True:
        stage = later_pass(split, len(stages) + 1)
        manifest = context.run.manifest(stage)
        if manifest is None or manifest.get("fingerprint") != basis:
            return stages
        stages.append(stage)


def later_pass(split: str, number: int) -> str:
    """The folder of what a replay of the split asked for the n-th time."""
    return f"regenerated/{split}-{number}"


def evaluated_pools(context: StageContext, split: str) -> list[EvaluatedPool]:
    """The scored pools of a split, with the scores of the recipe's baselines where they have been made."""
    pools = recorded_pools(context, split)
    return assemble_pools(
        context.problems_of(split),
        pools,
        scores=scores_of(context),
        shuffle_seed=context.recipe.evaluation.shuffle_seed,
    )
