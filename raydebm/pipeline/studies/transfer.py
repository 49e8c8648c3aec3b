"""Every run's adapters on every run's test candidates (paper, cross-domain transfer).

In:   pipelines of finished runs.
Out:  a ``Transfer``, and the tables of what had to be scored for it, below ``<run>/transfer/``.
"""

from collections.abc import Mapping, Sequence

from raydebm.evaluation.paper.paper_cells import REPAIRED_COLUMNS
from raydebm.evaluation.paper.published import paper
from raydebm.evaluation.pools.pool import EvaluatedPool, assemble_pools
from raydebm.evaluation.studies.transfer import ScoredRun, Transfer, transfer
from raydebm.pipeline.context import TEST, StageContext
from raydebm.pipeline.policies import calibrated_policy
from raydebm.pipeline.pools import evaluated_pools, recorded_pools
from raydebm.pipeline.stages.energies import pool_candidates
from raydebm.run.directory import RunDir

_BACKBONES = {"answerdotai/ModernBERT-base": " (MB)", "microsoft/deberta-v3-base": " (DB)"}
"""How the paper's transfer table marks a scorer's backbone."""


def transfer_between(pipelines: Sequence[StageContext], *, run: RunDir) -> Transfer:
    """Every run's adapters on every run's test candidates (paper, cross-domain transfer)."""
    targets = _transfer_labels(pipelines)
    sources = {
        id(pipeline): targets[id(pipeline)] + _BACKBONES.get(pipeline.recipe.scorer.backbone, "")
        for pipeline in pipelines
    }
    return _matrix(pipelines, sources, targets, title="Transfer", run=run)


def cross_pool(pipelines: Sequence[StageContext], *, run: RunDir) -> Transfer:
    """A run and its variants on fewer generators: each one's adapters on each one's test candidates (paper, transfer
    between pools)."""
    names = {id(pipeline): pipeline.name for pipeline in pipelines}
    return _matrix(pipelines, names, names, title=f"Pools of {pipelines[0].name}", run=run)


def _matrix(
    pipelines: Sequence[StageContext],
    sources: Mapping[int, str],
    targets: Mapping[int, str],
    *,
    title: str,
    run: RunDir,
) -> Transfer:
    runs = [
        ScoredRun(
            source=sources[id(source)],
            target=targets[id(target)],
            pools=evaluated_pools(target, TEST) if source is target else _transferred(source, target, run=run),
            lambda_=calibrated_policy(target).lambda_,
            in_domain=source is target,
        )
        for source in pipelines
        for target in pipelines
    ]
    return transfer(runs, title=title, num_bootstrap=pipelines[0].recipe.evaluation.num_bootstrap)


def _transfer_labels(pipelines: Sequence[StageContext]) -> dict[int, str]:
    """By id of the run: the paper's name of its task for the run that stands in the paper's row, else its own name."""
    column = {task: name for name, task in paper().tasks.items()}  # TP, not TravelPlanner, as in that table
    labels = {id(pipeline): pipeline.name for pipeline in pipelines}
    for task, name in column.items():
        same = [pipeline for pipeline in pipelines if pipeline.recipe.task.name == task]
        shown = [pipeline for pipeline in same if pipeline.is_repaired == (name in REPAIRED_COLUMNS)] or same
        if shown:
            labels[id(shown[0])] = name
    return labels


def _stage_part(context: StageContext) -> str:
    return f"{context.recipe.name}-{context.recipe.task.name}{'-repaired' if context.is_repaired else ''}"


def _transferred(source: StageContext, target: StageContext, *, run: RunDir) -> list[EvaluatedPool]:
    """The target's test pools with the source's energies."""
    from raydebm.distributed.score import score

    problems, recorded = target.problems(), recorded_pools(target, TEST)
    tested = set(target.splits()[TEST])
    candidates = [candidate for candidate in pool_candidates(target) if candidate.problem_id in tested]
    stage = f"transfer/{_stage_part(source)}/{_stage_part(target)}"
    basis = {
        "scorer": source.basis("scorer"),
        "candidates": target.basis("candidates"),
    }
    if run.manifest(stage) != basis:
        score(
            problems,
            candidates,
            checkpoint=source.run.uri("scorer"),
            recipe=source.recipe,
            run=run.absolute(),
            stage=stage,
            on_progress=target.progress(f"{source.recipe.task.name} on {target.recipe.task.name}"),
        )
        run.finish(stage, basis)
    energies = {row.candidate_id: row.energies for row in run.energies(stage)}
    return assemble_pools(
        target.problems_of(TEST),
        candidates=candidates,
        reports=recorded.reports,
        energies=energies,
        labels=recorded.labels,
        shuffle_seed=target.recipe.evaluation.shuffle_seed,
    )
