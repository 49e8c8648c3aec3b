"""Ray deployments behind the ingress: generators, the ensemble scorer, baselines that are evidence, constraint checks.

Each is a plain class; ``app`` makes deployments of them. Each call takes one list, and names its run or checkpoint, so
that energies of one request come from one ensemble, regardless of the replica and of reloads. Models load in
``__init__``. Torch is imported inside functions, so that building the application and the ingress do not load it.
"""

import asyncio
import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ray.serve.context import _get_serve_request_context

from raydebm import tracing
from raydebm.config import BaselineConfig, GeneratorConfig, TaskConfig
from raydebm.decision.reporter import DEADLINE_S, Reporter
from raydebm.errors import CheckpointError, GenerationError
from raydebm.generators import Generator, build_generator
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.requests import candidate_facts, unanswered
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.scorer.texts import TextScorer, TextToScore, energies_of_lists
from raydebm.service.access import ENVIRONMENT as CLIENT_KEYS
from raydebm.service.logs import configure_logs
from raydebm.service.settings import RunSource

if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.model.backbone import Backbone

log = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")
Generators = Mapping[str, Generator]
"""Generators by name."""
Trace = Mapping[str, str] | None
"""Headers of the caller's span (``tracing.outgoing``). None or empty without tracing."""
LINGER_S = 0.003
"""Seconds to collect candidates into one message. A message between two actors costs milliseconds of CPU time, and each
one causes one more to the checks and one to the scorer."""
ENSEMBLE_IDLE_S = 600.0
"""Seconds until an unused ensemble may be unloaded. Longer than any request runs."""
GENERATORS_IDLE_S = 3600.0
"""Seconds until unused generators may be unloaded. Local models load slowly, endpoints use no memory."""


def prepare_replica(component: str) -> None:
    """Set up logs and traces, and remove the clients' API keys from the environment of a replica and its children."""
    os.environ.pop(CLIENT_KEYS, None)
    configure_logs(lambda: str(_get_serve_request_context().request_id))  # Serve passes the id on with every call
    tracing.start_tracing(component)


