"""One pass: candidates are checked and scored while others are still being written.

The protocols of the loop stand here: a source of candidates, a checker, a scorer, and where baselines are evidence a
source of their scores. Checker, scorer and baselines work side by side; each is called with everything that has come in
whenever it is free, so the first candidates do not wait and many that come at once are one call. What a candidate
gets does not depend on when it came: penalties are the same, energies and scores within the model's own tolerance for
another batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import unchecked
from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.waves import PassWaves, Wave
from raydebm.errors import ScoringError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Message,
    PassRecord,
    Problem,
    ScoredCandidate,
)
from raydebm.tasks.base import Task

T = TypeVar("T")
Arrived = Callable[[Candidate], None]


class CandidateSource(Protocol):
    """Writes candidates, or looks them up."""

    async def generate(
        self,
        problem: Problem,
        *,
        pass_index: int,
        messages: tuple[Message, ...] | None,
        arrived: Arrived,
        waves: PassWaves | None = None,
    ) -> list[Candidate]:
        """Candidates of one pass; a failed one carries ``error``.

        Args:
            problem: what is asked.
            pass_index: from 1.
            messages: the chat with feedback; None in the first pass, which asks as the task asks.
            arrived: may be called with each candidate as soon as it is there; the returned list holds them all.
            waves: where given, the pass is sampled by its ``run``, and ``arrived`` is called with each candidate.

        Raises:
            LimitReachedError: a limit of the request forbids the pass; nothing was asked.
            GenerationError: the source as a whole does not work (or any of ``loop.PASS_FAILURES``).
        """
        ...


class Checker(Protocol):
    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in their order."""
        ...


class EnergyScorer(Protocol):
    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in their order; None for one that could not be scored (such as NaN)."""
        ...


class ScoreSource(Protocol):
    """The baselines whose scores are evidence."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Scores by name per candidate, in their order; what could not be scored is absent."""
        ...


class Observer(Protocol):
    """Receives the events of a request as they happen."""

    def scored(self, scored: ScoredCandidate) -> None:
        """A candidate with text, as soon as its checks and energies are known."""
        ...

    def waved(self, wave: Wave) -> None:
        """A wave of a pass is over."""
        ...

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        """A pass is over, with what is believed about the pool's answers, the selected one first."""
        ...


class NoObserver:
    def scored(self, scored: ScoredCandidate) -> None:
        pass

    def waved(self, wave: Wave) -> None:
        pass

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop runs on."""

    task: Task
    source: CandidateSource
    checker: Checker
    scorer: EnergyScorer
    baselines: ScoreSource | None = None
    """None: no baseline's scores are evidence."""
    observer: Observer = field(default_factory=NoObserver)
    """Told what happens while it happens."""
    deadline: Deadline | None = None
    """None: no time limit."""


