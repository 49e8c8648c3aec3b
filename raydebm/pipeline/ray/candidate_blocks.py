"""Generation with Ray Data: blocks of requests in, blocks of candidates out.

Endpoints and local models run side by side, as one dataset each. Small batches, such as a late wave or a later pass,
run as tasks in existing processes. One row per candidate; a failed request is a row with ``error``. Every answer is in
the journal before it is in a block, so that a restart repeats no answered request. Requests are stored in spools of the
run, and Ray Data carries only their addresses.

Columns of requests: ``run.tables.REQUESTS``. Columns of candidates: ``run.tables.CANDIDATES``.
"""

import asyncio
import collections.abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import ray.data
from ray.data import ActorPoolStrategy

from raydebm.config import GenerationConfig, GeneratorConfig, TransformersGenerator
from raydebm.errors import RaydebmError
from raydebm.generators import Generator, Secret, build_generator, collect
from raydebm.generators.endpoint.openai_api import EndpointAccess
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.journal import Journal
from raydebm.generators.requests import unanswered
from raydebm.pipeline.ray.pooled import map_in_tasks
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.folder import Folder
from raydebm.run.spool import Spool, read_slices, slice_rows
from raydebm.run.tables import CANDIDATES, REQUESTS

HTTP_TASK_ROWS = 256
"""Maximum number of requests per process for one task. They return together, so all should be in flight at once. A new
actor takes longer to start than many endpoints take to answer."""
_HTTP_BLOCK_ROWS = 64
_HTTP_CPUS = 0.25
_LOCAL_CPUS = 1.0
Blocks = collections.abc.Generator[pa.Table, None, None]
"""Answers as they arrive. Closing it ends the actors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Arguments of a generating actor. Small, because Ray keeps them for restarts."""

    configs: tuple[GeneratorConfig, ...]
    keys: dict[str, Secret]
    journal: str
    max_usd: float | None
    elsewhere_usd: float
    num_in_flight: int


class GenerateSlices:
    """Ray Data actor that answers the requests of one slice per call. Several calls overlap on its event loop."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._configs = {config.name: config for config in setup.configs}
        self._journal = Journal(setup.journal)
        self._budget = Budget(setup.max_usd, self._journal, elsewhere_usd=setup.elsewhere_usd)
        self._slots: asyncio.Semaphore | None = None
        self._generators: dict[str, Generator | RaydebmError] = {}

    async def __call__(self, block: pa.Table) -> pa.Table:
        by_generator: dict[str, list[GenerationRequest]] = {}
        for row in pa.concat_tables(read_slices(block)).to_pylist():
            request = REQUESTS.record(row)
            by_generator.setdefault(request.generator, []).append(request)
        answers = await asyncio.gather(*(self._answers(name, group) for name, group in by_generator.items()))
        rows = [CANDIDATES.row(candidate) for group in answers for candidate in group]
        return pa.Table.from_pylist(rows, schema=CANDIDATES.schema)

    async def _answers(self, name: str, requests: list[GenerationRequest]) -> list[Candidate]:
        generator = self._generator(name)
        if isinstance(generator, RaydebmError):
            return [unanswered(request, str(generator)) for request in requests]
        return await collect(generator, requests)

    def close(self) -> None:
        self._journal.close()

    async def aclose(self) -> None:
        """Close the connections, on their event loop."""
        for generator in self._generators.values():
            if not isinstance(generator, RaydebmError):
                await generator.aclose()

    def _generator(self, name: str) -> Generator | RaydebmError:
        """The generator of a name, built on first use, because semaphores and sessions belong to the running loop."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._setup.num_in_flight)
        if name not in self._generators:
            access = EndpointAccess(budget=self._budget, key=self._setup.keys.get(name), shared_slots=self._slots)
            try:
                self._generators[name] = build_generator(
                    self._configs[name], access=access, journal=self._journal, threads=1
                )
            except RaydebmError as error:  # one model that cannot be loaded must not stop the others
                self._generators[name] = error
        return self._generators[name]


class GenerateShare(GenerateSlices):
    """``GenerateSlices`` for a task, whose process serves other tasks afterwards."""

    async def __call__(self, block: pa.Table) -> pa.Table:
        try:
            return await super().__call__(block)
        finally:
            await self.aclose()


