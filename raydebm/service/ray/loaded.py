"""Ensembles and generators loaded in a replica: usually one run's, several during an exchange or with further runs.

Every call names its checkpoint and its run, so energies of one request come from one ensemble, regardless of the
replica and of reloads. Torch is imported on the first load. Does not know: Ray.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from raydebm import tracing
from raydebm.errors import CheckpointError, GenerationError
from raydebm.generators import Generator
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.requests import candidate_facts, unanswered
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.service.settings import RunSource

if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

log = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Asked(Generic[Value]):
    value: Value
    asked_at: float


class OnDemand(Generic[Key, Value]):
    """Cache of loaded values by key, for one event loop."""

    def __init__(
        self,
        load: Callable[[Key], Value],
        *,
        idle_s: float,
        close: Callable[[Value], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        load: loader, called in a thread, one call at a time.
        idle_s: seconds after which an unused value may be dropped; longer than any use of a value.
        close: cleanup of dropped values. Default: none.
        clock: time in seconds.
        """
        self._load, self._idle_s, self._close, self._clock = load, idle_s, close, clock
        self._loaded: dict[Key, _Asked[Value]] = {}
        self._loading = asyncio.Lock()

    @property
    def by_use(self) -> list[tuple[Key, Value]]:
        """Loaded values, the most recently used last."""
        ordered = sorted(self._loaded.items(), key=lambda entry: entry[1].asked_at)
        return [(key, loaded.value) for key, loaded in ordered]

    def put(self, key: Key, value: Value) -> None:
        """Add a value that was loaded elsewhere, as if just used."""
        self._loaded[key] = _Asked(value, self._clock())

    async def get(self, key: Key) -> Value:
        """The value, loaded if necessary; loaded values remain usable meanwhile. Errors of ``load`` propagate."""
        if key not in self._loaded:
            async with self._loading:
                if key not in self._loaded:
                    self.put(key, await asyncio.to_thread(self._load, key))
        loaded = self._loaded[key]
        loaded.asked_at = self._clock()
        await self._let_go(keep=key)
        return loaded.value

    async def _let_go(self, keep: Key) -> None:
        now = self._clock()
        idle = [key for key, loaded in self._loaded.items() if key != keep and now - loaded.asked_at > self._idle_s]
        for loaded in [self._loaded.pop(key) for key in idle]:
            if self._close is not None:
                await self._close(loaded.value)


ENSEMBLE_IDLE_S = 600.0
"""Seconds until an unused ensemble may be unloaded. Longer than any request runs."""


@dataclass(frozen=True, slots=True)
class LoadedEnsemble:
    """An ensemble and its backbone."""

    scorer: "EnsembleScorer"
    backbone: "Backbone"


class Ensembles:
    """Load checkpoints, several on one backbone if they share it, and unload idle ones.

    Each backbone is in memory once, regardless of the number of its ensembles, and is unloaded with the last of them.
    """

    def __init__(
        self,
        *,
        device: str = "auto",
        dtype: str = "auto",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        device: as in ``EnsembleScorer.load``, like dtype.
        clock: time in seconds, for idle ensembles.
        """
        self._device, self._dtype = device, dtype
        self._loaded: OnDemand[CheckpointRef, LoadedEnsemble] = OnDemand(
            self._load, idle_s=ENSEMBLE_IDLE_S, clock=clock
        )

    @property
    def loaded(self) -> list[LoadedEnsemble]:
        """Loaded ensembles, the most recently used last."""
        return [ensemble for _, ensemble in self._loaded.by_use]

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the loaded ensembles, in the same order."""
        return [ref.fingerprint for ref, _ in self._loaded.by_use]

    @property
    def latest(self) -> "EnsembleScorer":
        """The most recently used ensemble."""
        return self.loaded[-1].scorer

    async def get(self, ref: CheckpointRef) -> "EnsembleScorer":
        """The ensemble, loaded in a thread if necessary; loaded ones go on scoring meanwhile.

        Raises:
            CheckpointError: it cannot be read, or the folder now has another one.
        """
        return (await self._loaded.get(ref)).scorer

    def load_now(self, ref: CheckpointRef) -> None:
        """Load in this thread, before the replica takes calls. Raises CheckpointError."""
        self._loaded.put(ref, self._load(ref))

    def _load(self, ref: CheckpointRef) -> LoadedEnsemble:
        from raydebm.scorer.checkpoint import read_ensemble
        from raydebm.scorer.ensemble import EnsembleScorer, backbone_for

        stored = read_ref(ref.folder)
        if stored != ref:
            raise CheckpointError(
                f"{ref.folder} now contains checkpoint {stored.fingerprint}, but {ref.fingerprint} is served; put "
                "new adapters into a separate folder and name it in the ingress deployment's user_config"
            )
        with local_copy(ref.folder) as folder:
            record, adapters = read_ensemble(folder)
        known = [ensemble.backbone for ensemble in self.loaded]
        backbone = backbone_for(record, device=self._device, dtype=self._dtype, loaded=known)
        return LoadedEnsemble(EnsembleScorer.of_parts(record, adapters, backbone=backbone), backbone)


Generators = Mapping[str, Generator]
"""Generators by name."""
Trace = Mapping[str, str] | None
"""Headers of the caller's span (``tracing.outgoing``). None or empty without tracing."""
GENERATORS_IDLE_S = 3600.0
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
        self._further: OnDemand[RunSource, Generators] = OnDemand(
            build, idle_s=GENERATORS_IDLE_S, close=_close, clock=clock
        )

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
