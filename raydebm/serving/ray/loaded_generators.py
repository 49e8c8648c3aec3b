"""The generators that a replica holds, those of further runs loaded when a call names them; and one call's requests.

Does not know: Ray.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from raydebm import tracing
from raydebm.errors import GenerationError
from raydebm.generators import Generator
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.requests import candidate_facts, unanswered
from raydebm.records import Candidate, GenerationRequest
from raydebm.serving.ray.ensembles import OnDemand
from raydebm.serving.settings.bundle import RunSource

log = logging.getLogger(__name__)

Generators = Mapping[str, Generator]
"""By name."""
Trace = Mapping[str, str] | None
"""Headers of the caller's span (``tracing.outgoing``); None or empty: nothing is traced."""
IDLE_S = 3600.0
"""Generators that were not asked for so long make room. Local models take long to load, endpoints take no room."""


class LoadedGenerators:
    """Generators by run. Those of the first run stay; belongs to one event loop."""

    def __init__(
        self,
        first: Generators,
        build: Callable[[RunSource], Generators],
        *,
        source: RunSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            first: what the replica began with.
            build: makes a run's generators; may take long, and is called in a thread.
            source: of ``first``; None: unknown, so that only calls that name no run get it.
            clock: seconds, for what is idle.
        """
        self.first, self._source = first, source
        self._further: OnDemand[RunSource, Generators] = OnDemand(build, idle_s=IDLE_S, close=_close, clock=clock)

    @property
    def names(self) -> list[str]:
        """Names of what is loaded, the first run's first."""
        return list(
            dict.fromkeys([*self.first, *(name for _, generators in self._further.by_use for name in generators)])
        )

    async def get(self, source: RunSource | None) -> Generators:
        """The generators of a run, loaded where they are not there; None: those of the first.

        Raises:
            RaydebmError: they cannot be loaded, such as a missing key or a rewritten recipe.
        """
        if source is None or source == self._source:
            return self.first
        return await self._further.get(source)


async def _close(generators: Generators) -> None:
    for name, generator in generators.items():
        try:
            await generator.aclose()
        except Exception:  # a session that does not end must not fail the request that made room
            log.exception("generator %r could not be closed", name)


@dataclass(frozen=True, slots=True)
class Draws:
    """One call's requests to a run's generators."""

    generators: Generators
    arrivals: "asyncio.Queue[Candidate]"
    trace: Trace
    may_repeat: bool

    async def draw(self, name: str, requests: Sequence[GenerationRequest]) -> None:
        """Exactly one arrival per request, whatever happens to the generator."""
        facts: tracing.Attributes = {"raydebm.generator": name, "raydebm.num_candidates": len(requests)}
        with tracing.span("generator", facts, parent=self.trace) as span:
            num_missing = await self._draw_all(name, requests)
            span.set({"raydebm.num_missing": num_missing})

    async def _draw_all(self, name: str, requests: Sequence[GenerationRequest]) -> int:
        """How many requests got no answer of the generator's own."""
        waiting = {request.candidate_id: request for request in requests}
        started = time.perf_counter()
        try:
            if name not in self.generators:
                raise GenerationError(f"generator {name!r} is not loaded; loaded: {', '.join(self.generators)}")
            async for candidate in _stream(self.generators[name], requests, self.may_repeat):
                if waiting.pop(candidate.candidate_id, None) is not None:
                    self.arrivals.put_nowait(candidate)
                    self._trace(name, candidate, time.perf_counter() - started)
            reason = f"generator {name!r} gave no answer to this request"
        except Exception as error:
            # A model or an endpoint may break in any way; it must not take the other generators' candidates along.
            log.exception("generator %r failed", name)
            reason = f"generator {name!r} failed: {error}"
        for request in waiting.values():
            self.arrivals.put_nowait(unanswered(request, reason))
        return len(waiting)

    def _trace(self, name: str, candidate: Candidate, seconds: float) -> None:
        """Endpoints trace each request themselves, because its headers name the span."""
        if not isinstance(self.generators[name], OpenAIApiGenerator):
            failed = "no_answer" if candidate.text is None else None
            tracing.past_span("candidate", candidate_facts(candidate), seconds=seconds, failed=failed)


def _stream(generator: Generator, requests: Sequence[GenerationRequest], may_repeat: bool) -> AsyncIterator[Candidate]:
    if isinstance(generator, OpenAIApiGenerator):
        return generator.stream(requests, may_repeat=may_repeat)
    return generator.stream(requests)
