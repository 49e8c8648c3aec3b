"""Scores of a recipe's baselines (reward models, judges, EORM ...), each made once and kept when complete.

In:   a labelled run's candidates; for those that learn from pairs also the training pairs.
Out:  ``<run>/scores/<name>.parquet``, and a manifest with the inputs of each.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from raydebm.config import BaselineConfig, JudgeBaseline, Recipe
from raydebm.decision.table import Scores
from raydebm.errors import ScoringError
from raydebm.evaluation.baselines.protocol import NO_TEXT
from raydebm.generators import Secret, check_keys
from raydebm.generators.journal import spent_usd
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION, StageContext
from raydebm.pipeline.writing_lock import write_lock
from raydebm.records import Candidate, CandidateScore
from raydebm.run.directory import SCORES_FOLDER, RunDir
from raydebm.run.fingerprints import baseline_state, is_unchanged
from raydebm.scorer.pairs import TrainingGroup, build_pairs, training_groups

Groups = Mapping[str, Sequence[TrainingGroup]]
"""Training groups of the splits ``train`` and ``validation``."""
AGAIN = "again"
"""Manifest key of scores whose missing entries are to be asked for again."""

log = logging.getLogger(__name__)


def score_baselines(context: StageContext, names: Collection[str] | None = None) -> None:
    """Score the validation and test candidates with every baseline that has no current scores; also training
    candidates, if the posterior learns from them.

    Changed candidates or pairs make scores stale. Judges use the payer's journals and budget.

    Args:
        names: baselines to score. Default: all of the recipe's.

    Raises:
        MissingKeyError: a judge's key is not in the environment; nothing was scored.
        ScoringError: an evidence baseline scored no answer at all; the next run asks it again.
    """
    recipe, run, basis = context.recipe, context.run, context.basis("pairs")
    waiting = waiting_baselines(recipe, run, basis, names=names)
    if not waiting:
        return
    for baseline in waiting:
        _key_of(baseline)  # a missing key is an error before anything is paid for
    splits, candidates = context.splits(), run.candidates()
    with write_lock(run):
        for baseline in waiting:
            train = splits[TRAIN] if _learns(recipe, run, baseline) else ()
            scored = {*splits[VALIDATION], *splits[TEST], *train}
            pools = [
                candidate for candidate in candidates if candidate.problem_id in scored and not candidate.is_greedy
            ]
            groups = _all_pairs(context, candidates) if baseline.learns_from_pairs else {}
            _score(context, baseline, pools, groups, basis=basis)
            if baseline.name in evidence_names(recipe):
                run.reopen("calibration")  # it learned from the old scores
            run.reopen("evaluation")  # it shows the old scores


def score_later_pass(context: StageContext, stage: str) -> None:
    """Score a later pass's candidates with the evidence baselines that have no current scores, below ``stage``."""
    recipe, basis, folder = context.recipe, context.basis("energies"), f"{stage}/{SCORES_FOLDER}"
    for baseline in waiting_baselines(recipe, context.run, basis, folder=folder, names=evidence_names(recipe)):
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
    done, state = run.manifest(folder) or {}, _state(recipe, run, baseline, basis)
    is_asked_again = _is_current({**done.get(baseline.name, {}), AGAIN: False}, state)
    kept = [row for row in run.scores(baseline.name, folder) if row.score is not None] if is_asked_again else ()
    inputs = BaselineInputs(
        problems=context.problems(), candidates=candidates, groups=groups, key=_key_of(baseline), kept=kept
    )
    score_baseline(recipe, run, baseline.name, inputs, payer=context.payer or run, folder=folder)
    _check_scores(baseline, run.scores(baseline.name, folder), is_evidence=baseline.name in evidence_names(recipe))
    run.finish(folder, {**done, baseline.name: state})


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
        basis: an id of candidates and pairs. None while candidates are still to be sampled, so that every judge counts.

    Raises:
        MissingKeyError: the key of a judge with work to do is not in the environment.
    """
    for baseline in waiting_baselines(recipe, run, basis):
        _key_of(baseline)


def waiting_baselines(
    recipe: Recipe,
    run: RunDir,
    basis: str | None,
    *,
    folder: str = SCORES_FOLDER,
    names: Collection[str] | None = None,
) -> list[BaselineConfig]:
    """Baselines without scores of this basis. ``names`` restricts the choice."""
    done = run.manifest(folder) or {}
    baselines = [one for one in recipe.baselines if names is None or one.name in names]
    return [one for one in baselines if not _is_current(done.get(one.name), _state(recipe, run, one, basis))]


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
    """Whether training candidates are scored too, for the posterior."""
    return baseline.name in evidence_names(recipe) and run.learns_out_of_bag(recipe)


def evidence_names(recipe: Recipe) -> frozenset[str]:
    """Names of the baselines that are evidence of the posterior."""
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
    done = run.manifest(folder) or {}
    failed = {
        baseline.name
        for baseline in recipe.baselines
        if isinstance(baseline, JudgeBaseline)
        and baseline.name in done
        and any(_has_failed(row) for row in run.scores(baseline.name, folder))
    }
    if failed:
        run.finish(folder, {name: {**state, AGAIN: True} if name in failed else state for name, state in done.items()})
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


def scores_of(context: StageContext) -> Scores | None:
    """The scores so far; None if there are none."""
    done = context.run.manifest(SCORES_FOLDER) or {}
    names = [baseline.name for baseline in context.recipe.baselines if baseline.name in done]
    return read_scores(context.run, names) if names else None


def evidence_of(recipe: Recipe, run: RunDir, folder: str) -> Scores:
    """The scores so far of the evidence baselines."""
    names = [baseline.name for baseline in recipe.evidence if run.has_scores(baseline.name, folder)]
    return read_scores(run, names, folder=folder)


def read_scores(run: RunDir, names: Iterable[str], *, folder: str = SCORES_FOLDER) -> Scores:
    """Scores by baseline name, then by candidate id. Parts of a score are named ``<name>.<part>``."""
    scores: dict[str, dict[str, float | None]] = {}
    for name in names:
        rows = run.scores(name, folder)
        scores[name] = {row.candidate_id: row.score for row in rows}
        for part in dict.fromkeys(part for row in rows for part in row.parts):
            scores[f"{name}.{part}"] = {row.candidate_id: row.parts.get(part) for row in rows}
    return scores


def judge_prices(recipe: Recipe, run: RunDir) -> dict[str, float]:
    """US dollars per rated candidate by judge, as billed. Judges without a bill are left out, as are all on a file
    system that cannot append."""
    prices = {}
    for config in recipe.baselines:
        if config.kind != "judge" or not run.is_local or not run.has_scores(config.name):
            continue
        billed = spent_usd([run.uri(SCORES_FOLDER, f"{config.name}.journal")])
        rated = sum(row.score is not None for row in run.scores(config.name))
        if billed > 0 and rated:
            prices[config.name] = billed / rated
    return prices
