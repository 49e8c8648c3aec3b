"""Waves over many problems: which requests are sent next, and which are never sent because an answer is settled.

In:   the requests of the first pass, and after each wave the gold-free reports of what came back.
Out:  the requests of the next wave.
Does not know: how requests are answered, energies, Ray, files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from raydebm.decision.stopping.settled import SettledRule
from raydebm.decision.stopping.state import SamplingPlan, SamplingState, StopReason
from raydebm.records import ConstraintReport, GenerationRequest


def sampling_order(requests: Iterable[GenerationRequest], prices: Mapping[str, float]) -> list[GenerationRequest]:
    """One problem's requests in the order in which waves take them: generators take turns, the cheapest first.

    Args:
        requests: of one problem.
        prices: of one candidate, by generator; generators of one price keep their order.
    """
    queues: dict[str, list[GenerationRequest]] = {}
    for request in requests:
        queues.setdefault(request.generator, []).append(request)
    by_price = sorted(queues, key=lambda name: prices[name])
    return [
        request for turn in zip_longest(*(queues[name] for name in by_price)) for request in turn if request is not None
    ]


@dataclass(slots=True)
class _Sampling:
    """One problem: its requests in order, and how far they were sent."""

    queue: list[GenerationRequest]
    plan: SamplingPlan
    state: SamplingState
    reason: StopReason | None = None

    @property
    def wave(self) -> list[GenerationRequest]:
        if self.reason is not None:
            return []
        start = self.state.num_samples
        return self.queue[start : start + self.plan.next_wave(self.state)]

    def record(self, reports: Mapping[str, ConstraintReport]) -> None:
        of_wave = [reports[request.candidate_id] for request in self.wave]
        self.state = self.state.after([_vote(report) for report in of_wave])
        proven = any(report.proof for report in of_wave)
        self.reason = StopReason.ACCEPT if proven else self.plan.decide(self.state).reason


def _vote(report: ConstraintReport) -> str | None:
    """A refuted answer is never given out, so that it must not settle anything."""
    return None if report.proof is False else report.vote_key


class WaveSchedule:
    """The waves of a first pass.

    A problem gets its next wave unless the vote is settled (``SettledRule`` on votes, its budget being all of the
    problem's requests) or an exact constraint has proven an answer. Samples that failed, that have no answer, or whose
    answer an exact constraint refutes, do not vote. Greedy requests are a baseline: they are sent with the first wave
    and neither vote nor count.
    """

    def __init__(
        self,
        requests: Iterable[GenerationRequest],
        *,
        waves: Sequence[int],
        epsilon: float,
        prices: Mapping[str, float],
    ) -> None:
        """
        Args:
            requests: of any number of problems, each once.
            waves: numbers of requests per problem; the last one repeats.
            epsilon: of ``SettledRule``.
            prices: as in ``sampling_order``.

        Raises:
            ConfigError: no wave, an empty wave, or an epsilon outside [0, 1).
        """
        rule = SettledRule(epsilon=epsilon)
        by_problem: dict[str, list[GenerationRequest]] = {}
        self._greedy: list[GenerationRequest] = []
        for request in requests:
            if request.sampling.is_greedy:
                self._greedy.append(request)
            else:
                by_problem.setdefault(request.problem_id, []).append(request)
        self._problems = []
        for of_problem in by_problem.values():
            plan = SamplingPlan(rule=rule, waves=tuple(waves), max_samples=len(of_problem))
            self._problems.append(_Sampling(sampling_order(of_problem, prices), plan, plan.start()))

    @property
    def num_problems(self) -> int:
        """Number of problems that are sampled in waves."""
        return len(self._problems)

    @property
    def num_settled(self) -> int:
        """Problems that ended before their budget."""
        return sum(problem.reason is not None and problem.state.remaining > 0 for problem in self._problems)

    def next_wave(self) -> list[GenerationRequest]:
        """Requests of the next wave; empty when every problem has ended. Call ``record`` before asking for another."""
        return [*self._greedy, *(request for problem in self._problems for request in problem.wave)]

    def record(self, reports: Mapping[str, ConstraintReport]) -> None:
        """Take what the wave brought.

        Args:
            reports: by candidate id, of every request of ``next_wave`` that is not greedy.

        Raises:
            KeyError: a report is missing.
        """
        self._greedy = []
        for problem in self._problems:
            if problem.reason is None:
                problem.record(reports)

    @property
    def unsent(self) -> list[GenerationRequest]:
        """Requests of the problems that have ended which were never sent: what waves save."""
        return [
            request
            for problem in self._problems
            if problem.reason is not None
            for request in problem.queue[problem.state.num_samples :]
        ]
