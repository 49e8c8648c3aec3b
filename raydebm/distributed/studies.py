"""Confounding of a run's scorer, and its repair.

In:   the pipeline of a finished run (what is missing is made first).
Out:  a report, as JSON, Markdown and HTML; of a repair also a run directory.
Mathematics lives in ``evaluation`` and ``confounding``; this module moves rows, and sends what needs torch to the
cluster.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from raydebm.config import Recipe
from raydebm.confounding.pages import write_report
from raydebm.confounding.repairing import RepairReport, repair, repair_texts
from raydebm.confounding.report import (
    ConfoundingReport,
    ConfoundingSettings,
    Sources,
    confounding_report,
)
from raydebm.confounding.swap import SwapResult
from raydebm.distributed.fingerprints import new_manifest
from raydebm.distributed.folders import absolute, local_copy
from raydebm.distributed.placement import share_of
from raydebm.distributed.session import cluster_nodes, get_or_raise, is_own_cluster
from raydebm.distributed.stages import REPAIRED, TEST, VALIDATION, Pipeline
from raydebm.distributed.swap import SwapInputs, style_swaps, swap_keys
from raydebm.distributed.transfer import name_of
from raydebm.errors import ConfigError
from raydebm.evaluation.pools import EvaluatedPool, with_trained_labels
from raydebm.evaluation.provenance import command_line, versions
from raydebm.generators import Secret
from raydebm.store import LABELS, RunDir, label_of

MAX_CPUS = 8.0
"""Of a task that scores on CPUs; a small encoder gains little from more."""


def screen_of(pipeline: Pipeline, pools: Mapping[str, list[EvaluatedPool]]) -> ConfoundingReport:
    """What the energies alone tell about a shortcut; needs no encoder."""
    frac = pipeline.recipe.pairs.positive_frac
    return confounding_report(
        with_trained_labels(pools[TEST], frac),
        lambda_=pipeline.policy().lambda_,
        sources=Sources(),
        validation=with_trained_labels(pools[VALIDATION], frac),
        settings=_settings(pipeline),
        task=pipeline.recipe.task.name,
        scorer=name_of(pipeline),
    )


def _settings(pipeline: Pipeline) -> ConfoundingSettings:
    recipe = pipeline.recipe
    return ConfoundingSettings(
        num_bootstrap=recipe.evaluation.num_bootstrap,
        seed=recipe.seed,
        max_ablation_problems=recipe.confounding.max_ablation_problems,
        max_probe_texts=recipe.confounding.max_probe_texts,
    )


def confounding(pipeline: Pipeline) -> tuple[ConfoundingReport, str]:
    """Screen, linear probes, style ablation and style swap of a run's scorer; writes the report, and returns it and its
    address.

    Raises:
        MissingKeyError: the key of whoever rewrites is not in the environment.
        PoolError: a generator of ``confounding.swap`` has no correct answer.
    """
    keys = swap_keys(pipeline.recipe)
    pipeline.make_policy()
    swap = _swap_inputs(pipeline, keys)
    arguments = {
        "lambda_": pipeline.policy().lambda_,
        "settings": _settings(pipeline),
        "task": pipeline.recipe.task.name,
        "scorer": name_of(pipeline),
    }
    found: ConfoundingReport = get_or_raise(
        _on_the_scorers_node(pipeline, _confounding).remote(absolute(pipeline.run), arguments, swap)
    )
    return found, _written(found, pipeline, "confounding")


def _swap_inputs(pipeline: Pipeline, keys: Mapping[str, Secret]) -> SwapInputs:
    return SwapInputs(
        recipe=pipeline.recipe,
        run=absolute(pipeline.run),
        keys=keys,
        test=pipeline.evaluated_pools(TEST),
        validation=pipeline.evaluated_pools(VALIDATION),
        golds=pipeline.golds(),
    )


@ray.remote
def _confounding(run: RunDir, arguments: Mapping[str, Any], swap: SwapInputs) -> ConfoundingReport:
    from raydebm.scorer.features import FeatureExtractor, KeptFeatures

    recipe = swap.recipe
    with local_copy(run.uri("scorer")) as folder:
        features = KeptFeatures(FeatureExtractor.load(folder, device=recipe.scorer.device, dtype=recipe.scorer.dtype))
        scorer = features.scorer(folder)
        sources = Sources(scorer=scorer, features=features.joined, swaps=style_swaps(swap, scorer))
        return confounding_report(
            _as_trained(swap.test, recipe),
            validation=_as_trained(swap.validation, recipe),
            sources=sources,
            **arguments,
        )


def _as_trained(pools: Sequence[EvaluatedPool], recipe: Recipe) -> list[EvaluatedPool]:
    """With the texts that the scorer reads, and what it was trained to prefer as correct."""
    return with_trained_labels((pool.as_scored(recipe.scorer.reasoning) for pool in pools), recipe.pairs.positive_frac)


def repair_run(pipeline: Pipeline, *, equalise: float = 0.0) -> tuple[RepairReport, str]:
    """Refit the heads on group-balanced data (DFR); writes ``<run>/repair/scorer`` and a before/after report.

    ``<run>/repair`` is a run directory then, whose later stages have still to be made.

    Args:
        equalise: see ``scorer.repair.RepairSettings``; 0 is the paper's way.

    Raises:
        PoolError: too few generators have answers of both labels.
        ConfigError: the run directory is not a local path.
    """
    if "://" in pipeline.run.root:
        raise ConfigError(f"repair writes a checkpoint folder beside the run; {pipeline.run.root!r} is no local path")
    keys = swap_keys(pipeline.recipe)
    pipeline.make_policy()
    swap = _swap_inputs(pipeline, keys)
    labels = {
        row.candidate_id: row for row in map(label_of, pipeline.run.read_table(LABELS, "labels", "labels.parquet"))
    }
    candidates, problems, splits = pipeline.candidates(), pipeline.problems(), pipeline.splits()
    texts = {
        split: repair_texts(
            {name: problems[name] for name in splits[split]},
            candidates,
            labels,
            reasoning=pipeline.recipe.scorer.reasoning,
            positive_frac=pipeline.recipe.pairs.positive_frac,
        )
        for split in ("train", VALIDATION)
    }
    arguments = {
        "train": texts["train"],
        "validation": texts[VALIDATION],
        "lambda_": pipeline.policy().lambda_,
        "settings": _settings(pipeline),
        "task": pipeline.recipe.task.name,
        "device": pipeline.recipe.scorer.device,
        "dtype": pipeline.recipe.scorer.dtype,
    }
    # First, so that a repair that dies leaves no folder that looks like a run with a scorer still to be trained.
    RunDir(pipeline.run.uri("repair")).write_json(_repair_marker(pipeline), REPAIRED)
    found: RepairReport = get_or_raise(
        _on_the_scorers_node(pipeline, _repair).remote(
            absolute(pipeline.run), arguments, equalise, pipeline.recipe.seed, swap
        )
    )
    _make_run_of_the_repair(pipeline)
    return found, _written(found, pipeline, "repair")


def ensure_repaired(pipeline: Pipeline) -> None:
    """Repair a run's scorer, unless a repair of this very scorer is there already."""
    pipeline.train()
    repaired = RunDir(pipeline.run.uri("repair"))
    is_complete = repaired.manifest("scorer") is not None and repaired.exists(REPAIRED)
    if not is_complete or repaired.read_json(REPAIRED) != _repair_marker(pipeline):
        repair_run(pipeline)


