"""Generators loaded in a replica, further runs' on demand, and the requests of one call.

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
from raydebm.service.ray.ensembles import OnDemand
from raydebm.service.settings.bundle import RunSource

log = logging.getLogger(__name__)

Generators = Mapping[str, Generator]
"""Generators by name."""
Trace = Mapping[str, str] | None
"""Headers of the caller's span (``tracing.outgoing``). None or empty without tracing."""
IDLE_S = 3600.0
"""Seconds until unused generators may be unloaded. Local models load slowly, endpoints use no memory."""


class LoadedGenerators:
    """Generators by run, for one event loop. The first run's are never unloaded."""

    def __init__(
        self,
        first: Generators,
        build: Callable[[RunSource], Generators],
        *,
        source: RunSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        first: generators of the first run.
        build: builder of a run's generators, called in a thread.
        source: run of ``first``. Default: unknown, for calls that name no run.
        clock: time in seconds, for idle generators.
        """
        self.first, self._source = first, source
        self._further: OnDemand[RunSource, Generators] = OnDemand(build, idle_s=IDLE_S, close=_close, clock=clock)

    @property
    def names(self) -> list[str]:
        """Names of the loaded generators, the first run's first."""
        return list(
            dict.fromkeys([*self.first, *(name for _, generators in self._further.by_use for name in generators)])
        )

    async def get(self, source: RunSource | None) -> Generators:
        """Generators of a run, loaded if necessary. None for the first run.

        Raises:
            RaydebmError: they cannot be loaded, for example because of a missing key or a rewritten recipe.
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
        """Report exactly one candidate per request, even if the generator fails."""
        facts: tracing.Attributes = {"raydebm.generator": name, "raydebm.num_candidates": len(requests)}
        with tracing.span("generator", facts, parent=self.trace) as span:
            num_missing = await self._draw_all(name, requests)
            span.set({"raydebm.num_missing": num_missing})

    async def _draw_all(self, name: str, requests: Sequence[GenerationRequest]) -> int:
        """Number of requests that the generator did not answer."""
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
            # A model or an endpoint may fail in any way; the other generators' candidates must survive.
            log.exception("generator %r failed", name)
            reason = f"generator {name!r} failed: {error}"
        for request in waiting.values():
            self.arrivals.put_nowait(unanswered(request, reason))
        return len(waiting)

    def _trace(self, name: str, candidate: Candidate, seconds: float) -> None:
        """Add a span. Endpoints trace each request themselves, because its headers name the span."""
        if not isinstance(self.generators[name], OpenAIApiGenerator):
            failed = "no_answer" if candidate.text is None else None
            tracing.past_span("candidate", candidate_facts(candidate), seconds=seconds, failed=failed)


def _stream(generator: Generator, requests: Sequence[GenerationRequest], may_repeat: bool) -> AsyncIterator[Candidate]:
    if isinstance(generator, OpenAIApiGenerator):
        return generator.stream(requests, may_repeat=may_repeat)
    return generator.stream(requests)
