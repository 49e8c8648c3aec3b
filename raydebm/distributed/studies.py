"""Reports beyond a single evaluation: the paper's tables over several runs, transfer between them, confounding, repair.

In:   pipelines of finished runs (what is missing is made first).
Out:  a report each, as JSON, Markdown and HTML, and the tables of what had to be scored for it.
Mathematics lives in ``evaluation`` and ``confounding``; this module moves rows, and sends what needs torch to the
cluster.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from raydebm.baselines import build_scorer, read_scores, score_candidates, write_scores
from raydebm.baselines.running import STAGE as SCORES
from raydebm.config import Recipe
from raydebm.confounding.pages import write_report
from raydebm.confounding.repairing import RepairReport, repair, repair_texts
from raydebm.confounding.report import ConfoundingReport, ConfoundingSettings, Sources, confounding_report
from raydebm.distributed.folders import absolute, local_copy
from raydebm.distributed.placement import share_of
from raydebm.distributed.score import score
from raydebm.distributed.session import cluster_nodes, get_or_raise
from raydebm.distributed.stages import TEST, VALIDATION, Pipeline
from raydebm.errors import ConfigError
from raydebm.evaluation.pools import EvaluatedPool, assemble_pools
from raydebm.evaluation.provenance import command_line, versions
from raydebm.evaluation.published import paper
from raydebm.evaluation.reproduction import Reproduction, Section, reproduction
from raydebm.evaluation.reproduction_report import write_reproduction
from raydebm.evaluation.studies.transfer import ScoredRun, Transfer, transfer
from raydebm.evaluation.study import StudyResults, study
from raydebm.generators.journal import Journal
from raydebm.generators.limits import Budget
from raydebm.pairs import TrainingGroup, build_pairs, training_groups, with_defaults
from raydebm.records import Candidate, Energies, Problem
from raydebm.store import ENERGIES, LABELS, RunDir, energies_of, label_of
from raydebm.tasks import task_of
from raydebm.triage.calibration import GridRow

_BACKBONES = {"answerdotai/ModernBERT-base": " (MB)", "microsoft/deberta-v3-base": " (DB)"}
"""How the paper's transfer table marks a scorer's backbone."""


def reproduce(pipelines: Sequence[Pipeline], *, run: RunDir, with_transfer: bool = False) -> tuple[Reproduction, str]:
    """Bring every run to its evaluation, study its pools, and write one report; returns it and its address.

    Args:
        run: where the report goes.
        with_transfer: score every run's test candidates with every other run's adapters too.
    """
    studies, sections = [], []
    for pipeline in pipelines:
        pipeline.evaluate()
        score_baselines(pipeline)
        pools = {split: pools_of(pipeline, split) for split in (TEST, VALIDATION)}
        studies.append(study_of(pipeline, pools))
        sections.append(_section(screen_of(pipeline, pools)))
    transfers = [transfer_between(pipelines, run=run)] if with_transfer and len(pipelines) > 1 else []
    found = reproduction(studies, transfers=transfers, sections=sections, command=command_line())
    training = {name_of(pipeline): pipeline.training_curves() for pipeline in pipelines}
    addresses = write_reproduction(found, run, training=training)
    return found, next(address for address in addresses if address.endswith("report.html"))


def name_of(pipeline: Pipeline) -> str:
    return f"{pipeline.recipe.name} ({pipeline.recipe.task.name})"


def study_of(pipeline: Pipeline, pools: Mapping[str, list[EvaluatedPool]]) -> StudyResults:
    """All studies of one run's scored pools, given by split."""
    recipe = pipeline.recipe
    return study(
        pools[TEST],
        pools[VALIDATION],
        policy=pipeline.policy(),
        config=recipe.evaluation,
        task=recipe.task.name,
        name=name_of(pipeline),
        seed=recipe.seed,
        adapters=[adapter.name for adapter in recipe.scorer.adapters],
        outcomes=pipeline.outcomes(),
        labels=pipeline.recorded(TEST).labels,
        grid=_grid(pipeline),
        num_train=len(pipeline.splits()["train"]),
        backbone=recipe.scorer.backbone,
    )


def pools_of(pipeline: Pipeline, split: str) -> list[EvaluatedPool]:
    """The scored pools of a split, with the scores of the recipe's baselines."""
    names = [baseline.name for baseline in pipeline.recipe.baselines]
    return pipeline.evaluated_pools(split, scores=read_scores(pipeline.run, names) if names else None)


def _grid(pipeline: Pipeline) -> list[GridRow]:
    if not pipeline.run.exists("calibration", "grid.json"):
        return []
    return [GridRow(**row) for row in pipeline.run.read_json("calibration", "grid.json")["rows"]]


