"""Transfer: every run's adapters on every run's test candidates (paper, cross-domain transfer).

In:   pipelines of finished runs.
Out:  a ``Transfer``, and the scored tables below ``<run>/transfer/``.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

from raydebm.config import Recipe, ScorerConfig
from raydebm.decision.table import PoolTable
from raydebm.evaluation.paper.paper_cells import REPAIRED_COLUMNS, paper
from raydebm.evaluation.studies.scorers import RefusedCell, ScoredRun, Transfer, transfer
from raydebm.identity import content_id, text_key
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION, StageContext
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.stages.energies import pool_candidates
from raydebm.run.directory import RunDir

_BACKBONES = {"answerdotai/ModernBERT-base": " (MB)", "microsoft/deberta-v3-base": " (DB)"}
"""Backbone suffixes of the paper's transfer table."""


def transfer_between(pipelines: Sequence[StageContext], *, run: RunDir, num_problems: int | None = None) -> Transfer:
    """Score every run's test candidates with every run's adapters (paper, cross-domain transfer).

    Of a scorer and its repair only the one in the paper's table takes part. Tests with problems from a scorer's
    training or validation are refused.

    Args:
        run: destination of the energies by foreign adapters, below its ``transfer/``.
        num_problems: test problems per run. Default: all.
    """
    pipelines = _as_published(pipelines)
    targets = _transfer_labels(pipelines)
    sources = _source_labels(pipelines, targets)
    return _matrix(pipelines, sources, targets, title="Transfer", run=run, num_problems=num_problems)


def _marks(scorer: ScorerConfig) -> str:
    return _BACKBONES.get(scorer.backbone, "")


def cross_pool(pipelines: Sequence[StageContext], *, run: RunDir) -> Transfer:
    """Transfer among a run and its variants on fewer generators (paper, transfer between pools)."""
    names = {id(pipeline): pipeline.name for pipeline in pipelines}
    return _matrix(pipelines, names, names, title=f"Pools of {pipelines[0].name}", run=run)


def _matrix(
    pipelines: Sequence[StageContext],
    sources: Mapping[int, str],
    targets: Mapping[int, str],
    *,
    title: str,
    run: RunDir,
    num_problems: int | None = None,
) -> Transfer:
    chosen = {id(target): _first_problems(target, num_problems) for target in pipelines}
    runs, refused = [], []
    for source in pipelines:
        for target in pipelines:
            names = {"source": sources[id(source)], "target": targets[id(target)]}
            is_own = source is target
            if not is_own and (num_seen := num_seen_in_training(source, target, chosen[id(target)])):
                reason = f"{num_seen} of its {len(chosen[id(target)])} test problems are among those of the training"
                refused.append(RefusedCell(**names, reason=reason))
                continue
            pools = (
                evaluated_pools(target, TEST) if is_own else _transferred(source, target, chosen[id(target)], run=run)
            )
            lambda_ = calibrated_policy(target).lambda_
            runs.append(ScoredRun(**names, pools=pools, lambda_=lambda_, in_domain=is_own))
    return transfer(runs, title=title, refused=refused)


def num_seen_in_training(source: StageContext, target: StageContext, chosen: Collection[str]) -> int:
    """Number of the target's chosen test problems in the source's training or validation, by id or text."""
    seen = [problem for split in (TRAIN, VALIDATION) for problem in source.problems_of(split)]
    ids, texts = ({problem.problem_id for problem in seen}, {text_key(problem.prompt) for problem in seen})
    return sum(
        problem.problem_id in ids or text_key(problem.prompt) in texts
        for problem in target.problems_of(TEST)
        if problem.problem_id in chosen
    )


def _as_published(pipelines: Sequence[StageContext]) -> list[StageContext]:
    """Runs with the scorers in the state that the paper shows: repaired or original."""
    column = {task: name for name, task in paper().tasks.items()}
    known = {pipeline.run.root: pipeline for pipeline in pipelines}
    left_out = set()
    for root, pipeline in known.items():
        repaired = pipeline.run.uri("repair")
        if repaired in known:
            left_out.add(root if column.get(pipeline.recipe.task.name) in REPAIRED_COLUMNS else repaired)
    return [pipeline for pipeline in pipelines if pipeline.run.root not in left_out]


