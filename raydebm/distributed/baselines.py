"""Scores of a recipe's baselines (reward models, judges, EORM ...), each made on the cluster and kept when finished.

In:   a labelled run's validation and test candidates; for EORM also its training pairs.
Out:  ``<run>/scores/<name>.parquet``, and a manifest of what each was made from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from raydebm.baselines import build_scorer, read_scores, score_candidates, write_scores
from raydebm.baselines.running import STAGE
from raydebm.config import BaselineConfig, Recipe
from raydebm.distributed.fingerprints import baseline_state, is_unchanged
from raydebm.distributed.folders import absolute
from raydebm.distributed.placement import share_of
from raydebm.distributed.session import cluster_nodes, get_or_raise
from raydebm.distributed.spending import journal_and_budget
from raydebm.evaluation.pools import Scores
from raydebm.generators import Secret, check_keys
from raydebm.pairs import TrainingGroup, build_pairs, training_groups
from raydebm.records import Candidate, Problem
from raydebm.store import LABELS, RunDir, label_of

Groups = Mapping[str, Sequence[TrainingGroup]]
"""Training groups of the splits ``train`` and ``validation``."""


def score_baselines(
    recipe: Recipe,
    run: RunDir,
    *,
    basis: str,
    problems: Mapping[str, Problem],
    splits: Mapping[str, Sequence[str]],
    candidates: Callable[[], Sequence[Candidate]],
    payer: RunDir | None = None,
) -> None:
    """Scores of every baseline of the recipe that are not there yet, for the validation and test candidates.

    Args:
        basis: changes when candidates or pairs do; scores of another basis are made again.
        problems: by problem id.
        splits: problem ids of ``train``, ``validation`` and ``test``.
        candidates: all of the first pass; read only where something has to be scored.
        payer: the run that has the judges' journals, and whose limit counts; None: ``run``.

    Raises:
        MissingKeyError: a judge's key is not in the environment; nothing was scored.
    """
    waiting = _waiting(recipe, run, basis)
    if not waiting:
        return
    keys = {found.name: _key_of(found) for found in waiting}
    done = run.manifest(STAGE) or {}
    share = share_of(recipe.ray, cluster_nodes())
    work = _score_baseline.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
    everything = candidates()
    scored = {*splits["validation"], *splits["test"]}
    pools = [found for found in everything if found.problem_id in scored and not found.is_greedy]
    for baseline in waiting:
        groups = _all_pairs(recipe, run, problems, splits, everything) if baseline.kind == "eorm" else {}
        inputs = _Inputs(problems=problems, candidates=pools, groups=groups, key=keys[baseline.name])
        get_or_raise(work.remote(recipe, absolute(run), baseline.name, inputs, absolute(payer or run)))
        done = done | {baseline.name: _state(baseline, basis)}
        run.finish(STAGE, done)
        run.remove("evaluation", "manifest.json")  # it shows the scores that were there before


def check_judges(recipe: Recipe, run: RunDir, *, basis: str | None) -> None:
    """Find a missing key before anything is paid for.

    Args:
        basis: see ``score_baselines``; None: candidates are still to be drawn, so that every judge will be asked.

    Raises:
        MissingKeyError: the key of a judge that is still to be asked is not in the environment.
    """
    for baseline in _waiting(recipe, run, basis):
        _key_of(baseline)


def _waiting(recipe: Recipe, run: RunDir, basis: str | None) -> list[BaselineConfig]:
    """The baselines that have no scores of this basis."""
    done = run.manifest(STAGE) or {}
    return [found for found in recipe.baselines if not _is_current(done.get(found.name), _state(found, basis))]


def _is_current(made: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    if made is None or any(made.get(key) != now[key] for key in ("config", "basis")):
        return False
    return is_unchanged(made, now["contents"])


def _state(baseline: BaselineConfig, basis: str | None) -> dict[str, Any]:
    return {**baseline_state(baseline), "basis": basis}


def _key_of(baseline: BaselineConfig) -> Secret | None:
    """Read here and handed over: a worker on another node, or of a cluster that runs, has another environment."""
    if baseline.kind != "judge":
        return None
    return check_keys([baseline.generator]).get(baseline.generator.name)


def forget_ratings(recipe: Recipe, run: RunDir) -> bool:
    """Have the judges' ratings made again: those that their journals hold cost nothing, those that failed are asked.

    Returns:
        Whether there were any.
    """
    judges = {baseline.name for baseline in recipe.baselines if baseline.kind == "judge"}
    done = run.manifest(STAGE) or {}
    if judges & done.keys():
        run.finish(STAGE, {name: state for name, state in done.items() if name not in judges})
    return bool(judges & done.keys())


def _all_pairs(
    recipe: Recipe,
    run: RunDir,
    problems: Mapping[str, Problem],
    splits: Mapping[str, Sequence[str]],
    candidates: Sequence[Candidate],
) -> Groups:
    """All pairs of every problem, as EORM takes them: limits of the recipe and of its task are for our adapters."""
    config = recipe.pairs.model_copy(update={"max_pairs": None, "max_correct": None, "max_incorrect": None})
    labels = [label_of(row) for row in run.read_table(LABELS, "labels", "labels.parquet")]
    found = {}
    for split in ("train", "validation"):
        ids = set(splits[split])
        of_split = [candidate for candidate in candidates if candidate.problem_id in ids]
        of_labels = [label for label in labels if label.problem_id in ids]
        pairs = build_pairs(of_split, of_labels, config=config, seed=recipe.training_seed)
        found[split] = training_groups(pairs, of_split, problems.values())
    return found


def scores_of(recipe: Recipe, run: RunDir) -> Scores | None:
    """What ``score_baselines`` wrote so far; None without any."""
    done = run.manifest(STAGE) or {}
    names = [baseline.name for baseline in recipe.baselines if baseline.name in done]
    return read_scores(run, names) if names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """What a baseline scores and learns from."""

    problems: Mapping[str, Problem]
    candidates: Sequence[Candidate]
    groups: Groups
    key: Secret | None


@ray.remote
def _score_baseline(recipe: Recipe, run: RunDir, name: str, inputs: _Inputs, payer: RunDir) -> None:
    config = next(baseline for baseline in recipe.baselines if baseline.name == name)
    local = "://" not in run.root
    journal, budget = (
        journal_and_budget(recipe, payer, STAGE, f"{name}.journal") if config.kind == "judge" else (None, None)
    )
    scorer = build_scorer(
        config,
        journal=journal,
        budget=budget,
        key=inputs.key,
        train=inputs.groups.get("train", ()),
        validation=inputs.groups.get("validation", ()),
        folder=Path(run.root) / STAGE / f"{name}.model" if local else None,
    )
    write_scores(run, score_candidates(scorer, inputs.problems, inputs.candidates), name=name)