class WaitingRequests:
    """Requests to generators that run at the same time, in two spools: endpoints and local models."""

    def __init__(
        self, configs: Sequence[GeneratorConfig], generation: GenerationConfig, folder: Folder, *parts: str, total: int
    ) -> None:
        """Start with empty spools below a path of the folder. ``total``: number of requests, or an upper bound."""
        self.names = {config.name for config in configs}
        self._generation, self._total = generation, total
        self._batch_sizes = {
            config.name: config.batch_size for config in configs if isinstance(config, TransformersGenerator)
        }
        self.http, self.local = Spool(folder, *parts, "http"), Spool(folder, *parts, "local")

    @property
    def num_requests(self) -> int:
        """Number of written requests."""
        return self.http.num_rows + self.local.num_rows

    def add(self, requests: Sequence[GenerationRequest]) -> None:
        """Write the requests to these generators; others are ignored."""
        by_generator: dict[str, list[GenerationRequest]] = {}
        for request in requests:
            if request.generator in self.names:
                by_generator.setdefault(request.generator, []).append(request)
        local = {name: own for name, own in by_generator.items() if name in self._batch_sizes}
        share = max(1, -(-sum(map(len, local.values())) // self._generation.num_processes))
        for name, own in local.items():  # similar lengths together, in multiples of the model's batch
            own.sort(key=lambda one: (sum(len(message["content"]) for message in one.messages), one.problem_id))
            size = min(slice_rows(self._total, at_least=self._batch_sizes[name]), share)
            _write(self.local, own, size=size)
        # Endpoints alternate, so that all are busy from the start.
        turns = zip_longest(*(own for name, own in by_generator.items() if name not in local))
        alternating = [request for turn in turns for request in turn if request is not None]
        _write(self.http, alternating, size=slice_rows(self._total, at_least=_HTTP_BLOCK_ROWS))

    def answer(self, setup: Setup, take: Callable[[pa.Table], None], *, num_gpus: float) -> None:
        """Stream the answers of endpoints and of local models at the same time.

        Args:
            take: called with each block, in two threads.
            num_gpus: GPUs for local models.
        """

        def consume(blocks: Blocks) -> None:
            # Closed here: after an error the traceback would keep the blocks, and with them running actors.
            with contextlib.closing(blocks):
                for block in blocks:
                    take(block)

        streams = [self._http_answers(setup), self._local_answers(setup, num_gpus)]
        with ThreadPoolExecutor(max_workers=len(streams)) as pool:
            for done in [pool.submit(consume, blocks) for blocks in streams]:
                done.result()

    def _http_answers(self, setup: Setup) -> Blocks:
        """Run few requests in tasks, a share of the slices each; many in actors.

        An actor works on many blocks at once, because it would drain at the end of each block otherwise. It holds twice
        as many rows as may be in flight.
        """
        num_processes, num_in_flight = self._generation.num_processes, self._generation.num_in_flight
        addresses = self.http.addresses
        if self.http.num_rows <= num_processes * min(HTTP_TASK_ROWS, num_in_flight):
            shares = (pa.concat_tables(addresses[at::num_processes]) for at in range(num_processes) if addresses[at:])
            yield from _in_tasks(setup, shares, num_cpus=_HTTP_CPUS, num_at_once=num_processes)
            return
        overlap = max(4, 2 * -(-num_in_flight // _HTTP_BLOCK_ROWS))
        yield from _in_actors(
            addresses, setup, num_actors=num_processes, max_concurrency=overlap, num_cpus=_HTTP_CPUS, num_gpus=0.0
        )

    def _local_answers(self, setup: Setup, num_gpus: float) -> Blocks:
        """Run in tasks if there is at most one block per process, on CPUs: a later pass of few problems."""
        addresses, num_processes = self.local.addresses, self._generation.num_processes
        if len(addresses) <= num_processes and not num_gpus:
            yield from _in_tasks(setup, iter(addresses), num_cpus=_LOCAL_CPUS, num_at_once=num_processes)
        elif addresses:
            num_actors = min(num_processes, len(addresses))
            yield from _in_actors(
                addresses,
                setup,
                num_actors=num_actors,
                max_concurrency=1,
                num_cpus=_LOCAL_CPUS,
                num_gpus=min(1.0, num_gpus / num_actors),
            )


def _write(spool: Spool, requests: Sequence[GenerationRequest], *, size: int) -> None:
    for start in range(0, len(requests), size):
        rows = [REQUESTS.row(request) for request in requests[start : start + size]]
        spool.add(pa.Table.from_pylist(rows, schema=REQUESTS.schema))


def _in_tasks(setup: Setup, shares: Iterator[pa.Table], *, num_cpus: float, num_at_once: int) -> Iterator[pa.Table]:
    return map_in_tasks(GenerateShare, {"setup": setup}, shares, num_cpus=num_cpus, num_at_once=num_at_once)


def _in_actors(
    addresses: list[pa.Table],
    setup: Setup,
    *,
    num_actors: int,
    max_concurrency: int,
    num_cpus: float,
    num_gpus: float,
) -> Blocks:
    answered = ray.data.from_arrow(addresses).map_batches(
        GenerateSlices,
        # Ray Data needs a number with GPUs; None keeps blocks whole.
        batch_size=1 if num_gpus else None,
        batch_format="pyarrow",
        fn_constructor_args=(setup,),
        compute=ActorPoolStrategy(
            size=num_actors,
            max_tasks_in_flight_per_actor=max_concurrency + 1,
            max_concurrent_calls_per_actor=max_concurrency,
        ),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
    yield from answered.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
