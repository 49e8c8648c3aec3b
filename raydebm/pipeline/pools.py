"""Pools of a run's split: candidates of all passes with their labels, checks, energies and scores."""

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raydebm.decision.policy import Policy, policy_id, policy_of
from raydebm.decision.sampling.checks import unchecked
from raydebm.decision.table import SHUFFLE_SEED, PoolTable, Scores
from raydebm.errors import PoolError
from raydebm.identity import seed_for
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.scores import evidence_of, scores_of
from raydebm.records import Candidate, ConstraintReport, Energies, Label, Problem, ScoredCandidate
from raydebm.run.directory import SCORES_FOLDER

if TYPE_CHECKING:
    from raydebm.evaluation.results.evaluation import TextsRead

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecordedPools:
    """Recorded data by candidate id. ``energies`` is None where scoring failed."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    energies: dict[str, Energies | None] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Scores by name of the baseline, for baselines that are evidence."""


def recorded_pools(context: StageContext, *splits: str) -> RecordedPools:
    """All recorded candidates of some splits, from all passes, with labels, checks and energies.

    Raises:
        PoolError: a table is missing or unreadable.
    """
    run, pools = context.run, RecordedPools()
    problem_ids = frozenset(problem_id for split in splits for problem_id in context.splits()[split])
    first = ("candidates", "labels", "energies")
    later = [stage for split in splits for stage in later_passes(context, split)]
    for source, labelled, scored in (first, *((stage, stage, stage) for stage in later)):
        ids = {row.candidate_id: row for row in run.candidates(source) if row.problem_id in problem_ids}
        pools.candidates |= ids
        pools.reports |= {row.candidate_id: row for row in run.reports(labelled) if row.candidate_id in ids}
        pools.labels |= {row.candidate_id: row for row in run.labels(labelled) if row.candidate_id in ids}
        pools.energies |= {row.candidate_id: row.energies for row in run.energies(scored) if row.candidate_id in ids}
    for folder in (SCORES_FOLDER, *(f"{stage}/{SCORES_FOLDER}" for stage in later)):
        for name, by_id in evidence_of(context.recipe, run, folder).items():
            for candidate_id, score in by_id.items():
                if candidate_id in pools.candidates and score is not None:
                    pools.scores.setdefault(candidate_id, {})[name] = score
    return pools


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


def evaluated_pools(context: StageContext, *splits: str) -> PoolTable:
    """The scored pools of some splits, in this order, with the baseline scores so far."""
    problems = [problem for split in splits for problem in context.problems_of(split)]
    return assembled(problems, recorded_pools(context, *splits), scores=scores_of(context))


def assembled(problems: Iterable[Problem], recorded: RecordedPools, *, scores: Scores | None = None) -> PoolTable:
    """Join a run's tables into one table with a pool per problem, in the order of the problems.

    Only first-pass candidates belong to a pool. They are shuffled from an order independent of the tables' (seed 42 as
    in the paper), so that position does not reveal the generator. Candidates without a label are unlabelled, and
    candidates without a report or energies cannot be selected by rules that need these.

    Raises:
        PoolError: no problem has any candidate, or candidates of a problem have different numbers of energies.
    """
    problems = list(problems)
    kinds = {problem.problem_id: problem.kind for problem in problems}
    scored: dict[str, list[ScoredCandidate]] = {}
    for name, candidate in recorded.candidates.items():
        if candidate.pass_index == 1:
            scored.setdefault(candidate.problem_id, []).append(
                ScoredCandidate(
                    candidate=candidate,
                    report=recorded.reports.get(name) or unchecked(name, "no constraint report was recorded"),
                    energies=recorded.energies.get(name),
                    scores=recorded.scores.get(name, {}),
                    kind=kinds.get(candidate.problem_id, ""),
                )
            )
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
    return PoolTable.of(pools, problems=answered, labels=recorded.labels, scores=scores, greedy=greedy)


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
