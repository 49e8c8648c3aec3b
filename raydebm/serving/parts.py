"""What the triage loop runs on in the service: its three protocols on top of one backend, and the watch over a request.

Does not know: Ray, HTTP. The backend is three remote parts in production and plain objects in tests.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Message, Problem
from raydebm.serving.asking import Ask

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class TextToScore:
    """One (problem, candidate) text pair for the ensemble."""

    candidate_id: str
    prompt: str
    text: str


class Backend(Protocol):
    """The three parts behind the service. Each call takes one list, because a call to another replica costs
    milliseconds."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Callable[[Candidate], None] | None
    ) -> list[Candidate]:
        """One candidate per request, in their order; failed ones carry ``error``.

        Args:
            requests: what to draw.
            on_candidate: called as each candidate arrives; None: nobody watches.
        """
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]: ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """One per text, in their order; None for one that could not be scored."""
        ...

    async def status(self) -> dict[str, Any]:
        """What is loaded.

        Raises:
            ServiceError: a part is not there (yet).
        """
        ...


@dataclass(slots=True)
class Watch:
    """What one request did, for its answer and for whoever watches it."""

    on_progress: Progress | None
    asked: list[GenerationRequest] = field(default_factory=list)
    drawn: list[Candidate] = field(default_factory=list)
    stages_ms: dict[str, float] = field(default_factory=dict)

    def tell(self, event: str, **facts: Any) -> None:
        if self.on_progress is not None:
            self.on_progress({"event": event, **facts})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = 1000 * (time.perf_counter() - started)
            self.stages_ms[stage] = round(self.stages_ms.get(stage, 0.0) + elapsed, 3)


@dataclass(frozen=True, slots=True)
class Source:
    """Candidates from the backend (triage.loop.CandidateSource)."""

    ask: Ask
    backend: Backend
    watch: Watch

    async def generate(
        self, problem: Problem, *, pass_index: int, messages: tuple[Message, ...] | None
    ) -> list[Candidate]:
        requests = self.ask.requests(pass_index, messages)
        self.watch.asked.extend(requests)
        feedback = None if messages is None else messages[-1]["content"]
        self.watch.tell("pass", **{"pass": pass_index, "requested": len(requests), "feedback": feedback})
        on_candidate = None
        if self.watch.on_progress is not None:
            on_candidate = _counting(self.watch, pass_index, len(requests))
        with self.watch.timed("generate"):
            candidates = [self._fitting(found) for found in await self.backend.generate(requests, on_candidate)]
        self.watch.drawn.extend(candidates)
        return candidates

    def _fitting(self, candidate: Candidate) -> Candidate:
        """A text beyond the limit counts as failed: it would cost memory in every part that follows."""
        limit, size = self.ask.bundle.max_candidate_chars, len(candidate.text or "")
        if size <= limit:
            return candidate
        return replace(candidate, text=None, error=f"the text has {size} characters; at most {limit} are taken")


def _counting(watch: Watch, pass_index: int, total: int) -> Callable[[Candidate], None]:
    done = 0

    def arrived(candidate: Candidate) -> None:
        nonlocal done
        done += 1
        facts = {"pass": pass_index, "done": done, "total": total}
        watch.tell("candidate", **facts, generator=candidate.generator, failed=candidate.text is None)

    return arrived


@dataclass(frozen=True, slots=True)
class Checker:
    backend: Backend
    watch: Watch

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        with self.watch.timed("check"):
            return await self.backend.check(problem, candidates)


@dataclass(frozen=True, slots=True)
class Scorer:
    backend: Backend
    watch: Watch
    prompt: str | None = None
    """What stands for the problem, when earlier turns of a chat belong to it; None: the problem's prompt."""

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        prompt = problem.prompt if self.prompt is None else self.prompt
        texts = [TextToScore(found.candidate_id, prompt, found.text or "") for found in candidates]
        with self.watch.timed("score"):
            energies = await self.backend.score(texts)
        self.watch.tell("scored", candidates=len(texts), unscored=sum(found is None for found in energies))
        return energies