class OnDemand(Generic[Key, Value]):
    """Cache of loaded values by key, for one event loop. It usually has one value, and several during an exchange or
    with further runs."""

    def __init__(
        self,
        load: Callable[[Key], Value],
        *,
        idle_s: float,
        drop: Callable[[Value], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``load`` is called in a thread, one call at a time. A value may be dropped, and ``drop`` called to clean up,
        once it was unused for ``idle_s`` seconds, which must be longer than any use."""
        self._load, self._idle_s, self._drop, self._clock = load, idle_s, drop, clock
        self.loaded: dict[Key, Value] = {}
        """Loaded values, the most recently used last."""
        self._used_at: dict[Key, float] = {}
        self._loading = asyncio.Lock()

    def put(self, key: Key, value: Value) -> None:
        """Add a value, or move it to the end, as just used."""
        self.loaded.pop(key, None)
        self.loaded[key], self._used_at[key] = value, self._clock()

    async def get(self, key: Key) -> Value:
        """The value, loaded if necessary; loaded values remain usable meanwhile. Errors of ``load`` propagate."""
        if key not in self.loaded:
            async with self._loading:
                if key not in self.loaded:
                    self.put(key, await asyncio.to_thread(self._load, key))
        value = self.loaded[key]
        self.put(key, value)
        for other in [each for each in self.loaded if self._clock() - self._used_at[each] > self._idle_s]:
            idle = self.loaded.pop(other)
            if self._drop is not None:
                await self._drop(idle)
        return value


# ---- generators -----------------------------------------------------------------------------------------------------


async def closed(generators: Generators) -> None:
    """Close generators that are not used any more."""
    for name, generator in generators.items():
        try:
            await generator.aclose()
        except Exception:  # a session that does not end must not fail the request that made room
            log.exception("generator %r could not be closed", name)


class GeneratorDeployment:
    """All generators of the service in one process, the only one with the provider keys."""

    def __init__(self, configs: Sequence[GeneratorConfig], run_dir: str, source: RunSource | None = None) -> None:
        """Problems of the run directory resolve the ids of recorded pools; ``source`` names this run in calls."""
        prepare_replica("generator")
        self.first, self._source = build_generators(configs, run_dir), source
        self.further: OnDemand[RunSource, Generators] = OnDemand(
            lambda source: build_generators(source.configs(), source.run_dir), idle_s=GENERATORS_IDLE_S, drop=closed
        )

    async def load(self, source: RunSource) -> None:
        """Load a run's generators before requests name them. Raises RaydebmError if they cannot be used, for example
        because of a missing key or a rewritten recipe; loaded ones remain."""
        await self.generators(source)

    async def generators(self, source: RunSource | None) -> Generators:
        """A run's generators, by default the first one's, loaded if necessary. Raises RaydebmError."""
        return self.first if source is None or source == self._source else await self.further.get(source)

    async def stream(
        self,
        requests: Sequence[GenerationRequest],
        trace: Trace = None,
        may_repeat: bool = True,
        source: RunSource | None = None,
    ) -> AsyncIterator[list[Candidate]]:
        """Stream one candidate per request in order of arrival, in batches collected for up to ``LINGER_S``. Those of a
        generator that fails have ``error``. If ``may_repeat`` is true, a request that may already be billed can be
        sent again."""
        generators = await self.generators(source)
        arrivals: asyncio.Queue[Candidate] = asyncio.Queue()
        by_name: defaultdict[str, list[GenerationRequest]] = defaultdict(list)
        for request in requests:
            by_name[request.generator].append(request)
        async with asyncio.TaskGroup() as group:
            for name, own in by_name.items():
                group.create_task(_draw(name, generators, own, arrivals, trace, may_repeat))
            num_left = len({request.candidate_id for request in requests})
            while num_left:
                batch = [await arrivals.get()]
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_S):
                        while len(batch) < num_left:
                            batch.append(await arrivals.get())
                num_left -= len(batch)
                yield batch

    def info(self) -> list[str]:
        """Names of the loaded generators, the first run's first."""
        return list(dict.fromkeys([*self.first, *(name for run in self.further.loaded.values() for name in run)]))


def build_generators(configs: Sequence[GeneratorConfig], run_dir: str) -> dict[str, Generator]:
    """Generators by name; recorded ones find their candidates by the problems of the run directory."""
    problems: tuple[Problem, ...] = ()
    if any(config.kind == "recorded" for config in configs) and (run := RunDir(run_dir)).has_problems():
        problems = tuple(row.problem for row in run.problems())
    return {config.name: build_generator(config, problems=problems) for config in configs}


async def _draw(
    name: str,
    generators: Generators,
    requests: Sequence[GenerationRequest],
    arrivals: "asyncio.Queue[Candidate]",
    trace: Trace,
    may_repeat: bool,
) -> None:
    """Put exactly one candidate per request, even if the generator fails."""
    facts: tracing.Attributes = {"raydebm.generator": name, "raydebm.num_candidates": len(requests)}
    waiting, started = {request.candidate_id: request for request in requests}, time.perf_counter()
    with tracing.span("generator", facts, parent=trace) as span:
        reason = f"generator {name!r} gave no answer to this request"
        is_endpoint = isinstance(generators.get(name), OpenAIApiGenerator)
        try:
            if name not in generators:
                raise GenerationError(f"generator {name!r} is not loaded; loaded: {', '.join(generators)}")
            options = {"may_repeat": may_repeat} if is_endpoint else {}
            async for candidate in generators[name].stream(requests, **options):
                if waiting.pop(candidate.candidate_id, None) is None:
                    continue
                arrivals.put_nowait(candidate)
                if not is_endpoint:  # endpoints trace each request themselves, because its headers name the span
                    seconds, failed = time.perf_counter() - started, "no_answer" if candidate.text is None else None
                    tracing.past_span("candidate", candidate_facts(candidate), seconds=seconds, failed=failed)
        except Exception as error:
            # A model or an endpoint may fail in any way; the other generators' candidates must survive.
            log.exception("generator %r failed", name)
            reason = f"generator {name!r} failed: {error}"
        for request in waiting.values():
            arrivals.put_nowait(unanswered(request, reason))
        span.set({"raydebm.num_missing": len(waiting)})


# ---- the ensemble ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedEnsemble:
    """An ensemble and its backbone."""

    scorer: "EnsembleScorer"
    backbone: "Backbone"


class Ensembles(OnDemand[CheckpointRef, LoadedEnsemble]):
    """Ensembles by checkpoint. Each backbone is in memory once, and is unloaded with the last of its ensembles.

    ``get`` raises CheckpointError if an ensemble cannot be read, or its folder now has another one."""

    def __init__(
        self, *, device: str = "auto", dtype: str = "auto", clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(self.read, idle_s=ENSEMBLE_IDLE_S, clock=clock)
        self._device, self._dtype = device, dtype

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the loaded ensembles, the most recently used last."""
        return [ref.fingerprint for ref in self.loaded]

    @property
    def latest(self) -> "EnsembleScorer":
        """The most recently used ensemble."""
        return list(self.loaded.values())[-1].scorer

    def read(self, ref: CheckpointRef) -> LoadedEnsemble:
        """Read an ensemble, on a loaded backbone if it is the same."""
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
        known = [ensemble.backbone for ensemble in self.loaded.values()]
        backbone = backbone_for(record, device=self._device, dtype=self._dtype, loaded=known)
        return LoadedEnsemble(EnsembleScorer.of_parts(record, adapters, backbone=backbone), backbone)


Work = tuple[TextScorer, TextToScore]
"""One text of a call, and its ensemble."""


class ScorerDeployment:
    """The ensemble. Concurrent requests take turns in short shared batches."""

    def __init__(self, checkpoint: str, device: str = "auto", dtype: str = "auto") -> None:
        prepare_replica("scorer")
        self._ensembles = Ensembles(device=device, dtype=dtype)
        self._first = read_ref(checkpoint)
        self._ensembles.put(self._first, self._ensembles.read(self._first))
        self._queue: SliceQueue[Work, Energies | None] = SliceQueue(
            self.score_parts, size=lambda work: len(work[1].prompt) + len(work[1].text)
        )
        self._num_calls = self._num_batches = 0

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Apply ``user_config`` of serve_config.yaml (``max_batch_texts`` and ``batch_s``) without a restart."""
        self._queue.max_texts = int(user_config.get("max_batch_texts", MAX_TEXTS))
        self._queue.slice_s = float(user_config.get("batch_s", SLICE_S))

    async def load(self, checkpoint: CheckpointRef) -> None:
        """Load other adapters before requests name them. Raises CheckpointError; loaded ones remain."""
        await self._ensembles.get(checkpoint)

    async def score(
        self, texts: Sequence[TextToScore], checkpoint: CheckpointRef | None = None, trace: Trace = None
    ) -> list[Energies | None]:
        """Energies in the order of the texts; None for a text with a NaN energy. Raises CheckpointError."""
        self._num_calls += 1
        wanted = checkpoint or self._first
        facts: tracing.Attributes = {"raydebm.checkpoint": wanted.fingerprint, "raydebm.num_candidates": len(texts)}
        with tracing.span("ensemble", facts, parent=trace):
            ensemble = (await self._ensembles.get(wanted)).scorer
            return await self._queue.submit([(ensemble, text) for text in texts])

    def score_parts(self, parts: Sequence[Sequence[Work]]) -> list[list[Energies | None]]:
        """Score one batch of parts of several calls: one pass per ensemble. There are several only with
        further runs, or during an exchange of adapters."""
        self._num_batches += 1
        by_place: dict[int, list[Energies | None]] = {}
        for ensemble in dict.fromkeys(part[0][0] for part in parts):
            places = [place for place, part in enumerate(parts) if part[0][0] is ensemble]
            energies = energies_of_lists(ensemble, [[text for _, text in parts[place]] for place in places])
            by_place.update(zip(places, energies, strict=True))
        return [by_place[place] for place in range(len(parts))]

    def info(self) -> dict[str, Any]:
        """Loaded adapters, and batching: ``calls`` requests in ``batches`` passes."""
        return {
            "adapters": list(self._ensembles.latest.adapters),
            "checkpoints": self._ensembles.fingerprints,
            "calls": self._num_calls,
            "batches": self._num_batches,
        }


# ---- baselines and checks -------------------------------------------------------------------------------------------


class BaselineDeployment:
    """The baselines whose scores are evidence. Calls run one at a time, because each fills the device."""

    def __init__(self, configs: Sequence[BaselineConfig], run_dir: str) -> None:
        """The run directory has the checkpoints of baselines trained on its pairs."""
        from raydebm.evaluation.baselines.evidence import EvidenceScorers

        prepare_replica("baselines")
        self._scorers = EvidenceScorers.load(configs, RunDir(run_dir))
        self._turn = asyncio.Lock()

    async def score(self, texts: Sequence[TextToScore], trace: Trace = None) -> list[Mapping[str, float]]:
        """Scores by baseline name per text, in order."""
        with tracing.span("baselines", {"raydebm.num_candidates": len(texts)}, parent=trace):
            async with self._turn:
                return await asyncio.to_thread(self._scorers.scores, [(text.prompt, text.text) for text in texts])


class ConstraintDeployment:
    """The tasks' gold-free checks, in child processes, because a check may hang."""

    def __init__(self) -> None:
        prepare_replica("constraints")
        self._reporter = Reporter(deadline_s=DEADLINE_S)
        self._reporter.start()

    async def check(
        self, problem: Problem, candidates: Sequence[Candidate], trace: Trace = None, task: TaskConfig | None = None
    ) -> list[ConstraintReport]:
        """One report per candidate, in order; a check that crashes or hangs gives a report with ``error``. A task
        defined by a user is in the recipe's section ``task``; others are found by name."""
        facts: tracing.Attributes = {"raydebm.task": problem.task, "raydebm.num_candidates": len(candidates)}
        with tracing.span("constraints", facts, parent=trace):
            # A limit per call makes calls take turns, and a cancelled call adds no more checks.
            places = asyncio.Semaphore(self._reporter.max_children)

            async def report(candidate: Candidate) -> ConstraintReport:
                async with places:
                    return await asyncio.wrap_future(self._reporter.submit(problem, candidate, task))

            return list(await asyncio.gather(*map(report, candidates)))


SLICE_S = 0.05
MAX_TEXTS = 256
"""Maximum number of items per slice."""
FIRST_CHARS = 1_000
"""Characters of a slice before the speed is known: few, because slices grow quickly and a long one delays others."""
GROWTH = 2.0

W = TypeVar("W")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Call(Generic[W, R]):
    """One call and its results so far."""

    work: Sequence[W]
    done: "asyncio.Future[None]"
    results: list[R] = field(default_factory=list)
    num_taken: int = 0


class SliceQueue(Generic[W, R]):
    """Run the work of concurrent calls, one slice at a time."""

    def __init__(
        self,
        run: Callable[[Sequence[Sequence[W]]], Sequence[Sequence[R]]],
        *,
        size: Callable[[W], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``run`` is called in a thread with a slice, as items per call, and returns results per call, in order."""
        self._run, self._size, self._clock = run, size, clock
        self.slice_s, self.max_texts = SLICE_S, MAX_TEXTS
        self._chars = float(FIRST_CHARS)
        self._waiting: deque[_Call[W, R]] = deque()
        """Calls with items left, the next in turn first."""
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, work: Sequence[W]) -> list[R]:
        """Return the results of the items, in their order. The remaining items of a cancelled call are dropped."""
        if not work:
            return []
        call: _Call[W, R] = _Call(work, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            await call.done
        finally:
            if call in self._waiting:
                self._waiting.remove(call)
        return call.results

    async def _work(self) -> None:
        while self._waiting:
            taken = self._next_slice()
            began = self._clock()
            try:
                results = await asyncio.to_thread(self._run, list(taken.values()))
            except Exception as error:  # noqa: BLE001 - the calls in this slice raise the error
                for call in taken:
                    if not call.done.done():
                        call.done.set_exception(error)
                    if call in self._waiting:
                        self._waiting.remove(call)
                continue
            self._learn([self._size(item) for items in taken.values() for item in items], self._clock() - began)
            for call, call_results in zip(taken, results, strict=True):
                call.results.extend(call_results)
                if len(call.results) == len(call.work) and not call.done.done():
                    call.done.set_result(None)

    def _next_slice(self) -> dict[_Call[W, R], list[W]]:
        taken: dict[_Call[W, R], list[W]] = {}
        num_chars = num_items = 0
        while self._waiting and num_items < self.max_texts:
            call = self._waiting[0]
            size = self._size(call.work[call.num_taken])
            if taken and num_chars + size > self._chars:
                break
            taken.setdefault(call, []).append(call.work[call.num_taken])
            num_chars, num_items, call.num_taken = num_chars + size, num_items + 1, call.num_taken + 1
            self._waiting.popleft()
            if call.num_taken < len(call.work):
                self._waiting.append(call)
        return taken

    def _learn(self, sizes: Sequence[int], seconds: float) -> None:
        """Shrink when a slice of several items takes too long; grow while full ones take less than half of the time."""
        if seconds > self.slice_s and len(sizes) > 1:
            self._chars = sum(sizes) * max(1 / GROWTH, self.slice_s / seconds)
        elif seconds < self.slice_s / GROWTH and sum(sizes) * GROWTH >= self._chars:
            self._chars *= GROWTH
