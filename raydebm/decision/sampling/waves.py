"""Sampling of a pass in waves: the order of its samples, its end, and the savings.

In:   a policy with ``waves``, the candidates of earlier passes, and the samples of the whole pass.
Out:  the part of the pass to sample, and a ``PassStop`` with the reason for its end.
Independent of: the source of samples. A source passes its requests to ``PassWaves.run``; a replay cuts a recorded pass
with ``cut_pass``. Both apply the same ``PassRule`` to the same candidates, so a replay reproduces the decision.

Order: every generator's first sample, then every generator's second, and so on, as under a budget. Each wave
therefore mixes generators: the rule assumes exchangeable samples, and repetitions by one generator are weak evidence.
Free generators are first, by skill. Then follow the others, by right answers per US dollar (skill in the fitted
posterior, price of completion tokens). Generators of unknown skill or price are last, in configured order.

A pass ends

1. as soon as an exact constraint proves the selected answer;
2. from the first wave on, if it is ``settled``: with ``rule="posterior"`` by the probabilities and ``tau_accept`` (and
   only if the profile selects the settled answer), else by the votes.

If answers do not compete (programs, plans: the posterior's ``competition`` is ``independent``), votes settle nothing,
and only a proof ends a pass early.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from raydebm.decision.policy import Policy
from raydebm.decision.rules import PoolDecision, decide_pool
from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.stopping.settled import Stop, StopReason, settled, wave_ends
from raydebm.decision.table import clusters_of
from raydebm.records import Candidate, GenerationRequest, PassStop, ScoredCandidate

S = TypeVar("S", GenerationRequest, Candidate)
"""A sample: a request for a candidate, or a recorded candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """One completed wave."""

    pass_index: int
    number: int
    """Number of the wave in its pass, from 1."""
    num_planned: int
    """Samples of the whole pass."""
    num_samples: int
    """Samples of the pass so far."""
    num_cancelled: int
    decision: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRule:
    """Rule for ending a pass before all of it is sampled."""

    policy: Policy
    earlier: tuple[ScoredCandidate, ...]
    """Candidates of earlier passes, which are included in the decision."""
    num_planned: int
    """Samples of the whole pass."""

    def decide(self, judged: Sequence[ScoredCandidate]) -> Stop:
        """Judge the pass so far.

        Args:
            judged: candidates of the pass in any order, including failed ones.
        """
        pool, remaining = (*self.earlier, *judged), self.num_planned - len(judged)
        decided = decide_pool(pool, passes_left=0, policy=self.policy)
        if decided.best is not None and decided.best.report.proof:
            return Stop(StopReason.ACCEPT, f"an exact constraint proves the answer after {len(pool)} samples")
        if remaining <= 0:
            return Stop(StopReason.BUDGET, f"all {self.num_planned} samples of the pass were taken")
        if len(judged) < (self.policy.waves or (1,))[0]:
            return Stop(None, "the first wave is not complete")
        posterior = self.policy.posterior
        if posterior is not None and posterior.competition == "independent":
            return Stop(None, "answers that do not compete are sampled to the end")
        return self._settled(pool, remaining, decided)

    def _settled(self, pool: Sequence[ScoredCandidate], remaining: int, decided: PoolDecision) -> Stop:
        policy, by_posterior = self.policy, self.policy.rule == "posterior"
        tau = policy.tau_accept if policy.tau_settled is None else policy.tau_settled
        votes = {cluster.key: len(cluster.rows) for cluster in clusters_of(pool)}
        known = {belief.cluster.key: belief.probability for belief in decided.beliefs}
        stop = settled(
            votes,
            unanswered=len(pool) - sum(votes.values()),
            remaining=remaining,
            probabilities=known if by_posterior else None,
            tau_accept=tau if by_posterior else 0.0,
        )
        selected = None if decided.best is None else decided.best.report.vote_key
        if by_posterior and stop.reason is StopReason.ACCEPT and stop.leader != selected:
            return replace(stop, reason=None)
        return stop


# ---- order ---------------------------------------------------------------------------------------------------------