def _repair_marker(pipeline: Pipeline) -> dict[str, Any]:
    """What stands in the repair's run directory: which scorer was repaired, and from how many answers."""
    config = pipeline.recipe.confounding
    return {
        "repair_of": pipeline.run.root,
        "scorer": pipeline.basis("scorer"),
        "cap": config.repair_cap,
        "min_cell": config.repair_min_cell,
    }


def _make_run_of_the_repair(pipeline: Pipeline) -> None:
    """``<run>/repair`` becomes a run directory whose scorer is the repaired one, so that it can be scored, calibrated,
    evaluated and served like any other. What the repair does not touch is copied."""
    repaired = replace(pipeline, recipe=pipeline.recipe.model_copy(update={"run_dir": pipeline.run.uri("repair")}))
    for stage in ("problems", "candidates", "labels", "pairs"):
        pipeline.run.copy_stage(stage, repaired.run)
    for stage in ("energies", "calibration", "evaluation"):  # of an earlier repair
        repaired.run.remove(stage)
    for stage in (*repaired.later_passes(VALIDATION), *repaired.later_passes(TEST)):  # its journals stay: they are paid
        repaired.run.remove(stage, "manifest.json")
    repaired.run.write_json(repaired.recipe.model_dump(mode="json", by_alias=True), "recipe.json")
    facts = (pipeline.run.manifest("scorer") or {}).get("facts", {})
    repaired.run.finish("scorer", new_manifest("scorer", repaired.recipe, repaired.run, facts=facts))


@ray.remote
def _repair(run: RunDir, arguments: Mapping[str, Any], equalise: float, seed: int, swap: SwapInputs) -> RepairReport:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.repair import RepairSettings

    folder = Path(run.root)
    swaps: tuple[SwapResult, ...] = ()
    if swap.recipe.confounding.swap:
        scorer = EnsembleScorer.load(folder / "scorer", device=arguments["device"], dtype=arguments["dtype"])
        swaps = style_swaps(swap, scorer)
    config = swap.recipe.confounding
    settings = RepairSettings(equalise=equalise, seed=seed, cap=config.repair_cap, min_cell=config.repair_min_cell)
    return repair(
        folder / "scorer",
        folder / "repair" / "scorer",
        test=_as_trained(swap.test, swap.recipe),
        validation_pools=_as_trained(swap.validation, swap.recipe),
        repair_settings=settings,
        swaps=swaps,
        **arguments,
    )


def _on_the_scorers_node(pipeline: Pipeline, work: Any) -> Any:
    nodes = cluster_nodes()
    share = share_of(pipeline.recipe.ray, nodes)
    if share.gpus:
        return work.options(num_cpus=share.cpus, num_gpus=share.gpus)
    # Nothing of the run goes on beside it, so it gets several CPUs, and with them as many threads of torch. A cluster
    # of our own counts more CPUs than this machine may have.
    most = min(MAX_CPUS, max(node.get("CPU", 1.0) for node in nodes))
    return work.options(num_cpus=min(most, os.cpu_count() or 1) if is_own_cluster() else most)


def _written(found: ConfoundingReport | RepairReport, pipeline: Pipeline, stage: str) -> str:
    provenance = {
        "command": command_line(),
        "seed": str(pipeline.recipe.seed),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    addresses = write_report(found, pipeline.run, stage, provenance=provenance)
    return next(address for address in addresses if address.endswith("report.html"))