# ---- baselines -----------------------------------------------------------------------------------------------------


def score_baselines(pipeline: Pipeline) -> None:
    """Scores of the recipe's baselines for the validation and test candidates of a labelled run; kept when finished."""
    done = pipeline.run.manifest(SCORES) or {}
    basis = (pipeline.run.manifest("candidates") or {}).get("fingerprint")
    for baseline in pipeline.recipe.baselines:
        state = {"config": baseline.model_dump(mode="json"), "candidates": basis}
        if done.get(baseline.name) == state:
            continue
        share = share_of(pipeline.recipe.ray, cluster_nodes())
        work = _score_baseline.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
        get_or_raise(
            work.remote(
                pipeline.recipe,
                absolute(pipeline.run),
                baseline.name,
                pipeline.problems(),
                pipeline.pool_candidates(),
                _groups(pipeline) if baseline.kind == "eorm" else {},
            )
        )
        done = done | {baseline.name: state}
        pipeline.run.finish(SCORES, done)


def _groups(pipeline: Pipeline) -> dict[str, list[TrainingGroup]]:
    """All pairs of every problem, as EORM takes them."""
    config = with_defaults(pipeline.recipe.pairs, task_of(pipeline.recipe.task).defaults)
    config = config.model_copy(update={"max_pairs": None})
    labels = [label_of(row) for row in pipeline.run.read_table(LABELS, "labels", "labels.parquet")]
    candidates, problems, found = pipeline.candidates(), pipeline.problems(), {}
    for split in ("train", VALIDATION):
        ids = set(pipeline.splits()[split])
        of_split = [candidate for candidate in candidates if candidate.problem_id in ids]
        of_labels = [label for label in labels if label.problem_id in ids]
        pairs = build_pairs(of_split, of_labels, config=config, seed=pipeline.recipe.training_seed)
        found[split] = training_groups(pairs, of_split, problems.values())
    return found


@ray.remote
def _score_baseline(
    recipe: Recipe,
    run: RunDir,
    name: str,
    problems: Mapping[str, Problem],
    candidates: Sequence[Candidate],
    groups: Mapping[str, Sequence[TrainingGroup]],
) -> None:
    config = next(baseline for baseline in recipe.baselines if baseline.name == name)
    local = "://" not in run.root
    journal = Journal(Path(run.root) / SCORES / f"{name}.journal") if config.kind == "judge" and local else None
    scorer = build_scorer(
        config,
        journal=journal,
        budget=Budget(recipe.generation.max_usd, journal),
        train=groups.get("train", ()),
        validation=groups.get(VALIDATION, ()),
        folder=Path(run.root) / SCORES / f"{name}.model" if local else None,
    )
    write_scores(run, score_candidates(scorer, problems, candidates), name=name)


# ---- transfer ------------------------------------------------------------------------------------------------------


def transfer_between(pipelines: Sequence[Pipeline], *, run: RunDir) -> Transfer:
    """Every run's adapters on every run's test candidates (paper, cross-domain transfer)."""
    column = {task: name for name, task in paper().tasks.items()}  # TP, not TravelPlanner, as in that table
    labels = {id(pipeline): column.get(pipeline.recipe.task.name, name_of(pipeline)) for pipeline in pipelines}
    if len(set(labels.values())) < len(pipelines):
        labels = {id(pipeline): name_of(pipeline) for pipeline in pipelines}
    runs = [
        ScoredRun(
            source=labels[id(source)] + _BACKBONES.get(source.recipe.scorer.backbone, ""),
            target=labels[id(target)],
            pools=pools_of(target, TEST) if source is target else _transferred(source, target, run=run),
            lambda_=target.policy().lambda_,
            in_domain=source is target,
        )
        for source in pipelines
        for target in pipelines
    ]
    return transfer(runs, title="Transfer", num_bootstrap=pipelines[0].recipe.evaluation.num_bootstrap)


