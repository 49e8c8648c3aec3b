"""Pools of a run's split: candidates of all passes with their labels, checks, energies and scores."""

import logging
import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raydebm.decision.policy import Policy, policy_id, policy_of
from raydebm.decision.table import SHUFFLE_SEED, PoolTable, Scores
from raydebm.errors import PoolError
from raydebm.identity import seed_for
from raydebm.pipeline.context import StageContext
from raydebm.records import Label, Problem, ScoredCandidate
from raydebm.run.directory import SCORES_FOLDER, RunDir

if TYPE_CHECKING:
    from raydebm.evaluation.results.evaluation import TextsRead

log = logging.getLogger(__name__)


def recorded_candidates(context: StageContext, *splits: str) -> dict[str, ScoredCandidate]:
    """All recorded candidates of some splits, from all passes, by id, with checks, energies and evidence scores.

    Raises:
        PoolError: a table is missing or unreadable, or a candidate was never checked.
    """
    run, recorded = context.run, dict[str, ScoredCandidate]()
    problems = {problem.problem_id: problem for split in splits for problem in context.problems_of(split)}
    for source, labelled, scored, folder in _tables(context, splits):
        candidates = {row.candidate_id: row for row in run.candidates(source) if row.problem_id in problems}
        reports = {row.candidate_id: row for row in run.reports(labelled) if row.candidate_id in candidates}
        energies = {row.candidate_id: row.energies for row in run.energies(scored) if row.candidate_id in candidates}
        scores = read_scores(run, (baseline.name for baseline in context.recipe.evidence), folder=folder)
        if absent := candidates.keys() - reports.keys():
            raise PoolError(
                f"{len(absent)} candidates have no constraint report, the first is {min(absent)!r}; run the label "
                "stage over all candidates first"
            )
        for name, candidate in candidates.items():
            recorded[name] = ScoredCandidate(
                candidate=candidate,
                report=reports[name],
                energies=energies.get(name),
                scores={of: score for of, by_id in scores.items() if (score := by_id.get(name)) is not None},
                kind=problems[candidate.problem_id].kind,
            )
    return recorded


def recorded_labels(context: StageContext, *splits: str) -> dict[str, Label]:
    """Labels of all recorded candidates of some splits, from all passes, by candidate id."""
    problem_ids = frozenset(problem_id for split in splits for problem_id in context.splits()[split])
    rows = (row for _, labelled, _, _ in _tables(context, splits) for row in context.run.labels(labelled))
    return {row.candidate_id: row for row in rows if row.problem_id in problem_ids}


def _tables(context: StageContext, splits: Iterable[str]) -> list[tuple[str, str, str, str]]:
    """Stages with the candidates, labels, energies and scores of each pass."""
    later = [stage for split in splits for stage in later_passes(context, split)]
    first = ("candidates", "labels", "energies", SCORES_FOLDER)
    return [first, *((stage, stage, stage, f"{stage}/{SCORES_FOLDER}") for stage in later)]


def texts_read_of(context: StageContext) -> tuple["TextsRead", ...]:
    """Fractions of the first pass's texts that the scorer read, by split."""
    from raydebm.evaluation.results.evaluation import texts_read  # loads scipy, which a dry run does not need

    return texts_read(
        context.run.energies(),
        problem_of={candidate.candidate_id: candidate.problem_id for candidate in context.run.stored_candidates()},
        splits=context.splits(),
    )


def later_passes(context: StageContext, split: str) -> list[str]:
    """Complete stages of later passes, in order. Those of a previous ensemble are ignored."""
    basis, stages = context.basis("energies"), list[str]()
    while True:
        stage = later_pass(split, len(stages) + 1)
        manifest = context.run.manifest(stage)
        if manifest is None or manifest.get("fingerprint") != basis:
            return stages
        stages.append(stage)


def later_pass(split: str, number: int) -> str:
    """The folder of a split's n-th batch of later-pass requests."""
    return f"regenerated/{split}-{number}"