class _Stage(Generic[T]):
    """A checker or a scorer at work."""

    def __init__(
        self,
        what: str,
        call: Callable[[list[Candidate]], Awaitable[Sequence[T]]],
        on_result: Callable[[Candidate], None],
    ) -> None:
        self.results: dict[str, T] = {}
        self._what, self._call, self._on_result = what, call, on_result
        self._waiting: list[Candidate] = []
        self._news = asyncio.Event()
        self._closed = False

    def put(self, candidate: Candidate) -> None:
        self._waiting.append(candidate)
        self._news.set()

    def close(self) -> None:
        """Accept no further candidates."""
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Until it is closed and everything is done.

        Raises:
            ScoringError: the part returned another number of results than it got candidates.
        """
        while await self._has_work():
            batch, self._waiting = self._waiting, []
            results = await self._call(batch)
            if len(results) != len(batch):
                raise ScoringError(
                    f"problem {batch[0].problem_id!r}: the {self._what} returned {len(results)} results for "
                    f"{len(batch)} candidates; it must return one each, in their order"
                )
            for candidate, result in zip(batch, results, strict=True):
                self.results[candidate.candidate_id] = result
                self._on_result(candidate)

    async def _has_work(self) -> bool:
        while not self._waiting and not self._closed:
            self._news.clear()
            await self._news.wait()
        return bool(self._waiting)


class _Pass:
    """The candidates of one pass, from their arrival to their energies."""

    def __init__(self, problem: Problem, parts: Parts) -> None:
        self._parts = parts
        self.news = asyncio.Event()
        self._is_closed = False
        self._arrived: dict[str, Candidate] = {}
        self._checks: _Stage[ConstraintReport] = _Stage(
            "checker", lambda candidates: parts.checker.check(problem, candidates), self._tell
        )
        self._energies: _Stage[Energies | None] = _Stage(
            "scorer", lambda candidates: parts.scorer.score(problem, candidates), self._tell
        )
        baselines = parts.baselines
        self._scores: _Stage[Mapping[str, float]] | None = (
            None
            if baselines is None
            else _Stage("baselines", lambda candidates: baselines.scores(problem, candidates), self._tell)
        )
        self._stages: list[_Stage[Any]] = [self._checks, self._energies, *([self._scores] if self._scores else [])]

    def arrive(self, candidate: Candidate) -> None:
        if self._is_closed or candidate.candidate_id in self._arrived:
            return
        self._arrived[candidate.candidate_id] = candidate
        if candidate.text is not None:
            for stage in self._stages:
                stage.put(candidate)
        self.news.set()

    # What ``waves`` sees of the pass (``waves.Arrivals``).

    def has(self, candidate_id: str) -> bool:
        return candidate_id in self._arrived

    def judged(self) -> tuple[ScoredCandidate, ...] | None:
        written = (candidate for candidate in self._arrived.values() if candidate.text is not None)
        return tuple(map(self._scored, self._arrived.values())) if all(map(self._is_judged, written)) else None

    def close(self) -> None:
        self._is_closed = True

    async def run(self, generate: Callable[[], Awaitable[list[Candidate]]]) -> tuple[ScoredCandidate, ...]:
        """The scored candidates in the order of the returned list, until the deadline."""
        deadline = self._parts.deadline
        drawing = asyncio.ensure_future(self._draw(generate))
        work = [drawing, *(asyncio.ensure_future(stage.run()) for stage in self._stages)]
        try:
            left_s = None if deadline is None else deadline.at_s - now_s()
            await asyncio.wait(work, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in work:
                if task.done():
                    task.result()  # raises what the part raised
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        # A source that does not keep to the deadline has only given what it announced.
        drawn = list(self._arrived.values()) if drawing.cancelled() else drawing.result()
        # What comes after the others have settled a pass is not part of it.
        return tuple(self._scored(candidate) for candidate in drawn if self.has(candidate.candidate_id))

    async def _draw(self, generate: Callable[[], Awaitable[list[Candidate]]]) -> list[Candidate]:
        candidates = await generate()
        for candidate in candidates:
            self.arrive(candidate)
        for stage in self._stages:
            stage.close()
        return candidates

    def _is_judged(self, candidate: Candidate) -> bool:
        return all(candidate.candidate_id in stage.results for stage in self._stages)

    def _tell(self, candidate: Candidate) -> None:
        if self._is_judged(candidate):
            self._parts.observer.scored(self._scored(candidate))
            self.news.set()

    def _scored(self, candidate: Candidate) -> ScoredCandidate:
        if candidate.text is None:
            report = unchecked(candidate.candidate_id, f"no text to check: {candidate.error}")
            return ScoredCandidate(candidate=candidate, report=report, energies=None)
        if self._parts.deadline is not None and not self._is_judged(candidate):
            return self._parts.deadline.unjudged(candidate)
        return ScoredCandidate(
            candidate=candidate,
            report=self._checks.results[candidate.candidate_id],
            energies=self._energies.results[candidate.candidate_id],
            scores={} if self._scores is None else self._scores.results[candidate.candidate_id],
        )


async def sample_pass(
    problem: Problem,
    *,
    parts: Parts,
    pass_index: int,
    messages: tuple[Message, ...] | None,
    waves: PassWaves | None = None,
) -> tuple[ScoredCandidate, ...]:
    """One pass: candidates of the source, checked and scored as they arrive, in the source's order.

    With ``waves`` the pass ends where they end it; ``waves.stop`` then says why.

    Raises:
        ScoringError: the checker or the scorer returned another number of results than it got candidates.
        Exception: what a part raised; the others are then cancelled.
    """
    drawn = _Pass(problem, parts)
    if waves is not None:
        waves.watch(drawn)
    return await drawn.run(
        lambda: parts.source.generate(
            problem, pass_index=pass_index, messages=messages, arrived=drawn.arrive, waves=waves
        )
    )


def waves_of(policy: Policy, *, parts: Parts, pass_index: int, earlier: Sequence[ScoredCandidate]) -> PassWaves | None:
    """The waves of one pass; None where the policy samples it at once."""
    if policy.waves is None:
        return None
    return PassWaves(
        policy, pass_index=pass_index, earlier=earlier, deadline=parts.deadline, on_wave=parts.observer.waved
    )
