"""Pools for evaluation: every candidate of a problem with its label, report and energies, as arrays."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from raydebm.config.pairs import POSITIVE_FRAC
from raydebm.decision.sampling.checks import unchecked
from raydebm.errors import PoolError
from raydebm.identity import seed_for
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Label,
    Problem,
    Reasoning,
    ScoredCandidate,
    Verdict,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

Scores = Mapping[str, Mapping[str, float | None]]
"""Scores of outside scorers (reward models, judges): name -> candidate id -> score, higher is better.

None, NaN or a missing entry: the candidate was not scored.
"""

SHUFFLE_SEED = 42
"""Seed of the candidates' order in a pool, which must not reveal their generators."""


@dataclass(slots=True)
class RecordedPools:
    """Recorded data by candidate id. ``energies`` is None where scoring failed."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    energies: dict[str, Energies | None] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Scores by name of the baseline, for baselines that are evidence."""

    def add_scores(self, scores: Scores) -> None:
        """Add baseline scores of the recorded candidates."""
        for name, by_id in scores.items():
            for candidate_id, score in by_id.items():
                if candidate_id in self.candidates and score is not None:
                    self.scores.setdefault(candidate_id, {})[name] = score


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluatedPool:
    """One problem's candidates: first the N of the pool in shuffled order, then the G greedy ones (a baseline).

    Arrays have N + G rows in that order.
    """

    problem: Problem
    candidates: tuple[ScoredCandidate, ...]
    """The N candidates that selectors choose from."""
    greedy: tuple[ScoredCandidate, ...]
    correct: Floats
    """1, 0, or NaN for unlabeled."""
    violation: Floats
    """Violation score in [0, 1], lower is better. NaN if the task or the candidate has none."""
    members: Floats
    """Energies, shape (N + G, K). NaN where nothing was scored. K = 0 without a scorer."""
    penalty: Floats
    """E_constraint; +inf where the candidate did not parse."""
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """Scores by outside scorer, higher is better, NaN if absent. Every pool of a run has the same names."""
    dimensions: Mapping[str, Floats] = field(default_factory=dict)
    """Parts of the violation score from the labels, lower is better. NaN if unknown."""
    failed: tuple[ScoredCandidate, ...] = ()
    """Requests without text. They are counted, are not rows of the arrays, and are never selected."""

    def as_scored(self, reasoning: Reasoning) -> "EvaluatedPool":
        """The pool with each text replaced by the scorer's input (``Candidate.as_scored``)."""
        if reasoning == "answer":
            return self
        candidates, greedy = (
            tuple(replace(scored, candidate=scored.candidate.as_scored(reasoning)) for scored in items)
            for items in (self.candidates, self.greedy)
        )
        return replace(self, candidates=candidates, greedy=greedy)

    @property
    def in_pool(self) -> Bools:
        """(N + G,): True for the N candidates that selectors choose from."""
        return np.arange(len(self.correct)) < len(self.candidates)

    @property
    def everything(self) -> tuple[ScoredCandidate, ...]:
        """The N + G candidates in row order."""
        return self.candidates + self.greedy

    @property
    def mu(self) -> Floats:
        """Ensemble mean; NaN where nothing was scored."""
        if self.members.shape[1] == 0:
            return np.full(len(self.members), math.nan)
        mean: Floats = self.members.mean(axis=1)
        return mean


def assemble_pools(
    problems: Iterable[Problem],
    recorded: RecordedPools,
    *,
    scores: Scores | None = None,
    shuffle_seed: int = SHUFFLE_SEED,
) -> list[EvaluatedPool]:
    """Join a run's tables into one pool per problem, in the order of the problems.

    Only first-pass candidates belong to a pool. They are shuffled from an order independent of the tables' (seed 42 as
    in the paper), so that position does not reveal the generator. Candidates without a label are unlabelled, candidates
    without a report or energies cannot be selected by rules that need these, and failed requests are listed separately.

    Raises:
        PoolError: no problem has any candidate.
    """
    scored_by_problem = _scored(recorded)
    pools = []
    for problem in problems:
        scored = scored_by_problem.get(problem.problem_id)
        if not scored:
            continue
        sampled = sorted(
            (scored_candidate for scored_candidate in scored if not scored_candidate.candidate.is_greedy),
            key=lambda scored_candidate: scored_candidate.candidate.candidate_id,
        )
        random.Random(seed_for(shuffle_seed, problem.problem_id)).shuffle(sampled)
        greedy = [scored_candidate for scored_candidate in scored if scored_candidate.candidate.is_greedy]
        pools.append(pool_of(problem, sampled, greedy=greedy, labels=recorded.labels, scores=scores or {}))
    if not pools:
        raise PoolError("evaluation found no candidate of any of the problems; run the generation stage first")
    return pools


def without_energies(pool: EvaluatedPool) -> EvaluatedPool:
    """The pool without energies. Out of bag, pools have different numbers of energies."""
    return replace(pool, members=np.empty((len(pool.members), 0)))


def with_trained_labels(pools: Iterable[EvaluatedPool]) -> list[EvaluatedPool]:
    """Pools with the labels used in training (``pairs.build_pairs``).

    If the task has violation scores, a candidate is correct if its score is in the lowest ``POSITIVE_FRAC`` of its
    pool; scores equal to the limit are included. The scorer was trained to separate these classes, so its energies are
    judged by them: candidates without any violation may be too rare. Other pools are unchanged.
    """
    return [
        replace(
            pool,
            correct=trained_labels(pool.violation[None, :], pool.correct[None, :], among=pool.in_pool[None, :])[0],
        )
        for pool in pools
    ]


