"""Pools as evaluation sees them: every candidate of a problem, its label, report and energies, as arrays."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

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
"""What other scorers (reward models, judges) say: name -> candidate id -> score, higher is better.

None, NaN or no entry: the candidate was not scored.
"""

SHUFFLE_SEED = 42
"""Seed of the candidates' order in a pool, so that the order does not reveal their generators."""


@dataclass(slots=True)
class RecordedPools:
    """Candidates with what is known of them, by candidate id. ``energies`` holds None where scoring failed."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    energies: dict[str, Energies | None] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the baselines that are evidence say, by name."""

    def add_scores(self, scores: Scores) -> None:
        """Add what baselines say about the candidates that are here."""
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
    """Violation score in [0, 1], lower is better; NaN where the task or the candidate has none."""
    members: Floats
    """Energies, shape (N + G, K); a row of NaN where nothing was scored. K = 0 without a scorer."""
    penalty: Floats
    """E_constraint; +inf where the candidate did not parse."""
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """Higher is better; NaN where that scorer has no score. Every pool of a run has the same names."""
    dimensions: Mapping[str, Floats] = field(default_factory=dict)
    """Parts of the violation score, as the labels give them, lower is better; NaN where unknown."""
    failed: tuple[ScoredCandidate, ...] = ()
    """Requests of the pool that brought no text: no row of the arrays. They are counted and never chosen from."""

    def as_scored(self, reasoning: Reasoning) -> "EvaluatedPool":
        """The pool whose candidates' texts are what a scorer reads (``Candidate.as_scored``)."""
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
        """The N + G candidates in the order of the arrays' rows."""
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

    Only first-pass candidates belong to a pool. They are shuffled (the paper does so, seed 42), from an order that does
    not depend on the tables', so that position says nothing about the generator. Candidates without a label are kept
    as unlabeled, candidates without a report or energies as unselectable by whatever needs these; failed requests are
    set apart.

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
    """The same pool as if no scorer had seen it: out of bag, pools have different numbers of energies."""
    return replace(pool, members=np.empty((len(pool.members), 0)))


def with_trained_labels(pools: Iterable[EvaluatedPool], positive_frac: float = 0.25) -> list[EvaluatedPool]:
    """The same pools, labelled as pairs are made (``pairs.build_pairs``). Where a task has a violation score, a
    candidate is correct when its score is among the lowest ``positive_frac`` of its pool's.

    That is what the scorer learnt to tell apart, and what its energies are judged by; the strict verdict (no violation
    at all) may be too rare for that. Scores equal to the limit all count. Other pools stay as they are.
    """
    return [
        replace(
            pool,
            correct=trained_labels(
                pool.violation[None, :], pool.correct[None, :], positive_frac, among=pool.in_pool[None, :]
            )[0],
        )
        for pool in pools
    ]


def lowest_share(violation: Floats, share: float, *, among: Bools | None = None) -> Bools:
    """(P, N): the violation score is among the lowest share of the pool's; those equal to the limit all count.

    Args:
        violation: (P, N); NaN without one.
        share: in (0, 1]; at least one candidate counts.
        among: (P, N), the candidates whose scores set the limit; None: all.
    """
    counted = ~np.isnan(violation) if among is None else among & ~np.isnan(violation)
    last = np.maximum(np.round(share * counted.sum(axis=1)).astype(int), 1) - 1
    limit = np.sort(np.where(counted, violation, math.inf), axis=1)[np.arange(len(violation)), last]
    return np.asarray(np.isfinite(limit)[:, None] & (violation <= limit[:, None]))


def trained_labels(violation: Floats, correct: Floats, positive_frac: float, *, among: Bools | None = None) -> Floats:
    """(P, N): labels as pairs are made, of pools that have violation scores; ``correct`` for the others."""
    known = ~np.isnan(violation)
    best = np.where(known, lowest_share(violation, positive_frac, among=among).astype(np.float64), math.nan)
    return np.where((known if among is None else known & among).any(axis=1, keepdims=True), best, correct)


def common_problems(groups: Sequence[Sequence[EvaluatedPool]]) -> list[str]:
    """Ids of the problems that every group of pools has, in the first one's order."""
    others = [{pool.problem.problem_id for pool in pools} for pools in groups[1:]]
    ids = [pool.problem.problem_id for pool in groups[0]]
    return [problem_id for problem_id in ids if all(problem_id in other for other in others)]


def of_problems(pools: Sequence[EvaluatedPool], problem_ids: Sequence[str]) -> list[EvaluatedPool]:
    """The pools of these problems, in their order."""
    by_id = {pool.problem.problem_id: pool for pool in pools}
    return [by_id[problem_id] for problem_id in problem_ids]


def restricted(pool: EvaluatedPool, candidate_ids: Set[str]) -> EvaluatedPool:
    """The same pool with some of its candidates; greedy ones stay."""
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
    """One pool, in the order given. Candidates without text are no part of it (``EvaluatedPool.failed``)."""
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
    """NaN without one."""
    return math.nan if label is None or label.violation_score is None else label.violation_score
