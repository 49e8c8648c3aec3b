"""Run the loop over recorded candidates, constraint reports and energies, looked up by candidate id.

A later pass depends on the earlier selections, so it cannot be listed in advance. A caller replays, generates
everything in ``Recording.missing`` at once, checks and scores it, and repeats this until nothing is missing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.one_pass import Arrived, Parts
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import GenerationError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    GenerationRequest,
    Message,
    Outcome,
    Problem,
    ScoredCandidate,
)
from raydebm.run.tables import pools_of
from raydebm.tasks.base import Task

RequestsOf = Callable[[Problem, int, tuple[Message, ...]], Sequence[GenerationRequest]]
"""(problem, pass index, chat) -> the requests of that pass, identical to a live source's requests."""


class Recording:
    """Recorded candidates with their reports, energies and scores, which act as the loop's components.

    The first pass of a problem consists of all its recorded first-pass candidates except greedy ones. Later passes are
    looked up by the candidate ids of their requests.
    """

    def __init__(
        self, task: Task, candidates: Mapping[str, ScoredCandidate], *, requests_of: RequestsOf | None = None
    ) -> None:
        """Store the record.

        Args:
            task: task of the problems.
            candidates: recorded candidates of all passes, by id.
            requests_of: function that builds the requests of later passes. Default: later passes fail.
        """
        self._by_id = candidates
        self._first = pools_of(each.candidate for each in candidates.values() if each.candidate.pass_index == 1)
        self._requests_of = requests_of
        baselines = self if any(each.scores for each in candidates.values()) else None
        self.parts = Parts(task=task, source=self, checker=self, scorer=self, baselines=baselines)
        self._missing: dict[str, GenerationRequest] = {}

    @property
    def missing(self) -> list[GenerationRequest]:
        """Requests that were needed but are not in the record, each once, in order of need."""
        return list(self._missing.values())

    async def generate(
        self,
        problem: Problem,
        *,
        pass_index: int,
        messages: tuple[Message, ...] | None,
        arrived: Arrived,
        waves: PassWaves | None = None,
    ) -> list[Candidate]:
        """Look up one pass. ``arrived`` is called only with waves, because all candidates are available at once.

        Raises:
            GenerationError: a candidate of the pass is not recorded. If ``requests_of`` built its request, ``missing``
                has it. With ``waves``, only the sampled candidates are looked up.
        """
        if pass_index == 1:
            if problem.problem_id not in self._first:
                raise GenerationError(
                    f"no first-pass candidate of problem {problem.problem_id!r} is recorded; generate candidates first"
                )
            recorded = list(self._first[problem.problem_id])
            if waves is not None:
                await waves.run(recorded, partial(_announce, arrived))
            return recorded
        if self._requests_of is None or messages is None:
            raise GenerationError(f"pass {pass_index} of problem {problem.problem_id!r} is not recorded")
        requests = self._requests_of(problem, pass_index, messages)
        if waves is None:
            return self._looked_up(problem, requests)
        candidates: list[Candidate] = []

        async def draw(wave: Sequence[GenerationRequest]) -> None:
            of_wave = self._looked_up(problem, wave)
            candidates.extend(of_wave)
            await _announce(arrived, of_wave)

        await waves.run(requests, draw)
        return candidates

    def _looked_up(self, problem: Problem, requests: Sequence[GenerationRequest]) -> list[Candidate]:
        absent = {r.candidate_id: r for r in requests if r.candidate_id not in self._by_id}
        if absent:
            self._missing.update(absent)
            raise GenerationError(
                f"{len(absent)} of {len(requests)} candidates of pass {requests[0].pass_index} of problem "
                f"{problem.problem_id!r} are not recorded yet"
            )
        return [self._by_id[request.candidate_id].candidate for request in requests]

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """Look up reports."""
        return [self._by_id[candidate.candidate_id].report for candidate in candidates]

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Look up energies."""
        return [self._by_id[candidate.candidate_id].energies for candidate in candidates]

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Look up baseline scores."""
        return [self._by_id[candidate.candidate_id].scores for candidate in candidates]


async def _announce(arrived: Arrived, candidates: Sequence[Candidate]) -> None:
    for candidate in candidates:
        arrived(candidate)


def replay(
    problems: Iterable[Problem], recorded: Recording, *, policy: Policy | Callable[[Problem], Policy]
) -> list[Outcome]:
    """Run the loop for every problem in order, under one policy or one policy per problem.

    Cannot be called inside a running event loop.
    """
    own = policy if callable(policy) else lambda problem: policy

    async def run() -> list[Outcome]:
        return [await solve(problem, parts=recorded.parts, policy=own(problem)) for problem in problems]

    return asyncio.run(run())