def lowest_share(violation: Floats, share: float, *, among: Bools | None = None) -> Bools:
    """Whether the violation score is in the lowest share of the pool's, ties included. Shape (P, N).

    Args:
        violation: Violation scores, shape (P, N). NaN without one.
        share: Share in (0, 1]. At least one candidate is included.
        among: Candidates whose scores set the limit, shape (P, N). Default: all.
    """
    counted = ~np.isnan(violation) if among is None else among & ~np.isnan(violation)
    last = np.maximum(np.round(share * counted.sum(axis=1)).astype(int), 1) - 1
    limit = np.sort(np.where(counted, violation, math.inf), axis=1)[np.arange(len(violation)), last]
    return np.asarray(np.isfinite(limit)[:, None] & (violation <= limit[:, None]))


def trained_labels(violation: Floats, correct: Floats, *, among: Bools | None = None) -> Floats:
    """Labels used in training for pools with violation scores; ``correct`` for the others. Shape (P, N)."""
    known = ~np.isnan(violation)
    best = np.where(known, lowest_share(violation, POSITIVE_FRAC, among=among).astype(np.float64), math.nan)
    return np.where((known if among is None else known & among).any(axis=1, keepdims=True), best, correct)


def common_problems(groups: Sequence[Sequence[EvaluatedPool]]) -> list[str]:
    """Ids of the problems in all groups of pools, in the first group's order."""
    others = [{pool.problem.problem_id for pool in pools} for pools in groups[1:]]
    ids = [pool.problem.problem_id for pool in groups[0]]
    return [problem_id for problem_id in ids if all(problem_id in other for other in others)]


def of_problems(pools: Sequence[EvaluatedPool], problem_ids: Sequence[str]) -> list[EvaluatedPool]:
    """Pools of these problems, in order."""
    by_id = {pool.problem.problem_id: pool for pool in pools}
    return [by_id[problem_id] for problem_id in problem_ids]


def restricted(pool: EvaluatedPool, candidate_ids: Set[str]) -> EvaluatedPool:
    """The pool with some of its candidates and all greedy ones."""
    mask = np.array(
        [scored.candidate.candidate_id in candidate_ids for scored in pool.candidates] + [True] * len(pool.greedy),
        dtype=bool,
    )
    return replace(
        pool,
        candidates=tuple(scored for scored, stays in zip(pool.candidates, mask, strict=False) if stays),
        correct=pool.correct[mask],
        violation=pool.violation[mask],
        members=pool.members[mask],
        penalty=pool.penalty[mask],
        scores={name: values[mask] for name, values in pool.scores.items()},
        dimensions={name: values[mask] for name, values in pool.dimensions.items()},
    )


def pool_of(
    problem: Problem,
    candidates: Sequence[ScoredCandidate],
    *,
    greedy: Sequence[ScoredCandidate] = (),
    labels: Mapping[str, Label],
    scores: Scores | None = None,
) -> EvaluatedPool:
    """One pool in the given order. Candidates without text are in ``EvaluatedPool.failed``."""
    failed = tuple(scored for scored in candidates if scored.candidate.text is None)
    candidates = [scored for scored in candidates if scored.candidate.text is not None]
    everything = (*candidates, *greedy)
    ids = [scored.candidate.candidate_id for scored in everything]
    pool_labels = [labels.get(candidate_id) for candidate_id in ids]
    num_members = max((len(scored.energies.members) for scored in everything if scored.energies is not None), default=0)
    members = np.full((len(everything), num_members), math.nan)
    for row, scored in enumerate(everything):
        if scored.energies is not None:
            if len(scored.energies.members) != num_members:
                raise PoolError(
                    f"problem {problem.problem_id!r}: candidate {scored.candidate.candidate_id!r} has "
                    f"{len(scored.energies.members)} energies where others have {num_members}; "
                    "the energies come from different checkpoints, score all candidates again"
                )
            members[row] = scored.energies.members
    return EvaluatedPool(
        problem=problem,
        candidates=tuple(candidates),
        greedy=tuple(greedy),
        correct=np.array([correct_of(label) for label in pool_labels], dtype=np.float64),
        violation=np.array([violation_of(label) for label in pool_labels], dtype=np.float64),
        members=members,
        penalty=np.array([scored.report.penalty for scored in everything], dtype=np.float64),
        scores={name: _column(ids, by_id) for name, by_id in (scores or {}).items()},
        dimensions=_dimension_columns(pool_labels),
        failed=failed,
    )


def _column(ids: Sequence[str], by_id: Mapping[str, float | None]) -> Floats:
    values = (by_id.get(candidate_id) for candidate_id in ids)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _dimension_columns(labels: Sequence[Label | None]) -> dict[str, Floats]:
    rows = [{} if label is None else label.parts for label in labels]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows], dtype=np.float64) for name in names}


def _scored(recorded: RecordedPools) -> dict[str, list[ScoredCandidate]]:
    by_problem: dict[str, list[ScoredCandidate]] = {}
    for name, candidate in recorded.candidates.items():
        if candidate.pass_index == 1:
            scored = ScoredCandidate(
                candidate=candidate,
                report=recorded.reports.get(name) or unchecked(name, "no constraint report was recorded"),
                energies=recorded.energies.get(name),
                scores=recorded.scores.get(name, {}),
            )
            by_problem.setdefault(candidate.problem_id, []).append(scored)
    return by_problem


def correct_of(label: Label | None) -> float:
    """1, 0, or NaN for unlabeled."""
    if label is None or label.verdict is Verdict.UNLABELED:
        return math.nan
    return float(label.verdict is Verdict.CORRECT)


def violation_of(label: Label | None) -> float:
    """Violation score; NaN without one."""
    return math.nan if label is None or label.violation_score is None else label.violation_score
