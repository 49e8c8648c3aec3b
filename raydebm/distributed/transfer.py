"""Every run's adapters on every run's test candidates (paper, cross-domain transfer).

In:   pipelines of finished runs.
Out:  a ``Transfer``, and the tables of what had to be scored for it, below ``<run>/transfer/``.
"""

from collections.abc import Mapping, Sequence

from raydebm.distributed.folders import absolute
from raydebm.distributed.score import score
from raydebm.distributed.stages import TEST, Pipeline
from raydebm.evaluation.paper_cells import REPAIRED_COLUMNS
from raydebm.evaluation.pools import EvaluatedPool, assemble_pools
from raydebm.evaluation.published import paper
from raydebm.evaluation.studies.transfer import ScoredRun, Transfer, transfer
from raydebm.records import Energies
from raydebm.store import ENERGIES, RunDir, energies_of

_BACKBONES = {"answerdotai/ModernBERT-base": " (MB)", "microsoft/deberta-v3-base": " (DB)"}
"""How the paper's transfer table marks a scorer's backbone."""


def name_of(pipeline: Pipeline) -> str:
    repaired = ", repaired" if pipeline.is_repaired else ""
    return f"{pipeline.recipe.name}{repaired} ({pipeline.recipe.task.name})"


def transfer_between(pipelines: Sequence[Pipeline], *, run: RunDir) -> Transfer:
    """Every run's adapters on every run's test candidates (paper, cross-domain transfer)."""
    targets = _transfer_labels(pipelines)
    sources = {
        id(pipeline): targets[id(pipeline)] + _BACKBONES.get(pipeline.recipe.scorer.backbone, "")
        for pipeline in pipelines
    }
    return _matrix(pipelines, sources, targets, title="Transfer", run=run)


def cross_pool(pipelines: Sequence[Pipeline], *, run: RunDir) -> Transfer:
    """A run and its variants on fewer generators: each one's adapters on each one's test candidates (paper, transfer
    between pools)."""
    names = {id(pipeline): name_of(pipeline) for pipeline in pipelines}
    return _matrix(pipelines, names, names, title=f"Pools of {name_of(pipelines[0])}", run=run)


def _matrix(
    pipelines: Sequence[Pipeline], sources: Mapping[int, str], targets: Mapping[int, str], *, title: str, run: RunDir
) -> Transfer:
    runs = [
        ScoredRun(
            source=sources[id(source)],
            target=targets[id(target)],
            pools=target.evaluated_pools(TEST) if source is target else _transferred(source, target, run=run),
            lambda_=target.policy().lambda_,
            in_domain=source is target,
        )
        for source in pipelines
        for target in pipelines
    ]
    return transfer(runs, title=title, num_bootstrap=pipelines[0].recipe.evaluation.num_bootstrap)


def _transfer_labels(pipelines: Sequence[Pipeline]) -> dict[int, str]:
    """By id of the run: the paper's name of its task for the run that stands in the paper's row, else its own name."""
    column = {task: name for name, task in paper().tasks.items()}  # TP, not TravelPlanner, as in that table
    labels = {id(pipeline): name_of(pipeline) for pipeline in pipelines}
    for task, name in column.items():
        same = [pipeline for pipeline in pipelines if pipeline.recipe.task.name == task]
        shown = [pipeline for pipeline in same if pipeline.is_repaired == (name in REPAIRED_COLUMNS)] or same
        if shown:
            labels[id(shown[0])] = name
    return labels


def _stage_part(pipeline: Pipeline) -> str:
    return f"{pipeline.recipe.name}-{pipeline.recipe.task.name}{'-repaired' if pipeline.is_repaired else ''}"


def _transferred(source: Pipeline, target: Pipeline, *, run: RunDir) -> list[EvaluatedPool]:
    """The target's test pools with the source's energies."""
    problems, found = target.problems(), target.recorded(TEST)
    wanted = set(target.splits()[TEST])
    candidates = [item for item in target.pool_candidates() if item.problem_id in wanted]
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
            run=absolute(run),
            stage=stage,
            on_progress=target.progress(f"{source.recipe.task.name} on {target.recipe.task.name}"),
        )
        run.finish(stage, basis)
    energies: dict[str, Energies | None] = {
        row["candidate_id"]: energies_of(row) for row in run.read_table(ENERGIES, stage, "energies.parquet")
    }
    return assemble_pools(
        [problems[problem_id] for problem_id in target.splits()[TEST]],
        candidates=candidates,
        reports=found.reports,
        energies=energies,
        labels=found.labels,
        shuffle_seed=target.recipe.evaluation.shuffle_seed,
    )