def read_scores(run: RunDir, names: Iterable[str], *, folder: str = SCORES_FOLDER) -> Scores:
    """Scores so far, by baseline name, then by candidate id. Parts of a score are named ``<name>.<part>``."""
    scores: dict[str, dict[str, float | None]] = {}
    for name in names:
        if run.has_scores(name, folder):
            rows = run.scores(name, folder)
            scores[name] = {row.candidate_id: row.score for row in rows}
            for part in dict.fromkeys(part for row in rows for part in row.parts):
                scores[f"{name}.{part}"] = {row.candidate_id: row.parts.get(part) for row in rows}
    return scores


def evaluated_pools(context: StageContext, *splits: str) -> PoolTable:
    """The scored pools of some splits, in this order, with the baseline scores so far."""
    return assembled(
        [problem for split in splits for problem in context.problems_of(split)],
        recorded_candidates(context, *splits).values(),
        labels=recorded_labels(context, *splits),
        scores=read_scores(context.run, (baseline.name for baseline in context.recipe.baselines)) or None,
    )


def assembled(
    problems: Iterable[Problem],
    candidates: Iterable[ScoredCandidate],
    *,
    labels: Mapping[str, Label],
    scores: Scores | None = None,
) -> PoolTable:
    """Make the table with a pool per problem, in the order of the problems.

    Only first-pass candidates belong to a pool. They are sorted by id, then shuffled (seed 42 as in the paper), so that
    their position depends neither on the tables' order nor on the generator.

    Raises:
        PoolError: no problem has any candidate, or candidates of a problem have different numbers of energies.
    """
    problems, scored = list(problems), dict[str, list[ScoredCandidate]]()
    for each in candidates:
        if each.candidate.pass_index == 1:
            scored.setdefault(each.candidate.problem_id, []).append(each)
    answered = [problem for problem in problems if problem.problem_id in scored]
    if not answered:
        raise PoolError("evaluation found no candidate of any of the problems; run the generation stage first")
    pools, greedy = [], []
    for problem in answered:
        own = sorted(scored[problem.problem_id], key=lambda each: each.candidate.candidate_id)
        sampled = [each for each in own if not each.candidate.is_greedy]
        random.Random(seed_for(SHUFFLE_SEED, problem.problem_id)).shuffle(sampled)
        counts = {len(each.energies.members) for each in own if each.energies is not None}
        if len(counts) > 1:
            raise PoolError(
                f"problem {problem.problem_id!r}: candidates have {min(counts)} and {max(counts)} energies; the "
                "energies come from different checkpoints, score all candidates again"
            )
        pools.append(sampled)
        greedy.append([each for each in own if each.candidate.is_greedy])
    return PoolTable.of(pools, problems=answered, labels=labels, scores=scores, greedy=greedy)


def default_policy(context: StageContext) -> Policy:
    """The recipe's own policy, before calibration. Has one pass if a recorded pool has no replies to feedback."""
    policy = policy_of(context.recipe.decision, context.task.defaults, context.recipe.generators)
    is_asked = context.passes.regenerator.kind != "recorded"
    return policy if is_asked or context.recorded_replies is not None else policy.replaced(max_passes=1)


def calibrated_policy(context: StageContext) -> Policy:
    """The policy of the calibration stage."""
    return Policy.from_json(context.run.needed_object("calibration", "policy.json"))


def decision_fit(context: StageContext) -> dict[str, Any] | None:
    """The calibration's fit of the posterior; None without one."""
    if not context.run.exists("calibration", "decision.json"):
        return None
    return context.run.needed_object("calibration", "decision.json")


def fit_in_force(context: StageContext) -> dict[str, Any] | None:
    """The calibration's fit if its policy is in force. None, with a warning, if another file replaced that policy: its
    thresholds and guarantee do not follow from the fit."""
    fit, version = decision_fit(context), policy_id(calibrated_policy(context))
    if fit is None or fit["policy"] == version:
        return fit
    log.warning(
        "policy %s is in force, but calibration fitted %s: the report omits confidence and guarantee; remove "
        "calibration/manifest.json to calibrate again",
        version,
        fit["policy"],
    )
    return None