def in_turns(samples: Sequence[S], policy: Policy) -> list[S]:
    """Samples of a pass in wave order (see the module docstring)."""
    names = generator_order(dict.fromkeys(sample.generator for sample in samples), policy)
    rank = {name: place for place, name in enumerate(names)}
    return sorted(samples, key=lambda sample: (sample.sample_index, rank[sample.generator]))


def generator_order(names: Iterable[str], policy: Policy) -> list[str]:
    """Generators in wave order (see the module docstring)."""
    authors = {} if policy.posterior is None else policy.posterior.reference.authors

    def rank(name: str) -> tuple[int, float]:
        if name not in authors or name not in policy.prices:
            return (2, 0.0)
        skill, price = 1 / (1 + math.exp(-authors[name].skill)), policy.prices[name]
        return (0, -skill) if price == 0 else (1, -skill / price)

    return sorted(names, key=rank)


# ---- sampling ------------------------------------------------------------------------------------------------------


class Arrivals(Protocol):
    """Candidates of a pass that have arrived so far."""

    news: asyncio.Event
    """Set whenever a candidate arrives or is judged."""

    def has(self, candidate_id: str) -> bool:
        """Whether this candidate has arrived."""
        ...

    def judged(self) -> tuple[ScoredCandidate, ...] | None:
        """All candidates that have arrived. None while one of them is not yet checked and scored."""
        ...

    def close(self) -> None:
        """Accept no further candidates."""
        ...


class PassWaves:
    """Waves of one pass. A source passes its samples to ``run``. Then ``stop`` returns the reason for the end."""

    def __init__(
        self,
        policy: Policy,
        *,
        pass_index: int,
        earlier: Sequence[ScoredCandidate] = (),
        deadline: Deadline | None = None,
        on_wave: Callable[[Wave], None] = lambda wave: None,
    ) -> None:
        """Prepare the waves of one pass.

        Args:
            policy: policy with ``waves``.
            pass_index: number of the pass, from 1.
            earlier: candidates of earlier passes.
            deadline: deadline of the problem. After its ``sample_until_s`` no wave but the first begins.
            on_wave: callback after each wave.
        """
        self.cancelled: frozenset[str] = frozenset()
        """Candidate ids of the requests that were cancelled when the other samples settled the pass."""
        self._policy, self._pass_index, self._earlier = policy, pass_index, tuple(earlier)
        self._deadline, self._on_wave = deadline, on_wave
        self._arrivals: Arrivals | None = None
        self._decision: Stop | None = None
        self._num_planned: int | None = None

    def watch(self, arrivals: Arrivals) -> None:
        """Judge waves by these candidates."""
        self._arrivals = arrivals

    async def run(self, samples: Sequence[S], draw: Callable[[list[S]], Awaitable[None]]) -> None:
        """Sample wave after wave until the pass ends.

        Args:
            samples: all samples that the pass may take, in any order.
            draw: function that requests one wave, announces each candidate (``one_pass.Arrived``), and returns when all
                have arrived. The call is cancelled as soon as the candidates so far settle the pass.

        Raises:
            Exception: an error of ``draw``; the pass ends there.
        """
        ordered = in_turns(samples, self._policy)
        self._num_planned, begin = len(ordered), 0
        pass_rule = PassRule(policy=self._policy, earlier=self._earlier, num_planned=len(ordered))
        if not ordered:
            self._decision = Stop(StopReason.BUDGET, "there is nothing to sample")
        for number, end in enumerate(wave_ends(self._policy.waves or (len(ordered),), len(ordered)), start=1):
            if begin and self._deadline is not None and now_s() >= self._deadline.sample_until_s:
                words = f"the deadline of {self._deadline.total_ms:g} ms leaves no time for wave {number}"
                self._decision = Stop(StopReason.BUDGET, words)
                return
            try:
                self._decision = await self._wave(ordered[begin:end], draw, pass_rule, number)
            except Exception as error:
                self._decision = Stop(StopReason.BUDGET, f"wave {number} could not be sampled ({error})")
                raise
            if self._decision.reason is not None:
                return
            begin = end

    async def _wave(
        self, samples: list[S], draw: Callable[[list[S]], Awaitable[None]], pass_rule: PassRule, number: int
    ) -> Stop:
        arrivals = self._arrivals
        if arrivals is None:
            raise RuntimeError("PassWaves.watch must come before PassWaves.run")
        drawing = asyncio.ensure_future(draw(samples))
        drawing.add_done_callback(lambda _: arrivals.news.set())
        try:
            decision, judged = await _decided(arrivals, drawing, samples, pass_rule)
            if decision.reason is not None:
                arrivals.close()
                self.cancelled = frozenset(s.candidate_id for s in samples if not arrivals.has(s.candidate_id))
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
        self._on_wave(
            Wave(
                pass_index=self._pass_index,
                number=number,
                num_planned=pass_rule.num_planned,
                num_samples=judged,
                num_cancelled=len(self.cancelled),
                decision=decision,
            )
        )
        return decision

    def stop(self, drawn: Sequence[ScoredCandidate]) -> PassStop | None:
        """Reason for the end of the pass. None if the source sampled it without waves.

        Args:
            drawn: candidates of the pass.
        """
        if self._num_planned is None:
            return None
        reason, words = StopReason.BUDGET, "the deadline ended the pass"  # nothing else ends a pass from outside
        if self._decision is not None and self._decision.reason is not None:
            reason, words = self._decision.reason, self._decision.words
        stop = PassStop(
            reason=reason.value,
            words=words,
            num_planned=self._num_planned,
            num_samples=len(drawn),
            num_cancelled=len(self.cancelled),
        )
        tokens = [(scored.candidate.prompt_tokens, scored.candidate.completion_tokens) for scored in drawn]
        known = [(prompt or 0) + (answer or 0) for prompt, answer in tokens if (prompt, answer) != (None, None)]
        return replace(stop, tokens_saved=round(stop.num_saved * (sum(known) / len(known)))) if known else stop


