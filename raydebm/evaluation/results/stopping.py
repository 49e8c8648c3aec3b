"""Replays of stopping rules over recorded answers: what each rule would have spent, and what it would have answered.

Every rule sees the same random orders of the same recorded answers, and is compared with the whole budget in that very
order, so that differences are paired. A rule sees votes and nothing else, so each distinct state (votes in descending
order, samples without an answer, samples drawn, whether the last wave was unanimous) is judged once: thousands of
orders cost about as much as one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.decision.stopping import (
    AnswerPosterior,
    SamplingPlan,
    SamplingState,
    StopDecision,
    StoppingRule,
    StopReason,
)
from raydebm.decision.stopping.published_rules import FixedBudgetRule
from raydebm.errors import PoolError
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PosteriorOf = Callable[[SamplingState], AnswerPosterior]
"""Posterior of a state whose answers are named by their rank ("0" has most votes)."""
_State = tuple[int, int, int, bool, tuple[int, ...]]
"""Budget, samples drawn, samples without an answer, whether the last wave was unanimous, votes in descending order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedAnswers:
    """The recorded answers of one author (or one set of authors) to one problem.

    Raises:
        PoolError: no answers, or columns of different lengths.
    """

    problem_id: str
    group: str
    """Who answered; pools of one problem by several groups are resampled together."""
    answers: tuple[str | None, ...]
    """Vote keys; None where a sample has no answer."""
    correct: Floats
    """Per answer: 1, 0, or NaN for unlabeled."""
    tokens: Floats
    """Per answer, >= 0."""

    def __post_init__(self) -> None:
        lengths = {len(self.answers), len(self.correct), len(self.tokens)}
        if len(lengths) > 1 or not self.answers:
            raise PoolError(
                f"problem {self.problem_id!r} of {self.group!r} needs as many labels and token counts as answers, "
                f"and at least one; got {len(self.answers)}, {len(self.correct)} and {len(self.tokens)}"
            )

    def value_by_answer(self) -> dict[str, float]:
        """What choosing each answer is worth: the mean label of the samples that gave it; NaN without any label."""
        sums: dict[str, list[float]] = {}
        for answer, label in zip(self.answers, self.correct.tolist(), strict=True):
            if answer is not None:
                sums.setdefault(answer, []).extend([] if math.isnan(label) else [label])
        return {answer: sum(labels) / len(labels) if labels else math.nan for answer, labels in sums.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectories:
    """The states that a schedule of waves passes through, for every pool and every random order.

    T = pools x replays (replays of a pool stand together), S = steps of the longest schedule; after the last wave of a
    shorter one its last column is repeated.
    """

    pools: tuple[RecordedAnswers, ...]
    num_replays: int
    states: tuple[SamplingState, ...]
    """Made once for all rules; answers are named by their rank."""
    state_index: Ints
    """(T, S)"""
    value: Floats
    """(T, S): expected correctness of the majority answer, ties shared; 0 without an answer."""
    tokens: Floats
    """(T, S): spent up to that step."""
    samples: Ints
    """(T, S)"""


def trajectories(
    pools: Sequence[RecordedAnswers], *, waves: Sequence[int], max_samples: int, num_replays: int, seed: int
) -> Trajectories:
    """``all_trajectories`` of one schedule."""
    return all_trajectories(pools, (waves,), max_samples=max_samples, num_replays=num_replays, seed=seed)[0]


def all_trajectories(
    pools: Sequence[RecordedAnswers],
    schedules: Sequence[Sequence[int]],
    *,
    max_samples: int,
    num_replays: int,
    seed: int,
) -> list[Trajectories]:
    """Play the recorded answers in random order, wave by wave, by several schedules of waves.

    Orders depend on the seed, the problem, the group and the number of the replay: they are the same for every
    schedule and every rule. The budget of a pool is ``max_samples`` or all its answers, whichever is less.

    Raises:
        PoolError: there is no pool.
    """
    if not pools:
        raise PoolError("a replay of stopping rules needs at least one pool of recorded answers")
    numbers: list[dict[_State, int]] = [{} for _ in schedules]
    parts: list[list[_Columns]] = [[] for _ in schedules]
    for pool in pools:
        budget = min(max_samples, len(pool.answers))
        order = np.random.default_rng(seed_for(seed, pool.problem_id, pool.group))
        drawn = order.permuted(np.tile(np.arange(len(pool.answers)), (num_replays, 1)), axis=1)[:, :budget]
        played = _Played.of(pool, drawn)
        for waves, known, columns in zip(schedules, numbers, parts, strict=True):
            columns.append(played.at(np.array(_plan(waves, budget).ends()), known))
    return [_joined(pools, num_replays, known, columns) for known, columns in zip(numbers, parts, strict=True)]


_Columns = tuple[Ints, Floats, Floats, Ints]
"""(R, S) each: state numbers, values, tokens and samples."""


def _joined(
    pools: Sequence[RecordedAnswers], num_replays: int, numbers: Mapping[_State, int], parts: Sequence[_Columns]
) -> Trajectories:
    most = max(part[0].shape[1] for part in parts)

    def column(index: int) -> Any:
        arrays = [part[index] for part in parts]
        return np.concatenate([np.pad(rows, ((0, 0), (0, most - rows.shape[1])), mode="edge") for rows in arrays])

    return Trajectories(
        pools=tuple(pools),
        num_replays=num_replays,
        states=tuple(_sampling_state(state) for state in numbers),
        state_index=column(0),
        value=column(1),
        tokens=column(2),
        samples=column(3),
    )


def _plan(waves: Sequence[int], max_samples: int) -> SamplingPlan:
    return SamplingPlan(rule=FixedBudgetRule(), waves=tuple(waves), max_samples=max_samples)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Played:
    """One pool in R orders of m samples each. K is the number of distinct answers."""

    codes: Ints
    """(R, m): the answers drawn; -1 without one."""
    ranked: Ints
    """(R, m, K): votes after each sample, in descending order."""
    value: Floats
    """(R, m): of the majority answer."""
    tokens: Floats
    """(R, m): spent so far."""

    @classmethod
    def of(cls, pool: RecordedAnswers, drawn: Ints) -> "_Played":
        """
        Args:
            drawn: (R, m), places of the answers drawn.
        """
        worth = pool.value_by_answer()
        place = {answer: index for index, answer in enumerate(worth)}
        codes = np.array([-1 if answer is None else place[answer] for answer in pool.answers])[drawn]
        votes = (codes[:, :, None] == np.arange(len(worth))).cumsum(axis=1, dtype=np.int64)
        return cls(
            codes=codes,
            ranked=-np.sort(-votes, axis=2),
            value=_majority_value(votes, np.array(list(worth.values()))),
            tokens=pool.tokens[drawn].cumsum(axis=1),
        )

    def at(self, ends: Ints, numbers: dict[_State, int]) -> _Columns:
        """The states after each wave. New states get numbers."""
        starts = np.concatenate([[0], ends[:-1]])
        first = np.minimum.reduceat(self.codes, starts, axis=1)
        unanimous = (first == np.maximum.reduceat(self.codes, starts, axis=1)) & (first >= 0)
        samples = np.broadcast_to(ends, unanimous.shape)
        rows = np.concatenate([samples[:, :, None], unanimous[:, :, None], self.ranked[:, ends - 1]], axis=2)
        distinct, inverse = np.unique(rows.reshape(-1, rows.shape[2]), axis=0, return_inverse=True)
        places = np.array([_number(row, int(ends[-1]), numbers) for row in distinct.tolist()], dtype=np.int64)
        return (
            places[inverse.reshape(-1)].reshape(unanimous.shape),
            self.value[:, ends - 1],
            self.tokens[:, ends - 1],
            samples,
        )


def _number(row: Sequence[int], budget: int, numbers: dict[_State, int]) -> int:
    """The number of the state with these samples, unanimity and votes."""
    ranked = tuple(count for count in row[2:] if count)
    return numbers.setdefault((budget, row[0], row[0] - sum(ranked), bool(row[1]), ranked), len(numbers))


def _majority_value(votes: Ints, worth: Floats) -> Floats:
    """(R, S, K), (K,) -> (R, S): mean worth of the answers with most votes; 0 where there is no answer."""
    if not len(worth):
        return np.zeros(votes.shape[:2])
    leading = (votes == votes.max(axis=2, keepdims=True)) & (votes > 0)
    known = leading & ~np.isnan(worth)
    sums = np.where(known, np.nan_to_num(worth), 0.0).sum(axis=2)
    means = np.divide(sums, known.sum(axis=2), where=known.any(axis=2), out=np.full(sums.shape, math.nan))
    values: Floats = np.where(leading.any(axis=2), means, 0.0)
    return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayedStopping:
    """What one rule did, as means per problem over groups and replays; shape (P,) in the order of ``problem_ids``."""

    problem_ids: tuple[str, ...]
    correct: Floats
    tokens: Floats
    samples: Floats
    full_correct: Floats
    """With the whole budget in the same orders."""
    full_tokens: Floats
    full_samples: Floats
    reasons: Mapping[StopReason, Floats]
    """Share of the replays that ended so."""

    def only(self, problem_ids: Sequence[str]) -> "ReplayedStopping":
        """The same for some of the problems, in the order given."""
        place = {problem_id: index for index, problem_id in enumerate(self.problem_ids)}
        return self._at([place[problem_id] for problem_id in problem_ids], tuple(problem_ids))

    def _at(self, rows: Sequence[int], problem_ids: tuple[str, ...]) -> "ReplayedStopping":
        return ReplayedStopping(
            problem_ids=problem_ids,
            correct=self.correct[rows],
            tokens=self.tokens[rows],
            samples=self.samples[rows],
            full_correct=self.full_correct[rows],
            full_tokens=self.full_tokens[rows],
            full_samples=self.full_samples[rows],
            reasons={reason: shares[rows] for reason, shares in self.reasons.items()},
        )


def replay(played: Trajectories, rule: StoppingRule, *, posterior: PosteriorOf | None = None) -> ReplayedStopping:
    """Apply a rule after every wave of the trajectories.

    Args:
        played: states, values and costs of one schedule.
        rule: what decides; a ``price`` of it counts samples, because a state has no tokens.
        posterior: probabilities of a state's answers, for rules that use them.
    """
    codes, judged = np.full(len(played.states), -1), np.zeros(len(played.states), dtype=bool)
    going = np.arange(len(played.state_index))
    for step in range(played.state_index.shape[1]):
        here = played.state_index[going, step]
        for number in np.unique(here[~judged[here]]).tolist():  # what no trajectory reaches costs nothing
            codes[number] = _code(_judge(played.states[number], rule, posterior).reason)
        judged[here] = True
        going = going[codes[here] < 0]
    return _outcome(played, codes)


def lead_probabilities(played: Trajectories, rule: StoppingRule, *, posterior: PosteriorOf | None = None) -> Floats:
    """What a rule states as ``lead_probability`` of each state, NaN where it states none; for ``replay_threshold``."""
    decisions = [_judge(state, rule, posterior) for state in played.states]
    stated = [decision.lead_probability for decision in decisions]
    return np.array([math.nan if probability is None else probability for probability in stated])


def replay_threshold(played: Trajectories, leads: Floats, threshold: float) -> ReplayedStopping:
    """Stop where the lead probability of a state is at least this: a sweep over thresholds judges each state once."""
    spent = np.array([state.remaining == 0 for state in played.states])
    accepted = np.nan_to_num(leads, nan=-1.0) >= threshold
    codes = np.where(spent, _code(StopReason.BUDGET), np.where(accepted, _code(StopReason.ACCEPT), -1))
    return _outcome(played, codes)


def _code(reason: StopReason | None) -> int:
    return -1 if reason is None else list(StopReason).index(reason)


def _outcome(played: Trajectories, code_of_state: Ints) -> ReplayedStopping:
    """Stop every trajectory at its first state with a code >= 0."""
    code = code_of_state[played.state_index]
    step = (code >= 0).argmax(axis=1)
    rows = np.arange(len(step))
    code = code[rows, step]
    problem_ids = tuple(dict.fromkeys(pool.problem_id for pool in played.pools))
    place = {problem_id: index for index, problem_id in enumerate(problem_ids)}
    problem = np.repeat([place[pool.problem_id] for pool in played.pools], played.num_replays)

    def mean(values: Floats) -> Floats:
        known = ~np.isnan(values)
        counts = np.bincount(problem[known], minlength=len(problem_ids))
        sums = np.bincount(problem[known], weights=values[known], minlength=len(problem_ids))
        means: Floats = np.divide(sums, counts, where=counts > 0, out=np.full(len(problem_ids), math.nan))
        return means

    return ReplayedStopping(
        problem_ids=problem_ids,
        correct=mean(played.value[rows, step]),
        tokens=mean(played.tokens[rows, step]),
        samples=mean(played.samples[rows, step].astype(np.float64)),
        full_correct=mean(played.value[:, -1]),
        full_tokens=mean(played.tokens[:, -1]),
        full_samples=mean(played.samples[:, -1].astype(np.float64)),
        reasons={reason: mean((code == index).astype(np.float64)) for index, reason in enumerate(StopReason)},
    )


def _sampling_state(state: _State) -> SamplingState:
    budget, drawn, unanswered, unanimous, ranked = state
    return SamplingState(
        max_samples=budget,
        votes={str(rank): float(count) for rank, count in enumerate(ranked)},
        num_samples=drawn,
        num_unanswered=unanswered,
        last_wave=("0",) if unanimous else ("0", None),
        tokens=drawn,
    )


def _judge(state: SamplingState, rule: StoppingRule, posterior: PosteriorOf | None) -> StopDecision:
    known = None if posterior is None else posterior(state)
    return SamplingPlan(rule=rule, waves=(1,), max_samples=state.max_samples).decide(state, known)


def joined(parts: Sequence[ReplayedStopping]) -> ReplayedStopping:
    """Replays of disjoint problems as one, such as the test halves of a cross-fit."""
    return ReplayedStopping(
        problem_ids=tuple(problem_id for part in parts for problem_id in part.problem_ids),
        correct=np.concatenate([part.correct for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        samples=np.concatenate([part.samples for part in parts]),
        full_correct=np.concatenate([part.full_correct for part in parts]),
        full_tokens=np.concatenate([part.full_tokens for part in parts]),
        full_samples=np.concatenate([part.full_samples for part in parts]),
        reasons={reason: np.concatenate([part.reasons[reason] for part in parts]) for reason in StopReason},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRow:
    """What one stopping rule is worth; every interval resamples problems."""

    name: str
    accuracy: Estimate
    """Worth of the majority answer where the rule stopped."""
    difference: Estimate
    """Accuracy minus that of the whole budget, paired by problem and order."""
    mean_samples: Estimate
    sample_share: Estimate
    """Samples over samples of the whole budget."""
    token_share: Estimate
    reasons: dict[str, float]
    """Share of the replays by stop reason."""


def stopping_row(name: str, replayed: ReplayedStopping, bootstrap: Bootstrap) -> StoppingRow:
    """Estimates of one replayed rule; the bootstrap must be of as many problems."""
    return StoppingRow(
        name=name,
        accuracy=bootstrap.proportion(replayed.correct),
        difference=bootstrap.mean(replayed.correct - replayed.full_correct),
        mean_samples=bootstrap.mean(replayed.samples),
        sample_share=bootstrap.ratio(replayed.samples, replayed.full_samples),
        token_share=bootstrap.ratio(replayed.tokens, replayed.full_tokens),
        reasons={reason.value: float(np.nanmean(shares)) for reason, shares in replayed.reasons.items()},
    )
