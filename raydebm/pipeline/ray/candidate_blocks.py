"""Generation with Ray Data: blocks of requests in, blocks of candidates out.

Endpoints and local models run side by side, as one dataset each. Small batches, such as a late wave or a later pass,
run as tasks in existing processes. One row per candidate; a failed request is a row with ``error``. Every answer is in
the journal before it is in a block, so that a restart repeats no answered request. Requests are stored in spools of the
run, and Ray Data carries only their addresses.

Input columns: those of ``request_row``, and ``position``. Output columns: ``run.tables.CANDIDATES``, and ``position``.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeGuard

import pyarrow as pa
import ray.data
from ray.data import ActorPoolStrategy

from raydebm.config import (
    GenerationConfig,
    GeneratorConfig,
    TransformersGenerator,
)
from raydebm.errors import RaydebmError
from raydebm.generators import Budget, EndpointAccess, Generator, Journal, Secret, build_generator, collect
from raydebm.generators.requests import request_of, request_row, unanswered
from raydebm.generators.sink import WITH_POSITION, Blocks, CandidateSink, Placed
from raydebm.pipeline.ray.pooled import map_in_tasks
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.spool import POSITION, Spool, read_slices, slice_rows, with_position
from raydebm.run.tables import CANDIDATES

WINDOW_REQUESTS = 4096
"""Requests that are arranged into blocks together, and held in the driver's memory."""
HTTP_TASK_ROWS = 256
"""Maximum number of requests per process for one task. They return together, so all should be in flight at once. A new
actor takes longer to start than many endpoints to answer."""

