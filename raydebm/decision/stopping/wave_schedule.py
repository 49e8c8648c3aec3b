"""Waves over several problems: the requests to send next, and those saved because an answer is settled.

In:   the requests of the first pass, and after each wave the constraint reports of its candidates.
Out:  the requests of the next wave.
Independent of: the source of answers, energies, Ray, files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from raydebm.decision.stopping.settled import settled, wave_ends
from raydebm.records import ConstraintReport, GenerationRequest


def sampling_order(requests: Iterable[GenerationRequest], prices: Mapping[str, float]) -> list[GenerationRequest]:
    """Order one problem's requests for waves: generators alternate, the cheapest first.

    Args:
        requests: a pass's requests for one problem, in any order.
        prices: price of one candidate, by generator. Generators of equal price keep their order.
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
    """Requests of one problem in order, and the number already sent."""

    queue: list[GenerationRequest]
    ends: list[int]
    """Number of requests after each remaining wave."""
    num_sent: int = 0
    votes: Counter[str] = field(default_factory=Counter)

    @property
    def wave(self) -> list[GenerationRequest]:
        return self.queue[self.num_sent : self.ends[0]] if self.ends else []

    def record(self, reports: Mapping[str, ConstraintReport]) -> None:
        of_wave = [reports[request.candidate_id] for request in self.wave]
        # A refuted answer is never returned, so it must not settle anything.
        self.votes.update(
            report.vote_key for report in of_wave if report.vote_key is not None and report.proof is not False
        )
        self.num_sent = self.ends.pop(0)
        unanswered, remaining = self.num_sent - self.votes.total(), len(self.queue) - self.num_sent
        proven = any(report.proof for report in of_wave)
        if proven or (self.ends and settled(self.votes, unanswered=unanswered, remaining=remaining).reason):
            self.ends = []


class WaveSchedule:
    """Waves of a first pass.

    A problem gets its next wave unless the vote is settled (``settled`` on votes, with all requests of the problem as
    its budget) or an exact constraint has proven an answer. Samples that failed, have no answer, or have an answer that
    an exact constraint refutes do not vote. Greedy requests are a baseline: they are sent with the first wave, do not
    vote and are not counted.
    """

    def __init__(
        self, requests: Iterable[GenerationRequest], *, waves: Sequence[int], prices: Mapping[str, float]
    ) -> None:
        """Group and order the requests.

        Args:
            requests: requests of any number of problems, each once.
            waves: numbers of requests per problem and wave, each >= 1. The last one repeats.
            prices: price of one candidate, by generator.
        """
        by_problem: dict[str, list[GenerationRequest]] = {}
        self._greedy: list[GenerationRequest] = []
        for request in requests:
            if request.sampling.is_greedy:
                self._greedy.append(request)
            else:
                by_problem.setdefault(request.problem_id, []).append(request)
        self._problems = [
            _Sampling(sampling_order(of_problem, prices), wave_ends(waves, len(of_problem)))
            for of_problem in by_problem.values()
        ]

    @property
    def num_problems(self) -> int:
        """Number of problems that are sampled in waves."""
        return len(self._problems)

    @property
    def num_settled(self) -> int:
        """Number of problems that ended before all their requests were sent."""
        return sum(not problem.ends and problem.num_sent < len(problem.queue) for problem in self._problems)

    def next_wave(self) -> list[GenerationRequest]:
        """Requests of the next wave. Empty when every problem has ended. Call ``record`` before the next call."""
        return [*self._greedy, *(request for problem in self._problems for request in problem.wave)]

    def record(self, reports: Mapping[str, ConstraintReport]) -> None:
        """Record the reports of a wave.

        Args:
            reports: reports by candidate id, for every request of ``next_wave`` that is not greedy.

        Raises:
            KeyError: a report is missing.
        """
        self._greedy = []
        for problem in self._problems:
            if problem.ends:
                problem.record(reports)

    @property
    def unsent(self) -> list[GenerationRequest]:
        """Requests that were never sent because their problem ended early."""
        return [
            request for problem in self._problems if not problem.ends for request in problem.queue[problem.num_sent :]
        ]