def _first_problems(target: StageContext, num_problems: int | None) -> frozenset[str]:
    """The first test problems by id. Ids are content ids, so this is an arbitrary but fixed choice."""
    return frozenset(sorted(target.splits()[TEST])[:num_problems])


def _transfer_labels(pipelines: Sequence[StageContext]) -> dict[int, str]:
    """Name of each run as a target, by ``id`` of its pipeline: the paper's name of the task for the run nearest to the
    paper's data and state of repair, else the run's own."""
    column = {task: name for name, task in paper().tasks.items()}
    labels = {id(pipeline): pipeline.name for pipeline in pipelines}
    for task, name in column.items():
        of_task = [pipeline for pipeline in pipelines if pipeline.recipe.task.name == task]
        fits = [paper().fits(name, data_of(pipeline.recipe)) for pipeline in of_task]
        best = min((fit for fit in fits if fit is not None), default=None)
        same = [each for each, fit in zip(of_task, fits, strict=True) if fit is not None and fit == best]
        shown = [pipeline for pipeline in same if pipeline.is_repaired == (name in REPAIRED_COLUMNS)] or same
        if shown:
            labels[id(shown[0])] = name
    return labels


def data_of(recipe: Recipe) -> str:
    """File or folder of a run's test problems; empty for the task's own data set."""
    source = recipe.task.test.source
    return "" if source is None or source.startswith("hub:") else PurePath(source).name.partition(".")[0]


def _source_labels(pipelines: Sequence[StageContext], targets: Mapping[int, str]) -> dict[int, str]:
    """Name of each run as a source, by ``id`` of its pipeline: its name as a target, and its backbone. The paper's
    name, such as ``MuSR (DB)``, is given once: to the run that has it as a target, else to the first run."""
    column = {task: name for name, task in paper().tasks.items()}
    labels = {id(pipeline): targets[id(pipeline)] + _marks(pipeline.recipe.scorer) for pipeline in pipelines}
    taken = set(labels.values())
    for pipeline in pipelines:
        name, marks = column.get(pipeline.recipe.task.name), _marks(pipeline.recipe.scorer)
        if name is not None and marks and f"{name}{marks}" not in taken:
            labels[id(pipeline)] = f"{name}{marks}"
            taken.add(f"{name}{marks}")
    return labels


def _stage_part(context: StageContext) -> str:
    return f"{context.recipe.name}-{context.recipe.task.name}{'-repaired' if context.is_repaired else ''}"


def _transferred(source: StageContext, target: StageContext, chosen: frozenset[str], *, run: RunDir) -> PoolTable:
    """The target's pools of the chosen test problems, with the source's energies."""
    from raydebm.pipeline.ray.score import ScoringInput, score

    candidates = [candidate for candidate in pool_candidates(target) if candidate.problem_id in chosen]
    stage = f"transfer/{_stage_part(source)}/{_stage_part(target)}"
    basis = {
        "scorer": source.basis("scorer"),
        "candidates": target.basis("candidates"),
        "problems": content_id(*sorted(chosen)),
    }
    if run.manifest(stage) != basis:
        score(
            ScoringInput(problems=target.problems(), candidates=candidates),
            checkpoint=source.run.uri("scorer"),
            recipe=source.recipe,
            run=run.absolute(),
            stage=stage,
            on_progress=target.progress(f"{source.recipe.task.name} on {target.recipe.task.name}"),
        )
        run.finish(stage, basis)
    pools = evaluated_pools(target, TEST)
    pools = pools.of_pools([place for place, problem in enumerate(pools.problems) if problem.problem_id in chosen])
    energies = {row.candidate_id: row.energies for row in run.energies(stage)}
    return pools.with_members({name: own.members for name, own in energies.items() if own is not None})