_HTTP_BLOCK_ROWS = 64
_HTTP_CPUS = 0.25
_REQUESTS = with_position(
    pa.schema(
        [
            ("task", pa.string()),
            ("problem_id", pa.string()),
            ("generator", pa.string()),
            ("messages_json", pa.string()),
            ("temperature", pa.float64()),
            ("top_p", pa.float64()),
            ("max_tokens", pa.int32()),
            ("stop_json", pa.string()),
            ("seed", pa.int64()),
            ("pass_index", pa.int32()),
            ("sample_index", pa.int32()),
            ("response_format", pa.string()),
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Arguments of a generating actor. Small, because Ray keeps them for restarts."""

    configs: tuple[GeneratorConfig, ...]
    keys: dict[str, Secret]
    journal: str
    max_usd: float | None
    elsewhere_usd: float
    num_in_flight: int
    threads: int


class GenerateBlocks:
    """Ray Data actor that answers one block of requests per call. Several calls overlap on its event loop.

    Input columns: the request columns and ``position``. Output columns: the candidate columns and ``position``.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._configs = {config.name: config for config in setup.configs}
        self._journal = Journal(setup.journal)
        self._budget = Budget(setup.max_usd, self._journal, elsewhere_usd=setup.elsewhere_usd)
        self._slots: asyncio.Semaphore | None = None
        self._generators: dict[str, Generator | RaydebmError] = {}

    async def __call__(self, block: pa.Table) -> pa.Table:
        rows = block.to_pylist()
        requests = [request_of(row) for row in rows]
        by_generator: dict[str, list[GenerationRequest]] = {}
        for request in requests:
            by_generator.setdefault(request.generator, []).append(request)
        answers = await asyncio.gather(*(self._answers(name, group) for name, group in by_generator.items()))
        by_id = {candidate.candidate_id: candidate for group in answers for candidate in group}
        return pa.Table.from_pylist(
            [
                CANDIDATES.row(by_id[request.candidate_id]) | {POSITION: row[POSITION]}
                for row, request in zip(rows, requests, strict=True)
            ],
            schema=WITH_POSITION,
        )

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
            try:
                self._generators[name] = build_generator(
                    self._configs[name],
                    access=EndpointAccess(
                        budget=self._budget,
                        key=self._setup.keys.get(name),
                        shared_slots=self._slots,
                    ),
                    journal=self._journal,
                    threads=self._setup.threads,
                )
            except RaydebmError as error:  # one model that cannot be loaded must not stop the others
                self._generators[name] = error
        return self._generators[name]


class GenerateSlices(GenerateBlocks):
    """``GenerateBlocks`` for slices of a spool. Input column: ``address``."""

    async def __call__(self, block: pa.Table) -> pa.Table:
        return await super().__call__(pa.concat_tables(read_slices(block)))


class GenerateShare(GenerateSlices):
    """``GenerateSlices`` for a task, whose process serves other tasks afterwards."""

    async def __call__(self, block: pa.Table) -> pa.Table:
        try:
            return await super().__call__(block)
        finally:
            await self.aclose()


class RequestSpool:
    """Waiting requests for one kind of generators, arranged into blocks within windows."""

    def __init__(self, spool: Spool, blocks_of: Callable[[Sequence[Placed]], Iterable[Sequence[Placed]]]) -> None:
        """Start with an empty spool.

        Args:
            spool: an empty spool.
            blocks_of: function that arranges a window's requests into blocks.
        """
        self.spool = spool
        self._blocks_of = blocks_of
        self._window: list[Placed] = []

    def add(self, placed: Placed) -> None:
        """Add a request. Call ``flush`` after the last one."""
        self._window.append(placed)
        if len(self._window) == WINDOW_REQUESTS:
            self.flush()

    def flush(self) -> None:
        """Write the pending requests."""
        for block in self._blocks_of(self._window):
            rows = [request_row(request) | {POSITION: position} for position, request in block]
            self.spool.add(pa.Table.from_pylist(rows, schema=_REQUESTS))
        self._window = []


class GroupSpools:
    """Requests to generators that run at the same time: endpoints and local models."""

    def __init__(
        self,
        configs: Sequence[GeneratorConfig],
        generation: GenerationConfig,
        make_spool: Callable[[str], Spool],
        *,
        total: int,
    ) -> None:
        """Start with empty spools.

        Args:
            configs: generators of the group.
            generation: settings of the block sizes.
            make_spool: function from a name such as ``http`` to an empty spool.
            total: number of requests, or an upper bound.
        """
        self.names = {config.name for config in configs}
        self._generation = generation
        self._batch_sizes = {config.name: config.batch_size for config in configs if _is_local(config)}
        self._total = total
        self.http = RequestSpool(make_spool("http"), self._http_blocks)
        self.local = RequestSpool(make_spool("local"), self._local_blocks)

    def add(self, placed: Placed) -> None:
        """Add a request to one of the generators. Call ``flush`` after the last one."""
        name = placed[1].generator
        (self.local if name in self._batch_sizes else self.http).add(placed)

    def flush(self) -> None:
        """Write the pending requests."""
        self.http.flush()
        self.local.flush()

    @property
    def num_requests(self) -> int:
        """Number of written requests."""
        return self.http.spool.num_rows + self.local.spool.num_rows

    def _http_blocks(self, placed: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
        """Alternate between endpoints, so that all are busy from the start."""
        by_generator: dict[str, list[Placed]] = {}
        for placed_request in placed:
            by_generator.setdefault(placed_request[1].generator, []).append(placed_request)
        alternating = [entry for turn in zip_longest(*by_generator.values()) for entry in turn if entry is not None]
        return _chunks(alternating, slice_rows(self._total, at_least=_HTTP_BLOCK_ROWS))

    def _local_blocks(self, placed: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
        """Group requests of one generator by similar length, in multiples of its batch size."""
        share = max(1, -(-len(placed) // self._generation.num_processes))
        for name, size in self._batch_sizes.items():
            mine = sorted(
                (placed_request for placed_request in placed if placed_request[1].generator == name),
                key=lambda placed_request: (
                    sum(len(message["content"]) for message in placed_request[1].messages),
                    placed_request[1].problem_id,
                ),
            )
            yield from _chunks(mine, min(slice_rows(self._total, at_least=size), share))


def _is_local(config: GeneratorConfig) -> TypeGuard[TransformersGenerator]:
    return isinstance(config, TransformersGenerator)


def stream(
    spools: GroupSpools, *, setup: Setup, generation: GenerationConfig, sink: CandidateSink, num_gpus: float
) -> None:
    """Stream the blocks of endpoints and of local models at the same time.

    Args:
        num_gpus: GPUs for local models.
    """
    streams = [
        _http_answers(spools.http.spool, setup, generation),
        _local_answers(spools.local.spool, setup, generation, num_gpus),
    ]
    with ThreadPoolExecutor(max_workers=len(streams)) as pool:
        for done in [pool.submit(sink.consume, blocks) for blocks in streams]:
            done.result()


def _http_answers(spool: Spool, setup: Setup, generation: GenerationConfig) -> Blocks:
    """Run few requests in tasks, a share of the slices each; many in actors.

    An actor works on many blocks at once, because it would drain at the end of each block otherwise. It holds twice as
    many rows as may be in flight.
    """
    num_processes = generation.num_processes
    if spool.num_rows <= num_processes * min(HTTP_TASK_ROWS, generation.num_in_flight):
        addresses = spool.addresses
        shares = (
            pa.concat_tables(addresses[first::num_processes]) for first in range(min(num_processes, len(addresses)))
        )
        yield from map_in_tasks(GenerateShare, {"setup": setup}, shares, num_cpus=_HTTP_CPUS, num_at_once=num_processes)
        return
    overlap = max(4, 2 * -(-generation.num_in_flight // _HTTP_BLOCK_ROWS))
    yield from _in_actors(
        spool, setup, num_actors=num_processes, max_concurrency=overlap, num_cpus=_HTTP_CPUS, num_gpus=0.0
    )


def _local_answers(spool: Spool, setup: Setup, generation: GenerationConfig, num_gpus: float) -> Blocks:
    """Run in tasks if there is at most one block per process, on CPUs: a later pass of few problems."""
    if not spool.num_slices:
        return
    num_processes = generation.num_processes
    wants_gpu = num_gpus > 0 and any(map(_is_local, setup.configs))
    if spool.num_slices <= num_processes and not wants_gpu:
        yield from map_in_tasks(
            GenerateBlocks, {"setup": setup}, spool.tables(), num_cpus=1.0, num_at_once=num_processes
        )
        return
    num_actors = min(num_processes, spool.num_slices)
    yield from _in_actors(
        spool,
        setup,
        num_actors=num_actors,
        max_concurrency=1,
        num_cpus=1.0,
        num_gpus=min(1.0, num_gpus / num_actors) if wants_gpu else 0.0,
    )


def _in_actors(
    spool: Spool, setup: Setup, *, num_actors: int, max_concurrency: int, num_cpus: float, num_gpus: float
) -> Blocks:
    if not spool.num_slices:
        return
    answered = ray.data.from_arrow(spool.addresses).map_batches(
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


def _chunks(items: Sequence[Placed], size: int) -> Iterator[Sequence[Placed]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
