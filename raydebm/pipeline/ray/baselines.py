"""Scores of one baseline (a reward model, a judge, EORM ...), in a Ray task, with a GPU if workers have any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from raydebm.config import Recipe
from raydebm.evaluation.baselines import build_scorer, score_candidates
from raydebm.generators import Secret
from raydebm.generators.account import journal_and_budget
from raydebm.pipeline.ray.placement import cluster_nodes, share_of
from raydebm.pipeline.ray.session import get_or_raise
from raydebm.records import Candidate, CandidateScore, Problem
from raydebm.run.directory import SCORES_FOLDER, RunDir
from raydebm.scorer.pairs import TrainingGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineInputs:
    """Input of a baseline: candidates to score, and training data."""

    problems: Mapping[str, Problem]
    """Problems by problem id."""
    candidates: Sequence[Candidate]
    groups: Mapping[str, Sequence[TrainingGroup]]
    """Training groups of ``train`` and ``validation``; empty unless the baseline is trained."""
    key: Secret | None
    """API key of a judge."""
    kept: Sequence[CandidateScore] = ()
    """Existing scores to keep."""


def score_baseline(
    recipe: Recipe, run: RunDir, name: str, inputs: BaselineInputs, *, payer: RunDir, folder: str = SCORES_FOLDER
) -> None:
    """Score candidates with a baseline of the recipe; writes ``<run>/<folder>/<name>.parquet``.

    Args:
        payer: the run that stores the judges' journals, and whose costs count towards the spending limit.
    """
    share = share_of(recipe.ray, cluster_nodes())
    work = _score_baseline.options(num_cpus=share.cpus, num_gpus=1 if share.gpus else 0)
    get_or_raise(work.remote(recipe, run.absolute(), name, inputs, payer.absolute(), folder))


@ray.remote
def _score_baseline(recipe: Recipe, run: RunDir, name: str, inputs: BaselineInputs, payer: RunDir, folder: str) -> None:
    config = next(baseline for baseline in recipe.baselines if baseline.name == name)
    journal, budget = (
        journal_and_budget(recipe, payer, SCORES_FOLDER, f"{name}.journal") if config.kind == "judge" else (None, None)
    )
    scorer = build_scorer(
        config,
        journal=journal,
        budget=budget,
        key=inputs.key,
        train=inputs.groups.get("train", ()),
        validation=inputs.groups.get("validation", ()),
        folder=Path(run.baseline_uri(name)) if run.is_local else None,
    )
    rows = {row.candidate_id: row for row in inputs.kept}
    open_ones = [candidate for candidate in inputs.candidates if candidate.candidate_id not in rows]
    rows |= {row.candidate_id: row for row in score_candidates(scorer, inputs.problems, open_ones)}
    run.write_scores((rows[candidate.candidate_id] for candidate in inputs.candidates), name, folder)
