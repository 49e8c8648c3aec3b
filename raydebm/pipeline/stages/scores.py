"""Scores of a recipe's baselines (reward models, judges, EORM ...): the stage ``scores`` makes those of the baselines
that are evidence, and the stage ``baselines`` those of the others.

In:   a labelled run's candidates, and its training pairs for baselines that learn from them.
Out:  ``<run>/scores/<name>.parquet``, and ``<name>.state.json`` with what each was made from, so that a stage makes
      only the ones that are missing or stale.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from raydebm.config import BaselineConfig, JudgeBaseline, Recipe
from raydebm.errors import ScoringError
from raydebm.evaluation.baselines.protocol import NO_TEXT
from raydebm.generators import Secret, check_keys
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION, Facts, StageContext
from raydebm.records import Candidate, CandidateScore
from raydebm.run.directory import SCORES_FOLDER, RunDir
from raydebm.run.fingerprints import baseline_state, is_unchanged
from raydebm.scorer.pairs import TrainingGroup, build_pairs, training_groups

Groups = Mapping[str, Sequence[TrainingGroup]]
"""Training groups of the splits ``train`` and ``validation``."""
AGAIN = "again"
"""Key in the state of scores whose missing entries are to be asked for again."""

log = logging.getLogger(__name__)


def make_scores(context: StageContext) -> Facts:
    """Score the candidates with the baselines that are evidence for the posterior."""
    return score_baselines(context, context.recipe.evidence)


def make_baselines(context: StageContext) -> Facts:
    """Score the candidates with the other baselines."""
    evidence = evidence_names(context.recipe)
    return score_baselines(context, [one for one in context.recipe.baselines if one.name not in evidence])


def score_baselines(context: StageContext, baselines: Sequence[BaselineConfig]) -> Facts:
    """Score the validation and test candidates, and the training candidates if the posterior learns from them, with
    each of these baselines that has no current scores.

    Changed candidates or pairs make scores stale. Judges use the payer's journals and budget.

    Returns:
        Number of scores, and of answers without a score; empty without baselines.

    Raises:
        MissingKeyError: a judge's key is not in the environment; nothing was scored.
        ScoringError: an evidence baseline scored no answer at all; the next run asks it again.
    """
    recipe, run, basis = context.recipe, context.run, context.basis("pairs")
    waiting = waiting_baselines(recipe, run, basis, baselines)
    for baseline in waiting:
        _key_of(baseline)  # a missing key is an error before anything is paid for
    splits, candidates = (context.splits(), run.candidates()) if waiting else ({}, ())
    for baseline in waiting:
        train = splits[TRAIN] if _learns(recipe, run, baseline) else ()
        scored = {*splits[VALIDATION], *splits[TEST], *train}
        pools = [candidate for candidate in candidates if candidate.problem_id in scored and not candidate.is_greedy]
        groups = _all_pairs(context, candidates) if baseline.learns_from_pairs else {}
        _score(context, baseline, pools, groups, basis=basis)
    rows = [row for baseline in baselines for row in run.scores(baseline.name)]
    failed = sum(row.score is None for row in rows)
    return {"scored": len(rows) - failed, "failed": failed} if baselines else {}


def score_later_pass(context: StageContext, stage: str) -> None:
    """Score a later pass's candidates with the evidence baselines that have no current scores, below ``stage``."""
    recipe, basis, folder = context.recipe, context.basis("energies"), f"{stage}/{SCORES_FOLDER}"
    for baseline in waiting_baselines(recipe, context.run, basis, recipe.evidence, folder):
        _score(context, baseline, context.run.candidates(stage), {}, basis=basis, folder=folder)


def _score(
    context: StageContext,
    baseline: BaselineConfig,
    candidates: Sequence[Candidate],
    groups: Groups,
    *,
    basis: str,
    folder: str = SCORES_FOLDER,
) -> None:
    from raydebm.pipeline.ray.baselines import BaselineInputs, score_baseline

    recipe, run = context.recipe, context.run
    made, state = _made(run, baseline, folder), _state(recipe, run, baseline, basis)
    is_asked_again = made is not None and _is_current({**made, AGAIN: False}, state)
    kept = [row for row in run.scores(baseline.name, folder) if row.score is not None] if is_asked_again else ()
    inputs = BaselineInputs(
        problems=context.problems(), candidates=candidates, groups=groups, key=_key_of(baseline), kept=kept
    )
    score_baseline(recipe, run, baseline.name, inputs, payer=context.payer or run, folder=folder)
    _check_scores(baseline, run.scores(baseline.name, folder), is_evidence=baseline.name in evidence_names(recipe))
    run.write_json(state, folder, _state_file(baseline))