def _transferred(source: Pipeline, target: Pipeline, *, run: RunDir) -> list[EvaluatedPool]:
    """The target's test pools with the source's energies."""
    problems, found = target.problems(), target.recorded(TEST)
    wanted = set(target.splits()[TEST])
    candidates = [item for item in target.pool_candidates() if item.problem_id in wanted]
    stage = f"transfer/{source.recipe.name}-{source.recipe.task.name}/{target.recipe.name}-{target.recipe.task.name}"
    basis = {
        "scorer": (source.run.manifest("scorer") or {}).get("fingerprint"),
        "candidates": (target.run.manifest("candidates") or {}).get("fingerprint"),
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


# ---- confounding ---------------------------------------------------------------------------------------------------


def screen_of(pipeline: Pipeline, pools: Mapping[str, list[EvaluatedPool]]) -> ConfoundingReport:
    """What the energies alone tell about a shortcut; needs no encoder."""
    return confounding_report(
        pools[TEST],
        lambda_=pipeline.policy().lambda_,
        sources=Sources(),
        validation=pools[VALIDATION],
        settings=_settings(pipeline),
        task=pipeline.recipe.task.name,
        scorer=name_of(pipeline),
    )


def _section(found: ConfoundingReport) -> Section:
    return Section(title=found.title, text=found.summary(), tables=tuple(found.tables()))


def _settings(pipeline: Pipeline) -> ConfoundingSettings:
    return ConfoundingSettings(num_bootstrap=pipeline.recipe.evaluation.num_bootstrap, seed=pipeline.recipe.seed)


def confounding(pipeline: Pipeline) -> tuple[ConfoundingReport, str]:
    """Screen, linear probes and style ablation of a run's scorer; writes the report and returns it and its address."""
    pipeline.make_policy()
    arguments = {
        "test": pools_of(pipeline, TEST),
        "validation": pools_of(pipeline, VALIDATION),
        "lambda_": pipeline.policy().lambda_,
        "settings": _settings(pipeline),
        "task": pipeline.recipe.task.name,
        "scorer": name_of(pipeline),
    }
    found: ConfoundingReport = get_or_raise(
        _on_the_scorers_node(pipeline, _confounding).remote(pipeline.recipe, absolute(pipeline.run), arguments)
    )
    return found, _written(found, pipeline, "confounding")


@ray.remote
def _confounding(recipe: Recipe, run: RunDir, arguments: Mapping[str, Any]) -> ConfoundingReport:
    from raydebm.scorer.features import FeatureExtractor

    options = dict(arguments)
    with local_copy(run.uri("scorer")) as folder:
        features = FeatureExtractor.load(folder, device=recipe.scorer.device, dtype=recipe.scorer.dtype)
        sources = Sources(scorer=features.scorer(), features=features.joined)
        return confounding_report(options.pop("test"), sources=sources, **options)


def repair_run(pipeline: Pipeline, *, equalise: float = 0.0) -> tuple[RepairReport, str]:
    """Refit the heads on group-balanced data (DFR); writes ``<run>/repair/scorer`` and a before/after report.

    Args:
        equalise: see ``scorer.repair.RepairSettings``; 0 is the paper's way.

    Raises:
        PoolError: too few generators have answers of both labels.
        ConfigError: the run directory is not a local path.
    """
    if "://" in pipeline.run.root:
        raise ConfigError(f"repair writes a checkpoint folder beside the run; {pipeline.run.root!r} is no local path")
    pipeline.make_policy()
    labels = {
        row.candidate_id: row for row in map(label_of, pipeline.run.read_table(LABELS, "labels", "labels.parquet"))
    }
    candidates, problems, splits = pipeline.candidates(), pipeline.problems(), pipeline.splits()
    texts = {
        split: repair_texts({name: problems[name] for name in splits[split]}, candidates, labels)
        for split in ("train", VALIDATION)
    }
    arguments = {
        "train": texts["train"],
        "validation": texts[VALIDATION],
        "test": pools_of(pipeline, TEST),
        "validation_pools": pools_of(pipeline, VALIDATION),
        "lambda_": pipeline.policy().lambda_,
        "settings": _settings(pipeline),
        "task": pipeline.recipe.task.name,
        "device": pipeline.recipe.scorer.device,
        "dtype": pipeline.recipe.scorer.dtype,
    }
    found: RepairReport = get_or_raise(
        _on_the_scorers_node(pipeline, _repair).remote(
            absolute(pipeline.run), arguments, equalise, pipeline.recipe.seed
        )
    )
    return found, _written(found, pipeline, "repair")


@ray.remote
def _repair(run: RunDir, arguments: Mapping[str, Any], equalise: float, seed: int) -> RepairReport:
    from raydebm.scorer.repair import RepairSettings

    folder = Path(run.root)
    settings = RepairSettings(equalise=equalise, seed=seed)
    return repair(folder / "scorer", folder / "repair" / "scorer", repair_settings=settings, **arguments)


def _on_the_scorers_node(pipeline: Pipeline, work: Any) -> Any:
    share = share_of(pipeline.recipe.ray, cluster_nodes())
    return work.options(num_cpus=share.cpus, num_gpus=share.gpus)


def _written(found: ConfoundingReport | RepairReport, pipeline: Pipeline, stage: str) -> str:
    provenance = {
        "command": command_line(),
        "seed": str(pipeline.recipe.seed),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    addresses = write_report(found, pipeline.run, stage, provenance=provenance)
    return next(address for address in addresses if address.endswith("report.html"))
