"""Scores of a recipe's baselines (reward models, judges, EORM ...), each made on the cluster and kept when finished.

In:   a labelled run's candidates; for EORM also its training pairs.
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
    baselines: Sequence[BaselineConfig],
    *,
    basis: str,
    problems: Mapping[str, Problem],
    splits: Mapping[str, Sequence[str]],
    candidates: Callable[[], Sequence[Candidate]],
    payer: RunDir | None = None,
) -> None:
    """Scores of some of the recipe's baselines that are not there yet, for the validation and test candidates, and for
    those of training problems that the posterior learns from.

    Args:
        baselines: which; nothing is done where all of them have scores.
        basis: changes when candidates or pairs do; scores of another basis are made again.
        problems: by problem id.
        splits: problem ids of ``train``, ``validation`` and ``test``.
        candidates: all of the first pass; read only where something has to be scored.
        payer: the run that has the judges' journals, and whose limit counts; None: ``run``.

    Raises:
        MissingKeyError: a judge's key is not in the environment; nothing was scored.
    """
    waiting = _waiting(recipe, run, basis, among=baselines)
    if not waiting:
        return
    keys = {found.name: _key_of(found) for found in waiting}
    done = run.manifest(STAGE) or {}
    share = share_of(recipe.ray, cluster_nodes())
    work = _score_baseline.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
    everything = candidates()
    for baseline in waiting:
        wanted = {*splits["validation"], *splits["test"], *(splits["train"] if _learns(recipe, baseline) else ())}
        pools = [found for found in everything if found.problem_id in wanted and not found.is_greedy]
        groups = _all_pairs(recipe, run, problems, splits, everything) if baseline.kind == "eorm" else {}
        inputs = _Inputs(problems=problems, candidates=pools, groups=groups, key=keys[baseline.name])
        get_or_raise(work.remote(recipe, absolute(run), baseline.name, inputs, absolute(payer or run)))
        done = done | {baseline.name: _state(recipe, baseline, basis)}
        run.finish(STAGE, done)
        if baseline in recipe.evidence:
            run.remove("calibration", "manifest.json")  # it learnt from the scores that were there before
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


def _waiting(
    recipe: Recipe,
    run: RunDir,
    basis: str | None,
    *,
    stage: str = STAGE,
    among: Sequence[BaselineConfig] | None = None,
) -> list[BaselineConfig]:
    """The baselines that have no scores of this basis; ``among`` None: of all of the recipe's."""
    done = run.manifest(stage) or {}
    return [
        found
        for found in (recipe.baselines if among is None else among)
        if not _is_current(done.get(found.name), _state(recipe, found, basis))
    ]


def _is_current(made: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    if made is None or any(made.get(key) != now.get(key) for key in ("config", "basis", "train")):
        return False
    return is_unchanged(made, now["contents"])


def _state(recipe: Recipe, baseline: BaselineConfig, basis: str | None) -> dict[str, Any]:
    train = {"train": True} if _learns(recipe, baseline) else {}
    return {**baseline_state(baseline), "basis": basis, **train}


def _learns(recipe: Recipe, baseline: BaselineConfig) -> bool:
    """Whether training candidates are scored too, for the posterior to learn from."""
    return baseline in recipe.evidence and recipe.learns_out_of_bag


def score_later_pass(
    recipe: Recipe,
    run: RunDir,
    stage: str,
    *,
    basis: str,
    problems: Mapping[str, Problem],
    candidates: Callable[[], Sequence[Candidate]],
) -> None:
    """Scores of a later pass's candidates by the baselines that are evidence, below ``stage``, where they are missing.

    Args:
        stage: of the pass.
        basis: as for ``score_baselines``.
        problems: by problem id.
        candidates: of the pass; read only where something has to be scored.
    """
    folder = f"{stage}/{STAGE}"
    waiting = _waiting(recipe, run, basis, stage=folder, among=recipe.evidence)
    if not waiting:
        return
    share = share_of(recipe.ray, cluster_nodes())
    work = _score_evidence.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
    for baseline in waiting:
        get_or_raise(work.remote(baseline, absolute(run), folder, problems, candidates()))
        run.finish(folder, {**(run.manifest(folder) or {}), baseline.name: _state(recipe, baseline, basis)})


def evidence_of(recipe: Recipe, run: RunDir, stage: str) -> Scores:
    """The scores of the baselines that are evidence, as far as they have been made."""
    names = [found.name for found in recipe.evidence if run.exists(stage, f"{found.name}.parquet")]
    return read_scores(run, names, stage=stage)


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
def _score_evidence(
    config: BaselineConfig,
    run: RunDir,
    stage: str,
    problems: Mapping[str, Problem],
    candidates: Sequence[Candidate],
) -> None:
    write_scores(run, score_candidates(build_scorer(config), problems, candidates), name=config.name, stage=stage)


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