def _check_scores(baseline: BaselineConfig, rows: Sequence[CandidateScore], *, is_evidence: bool) -> None:
    """Log answers without a score.

    Raises:
        ScoringError: the baseline is evidence, and no answer has a score.
    """
    failed = [row.error for row in rows if _has_failed(row)]
    if not failed:
        return
    num_scored = sum(row.score is not None for row in rows)
    ((reason, count),) = Counter(failed).most_common(1)
    message = f"baseline {baseline.name!r} did not score {len(failed)} of {len(failed) + num_scored} answers"
    message += f"; {count} times: {reason}"
    if is_evidence and not num_scored:
        raise ScoringError(f"{message}. The posterior needs its scores: fix the cause and repeat the command")
    log.warning("%s%s", message, "; --retry-failed asks again" if isinstance(baseline, JudgeBaseline) else "")


def check_judges(recipe: Recipe, run: RunDir, *, basis: str | None) -> None:
    """Check the judges' keys before anything is paid for.

    Args:
        basis: an id of candidates and pairs. None if candidates have yet to be sampled: every judge then has work.

    Raises:
        MissingKeyError: the key of a judge with work to do is not in the environment.
    """
    for baseline in waiting_baselines(recipe, run, basis, recipe.baselines):
        _key_of(baseline)


def waiting_baselines(
    recipe: Recipe, run: RunDir, basis: str | None, baselines: Sequence[BaselineConfig], folder: str = SCORES_FOLDER
) -> list[BaselineConfig]:
    """Those of some baselines that have no scores of this basis."""
    return [one for one in baselines if not _is_current(_made(run, one, folder), _state(recipe, run, one, basis))]


def _state_file(baseline: BaselineConfig) -> str:
    return f"{baseline.name}.state.json"


def _made(run: RunDir, baseline: BaselineConfig, folder: str) -> dict[str, Any] | None:
    """The state of a baseline's scores; None if there are none."""
    return run.read_object(folder, _state_file(baseline), remedy="remove it and run the recipe again")


def _is_current(made: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    if made is None or made.get(AGAIN) or any(made.get(key) != now.get(key) for key in ("config", "basis")):
        return False
    if now.get("train") and not made.get("train"):
        return False
    return is_unchanged(made, now["contents"])


def _state(recipe: Recipe, run: RunDir, baseline: BaselineConfig, basis: str | None) -> dict[str, Any]:
    train = {"train": True} if _learns(recipe, run, baseline) else {}
    return {**baseline_state(baseline), "basis": basis, **train}


def _learns(recipe: Recipe, run: RunDir, baseline: BaselineConfig) -> bool:
    """True if training candidates are scored too, for the posterior."""
    return baseline.name in evidence_names(recipe) and run.learns_out_of_bag(recipe)


def evidence_names(recipe: Recipe) -> frozenset[str]:
    """Names of the baselines that are evidence for the posterior."""
    return frozenset(baseline.name for baseline in recipe.evidence)


def _key_of(baseline: BaselineConfig) -> Secret | None:
    """Key of a judge. Read in the driver and passed on, because a worker may have another environment."""
    if not isinstance(baseline, JudgeBaseline):
        return None
    return check_keys([baseline.generator]).get(baseline.generator.name)


def ask_failed_again(recipe: Recipe, run: RunDir, folder: str = SCORES_FOLDER) -> set[str]:
    """Mark missing scores of endpoint baselines for another try. Existing scores are kept.

    Returns:
        The names of these baselines.
    """
    failed = set()
    for baseline in recipe.baselines:
        made = _made(run, baseline, folder) if isinstance(baseline, JudgeBaseline) else None
        if made is not None and any(_has_failed(row) for row in run.scores(baseline.name, folder)):
            run.write_json({**made, AGAIN: True}, folder, _state_file(baseline))
            failed.add(baseline.name)
    return failed


def _has_failed(row: CandidateScore) -> bool:
    return row.error is not None and not row.error.startswith(NO_TEXT)


def _all_pairs(context: StageContext, candidates: Sequence[Candidate]) -> Groups:
    """All pairs of every problem: the limits of recipe and task are for adapters only."""
    config = context.recipe.pairs.model_copy(update={"max_pairs": None, "max_correct": None, "max_incorrect": None})
    labels, problems, splits = context.run.labels(), context.problems(), context.splits()
    groups = {}
    for split in (TRAIN, VALIDATION):
        ids = set(splits[split])
        of_split = [candidate for candidate in candidates if candidate.problem_id in ids]
        of_labels = [label for label in labels if label.problem_id in ids]
        pairs = build_pairs(of_split, of_labels, config=config, seed=context.recipe.training_seed)
        groups[split] = training_groups(pairs, of_split, problems.values())
    return groups