async def _decided(
    arrivals: Arrivals, drawing: "asyncio.Future[None]", samples: Sequence[S], pass_rule: PassRule
) -> tuple[Stop, int]:
    """Decision about a wave and the number of samples it is based on.

    Waits until the wave is complete or its candidates so far end the pass. Decides only while every candidate that has
    arrived is checked and scored, so that the record has exactly the candidates that were judged.
    """
    seen = -1
    while True:
        judged = arrivals.judged()
        if drawing.done():
            drawing.result()
        if judged is not None and (drawing.done() or len(judged) > seen):
            seen = len(judged)
            decision = pass_rule.decide(judged)
            is_waiting = any(not arrivals.has(sample.candidate_id) for sample in samples)
            if drawing.done() or (is_waiting and decision.reason is not None):
                return decision, seen
        arrivals.news.clear()
        await arrivals.news.wait()


# ---- replaying -----------------------------------------------------------------------------------------------------


def cut_pass(
    recorded: Sequence[ScoredCandidate],
    policy: Policy,
    *,
    earlier: Sequence[ScoredCandidate] = (),
    num_planned: int | None = None,
) -> tuple[tuple[ScoredCandidate, ...], StopReason | None]:
    """Sample a recorded pass again in waves.

    Returns the sampled part in the order of the record, and the reason for its end. The reason is None if the record
    lacks the next wave.

    Args:
        recorded: candidates of the pass.
        policy: policy with ``waves``.
        earlier: candidates of earlier passes.
        num_planned: samples of the whole pass. Default: the number recorded.
    """
    total = len(recorded) if num_planned is None else num_planned
    pass_rule = PassRule(policy=policy, earlier=tuple(earlier), num_planned=total)
    place = {scored.candidate.candidate_id: index for index, scored in enumerate(recorded)}
    by_id = {scored.candidate.candidate_id: scored for scored in recorded}
    ordered = [by_id[candidate.candidate_id] for candidate in in_turns([s.candidate for s in recorded], policy)]
    reason: StopReason | None = StopReason.BUDGET
    judged: list[ScoredCandidate] = []
    for end in wave_ends(policy.waves or (total,), total):
        judged = ordered[:end]
        reason = pass_rule.decide(judged).reason
        if reason is not None or end > len(ordered):
            break
    return tuple(sorted(judged, key=lambda scored: place[scored.candidate.candidate_id])), reason
