"""Scores of a recipe's baselines (reward models, judges, EORM ...), each made on the cluster and kept when finished.

In:   a labelled run's validation and test candidates; for EORM also its training pairs.
Out:  ``<run>/scores/<name>.parquet``, and a manifest of what each was made from.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import ray

from raydebm.baselines import build_scorer, read_scores, score_candidates, write_scores
from raydebm.baselines.running import STAGE
from raydebm.config import Recipe
from raydebm.distributed.folders import absolute
from raydebm.distributed.placement import share_of
from raydebm.distributed.session import cluster_nodes, get_or_raise
from raydebm.evaluation.pools import Scores
from raydebm.generators.journal import Journal
from raydebm.generators.limits import Budget
from raydebm.pairs import TrainingGroup
from raydebm.records import Candidate, Problem
from raydebm.store import RunDir

Groups = Mapping[str, Sequence[TrainingGroup]]
"""Training groups of the splits ``train`` and ``validation``."""


def score_baselines(
    recipe: Recipe,
    run: RunDir,
    *,
    basis: str,
    problems: Mapping[str, Problem],
    candidates: Callable[[], Sequence[Candidate]],
    groups: Callable[[], Groups],
) -> None:
    """Scores of every baseline of the recipe that are not there yet.

    Args:
        basis: changes when candidates or pairs do; scores of another basis are made again.
        candidates: read only where something has to be scored; likewise ``groups``, which EORM alone needs.
    """
    done = run.manifest(STAGE) or {}
    for baseline in recipe.baselines:
        state = {"config": baseline.model_dump(mode="json"), "basis": basis}
        if done.get(baseline.name) == state:
            continue
        share = share_of(recipe.ray, cluster_nodes())
        work = _score_baseline.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
        needed = groups() if baseline.kind == "eorm" else {}
        get_or_raise(work.remote(recipe, absolute(run), baseline.name, problems, candidates(), needed))
        done = done | {baseline.name: state}
        run.finish(STAGE, done)


def scores_of(recipe: Recipe, run: RunDir) -> Scores | None:
    """What ``score_baselines`` wrote so far; None without any."""
    done = run.manifest(STAGE) or {}
    names = [baseline.name for baseline in recipe.baselines if baseline.name in done]
    return read_scores(run, names) if names else None


@ray.remote
def _score_baseline(
    recipe: Recipe,
    run: RunDir,
    name: str,
    problems: Mapping[str, Problem],
    candidates: Sequence[Candidate],
    groups: Groups,
) -> None:
    config = next(baseline for baseline in recipe.baselines if baseline.name == name)
    local = "://" not in run.root
    journal = Journal(Path(run.root) / STAGE / f"{name}.journal") if config.kind == "judge" and local else None
    scorer = build_scorer(
        config,
        journal=journal,
        budget=Budget(recipe.generation.max_usd, journal),
        train=groups.get("train", ()),
        validation=groups.get("validation", ()),
        folder=Path(run.root) / STAGE / f"{name}.model" if local else None,
    )
    write_scores(run, score_candidates(scorer, problems, candidates), name=name)
