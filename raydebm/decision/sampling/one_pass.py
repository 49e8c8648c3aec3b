"""Sampling of one pass: candidates are checked and scored while others are still being written.

This module defines the protocols of the loop: a source of candidates, a checker, a scorer, and a source of baseline
scores. Checker, scorer and baselines run concurrently. Each is called with all waiting candidates whenever it is free,
so the first candidates do not wait and simultaneous ones share a call. Results do not depend on the arrival order,
except that energies and scores may differ slightly between batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.sampling.checks import unchecked
from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.waves import PassWaves, Wave
from raydebm.errors import ScoringError
from raydebm.records import Candidate, ConstraintReport, Energies, Message, PassRecord, Problem, ScoredCandidate
from raydebm.tasks.base import Task

T = TypeVar("T")
Arrived = Callable[[Candidate], None]


class CandidateSource(Protocol):
    """Source that samples candidates or looks them up."""

    async def generate(
        self,
        problem: Problem,
        *,
        pass_index: int,
        messages: tuple[Message, ...] | None,
        arrived: Arrived,
        waves: PassWaves | None = None,
    ) -> list[Candidate]:
        """Candidates of one pass. A failed candidate has ``error``.

        Args:
            problem: problem, without gold.
            pass_index: number of the pass, from 1.
            messages: chat with feedback. None in the first pass, which uses the task's chat.
            arrived: callback for each candidate on arrival. The returned list has all candidates.
            waves: waves of the pass. The source then samples through their ``run`` and calls ``arrived`` with each
                candidate.

        Raises:
            LimitReachedError: a limit of the request forbids the pass; no request was sent.
            GenerationError: the whole source has failed (or any of ``loop.PASS_FAILURES``).
        """
        ...


class Checker(Protocol):
    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order."""
        ...


class EnergyScorer(Protocol):
    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in order. None if a candidate could not be scored, for example because of NaN."""
        ...


class ScoreSource(Protocol):
    """Source of baseline scores that are evidence."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Scores by name per candidate, in order. A score that could not be computed is absent."""
        ...


class Observer:
    """Receiver of a request's events as they happen. The base class ignores them."""

    def scored(self, scored: ScoredCandidate) -> None:
        """Called with each candidate that has text, once its checks and energies are known."""

    def waved(self, wave: Wave) -> None:
        """Called after each wave of a pass."""

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        """Called after each pass, with the posterior of the pool's answers, the selected one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Components of the loop."""

    task: Task
    source: CandidateSource
    checker: Checker
    scorer: EnergyScorer
    baselines: ScoreSource | None = None
    """Source of baseline scores. Default: no baseline is evidence."""
    observer: Observer = field(default_factory=Observer)
    """Receiver of events."""
    deadline: Deadline | None = None
    """Time limit. Default: no limit."""


class _Stage(Generic[T]):
    """Worker that passes waiting candidates to a checker or a scorer."""

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
        """Process candidates until the stage is closed and its queue is empty.

        Raises:
            ScoringError: the numbers of candidates and results differ.
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
    """Candidates of one pass, from their arrival to their energies."""

    def __init__(self, problem: Problem, parts: Parts) -> None:
        self._problem, self._parts = problem, parts
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

    # View of the pass for ``waves`` (``waves.Arrivals``).

    def has(self, candidate_id: str) -> bool:
        return candidate_id in self._arrived

    def judged(self) -> tuple[ScoredCandidate, ...] | None:
        written = (candidate for candidate in self._arrived.values() if candidate.text is not None)
        return tuple(map(self._scored, self._arrived.values())) if all(map(self._is_judged, written)) else None

    def close(self) -> None:
        self._is_closed = True

    async def run(self, generate: Callable[[], Awaitable[list[Candidate]]]) -> tuple[ScoredCandidate, ...]:
        """Sample until the deadline, and return the scored candidates in the source's order."""
        deadline = self._parts.deadline
        drawing = asyncio.ensure_future(self._draw(generate))
        work = [drawing, *(asyncio.ensure_future(stage.run()) for stage in self._stages)]
        try:
            left_s = None if deadline is None else deadline.at_s - now_s()
            await asyncio.wait(work, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in work:
                if task.done():
                    task.result()  # re-raises the task's error
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        # A source that ignores the deadline contributes only the candidates that it announced.
        drawn = list(self._arrived.values()) if drawing.cancelled() else drawing.result()
        # Candidates that arrived after the pass was settled are not part of it.
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
            return ScoredCandidate(candidate=candidate, report=report, energies=None, kind=self._problem.kind)
        if self._parts.deadline is not None and not self._is_judged(candidate):
            return self._parts.deadline.unjudged(candidate)
        return ScoredCandidate(
            candidate=candidate,
            report=self._checks.results[candidate.candidate_id],
            energies=self._energies.results[candidate.candidate_id],
            scores={} if self._scores is None else self._scores.results[candidate.candidate_id],
            kind=self._problem.kind,
        )


async def sample_pass(
    problem: Problem,
    *,
    parts: Parts,
    pass_index: int,
    messages: tuple[Message, ...] | None,
    waves: PassWaves | None = None,
) -> tuple[ScoredCandidate, ...]:
    """Sample one pass: check and score the source's candidates as they arrive, and return them in the source's order.

    If ``waves`` is given, it determines the end of the pass, and ``waves.stop`` returns the reason.

    Raises:
        ScoringError: the checker, the scorer or the baselines returned a wrong number of results.
        Exception: an error of any component. The others are cancelled.
    """
    drawn = _Pass(problem, parts)
    if waves is not None:
        waves.watch(drawn)
    return await drawn.run(
        lambda: parts.source.generate(
            problem, pass_index=pass_index, messages=messages, arrived=drawn.arrive, waves=waves
        )
    )
