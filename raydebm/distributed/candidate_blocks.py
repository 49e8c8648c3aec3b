"""Requests through Ray Data: blocks of requests in, blocks of candidates out.

Endpoints and local models run side by side, as one dataset each. One row per candidate; a failed request is a row with
``error``. Every answer is in the journal before it is in a block, so a killed run repeats nothing that was answered.

Columns needed: those of ``request_row``, and ``position``. Columns made: ``run.tables.CANDIDATES``, and ``position``.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import ray.data
from ray.data import ActorPoolStrategy

from raydebm.config import GeneratorConfig, Recipe, TransformersGenerator
from raydebm.distributed.pooled import map_in_tasks
from raydebm.errors import RaydebmError
from raydebm.generators import Budget, EndpointAccess, Generator, Journal, Secret, build_generator, collect
from raydebm.generators.requests import request_of, request_row, unanswered
from raydebm.generators.sink import POSITION, WITH_POSITION, Blocks, CandidateSink, Placed
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.tables import CANDIDATES

_HTTP_BLOCK_ROWS = 64
_REQUESTS = pa.schema(
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
        POSITION,
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a generating actor is made from. Small, because Ray keeps it for restarts."""

    configs: tuple[GeneratorConfig, ...]
    keys: dict[str, Secret]
    journal: str
    max_usd: float | None
    elsewhere_usd: float
    num_in_flight: int
    threads: int


class GenerateBlocks:
    """Ray Data actor: answers one block of requests per call; several calls overlap on its event loop.

    Needs: the request columns and ``position``. Makes: the candidate columns and ``position``.
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
        found = {candidate.candidate_id: candidate for group in answers for candidate in group}
        return pa.Table.from_pylist(
            [
                CANDIDATES.row(found[request.candidate_id]) | {"position": row["position"]}
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

    def _generator(self, name: str) -> Generator | RaydebmError:
        """Built on first use, because semaphores and sessions belong to the running loop."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._setup.num_in_flight)
        if name not in self._generators:
            try:
                self._generators[name] = build_generator(
                    self._configs[name],
                    access=EndpointAccess(
                        budget=self._budget, key=self._setup.keys.get(name), shared_slots=self._slots
                    ),
                    journal=self._journal,
                    threads=self._setup.threads,
                )
            except RaydebmError as error:  # one model that cannot be loaded must not stop the others
                self._generators[name] = error
        return self._generators[name]


def stream(placed: Sequence[Placed], *, setup: Setup, recipe: Recipe, sink: CandidateSink, num_gpus: float) -> None:
    """Run one stream of blocks for endpoints and one for local models, at the same time.

    Args:
        num_gpus: what local models may have.
    """
    local = {config.name for config in setup.configs if isinstance(config, TransformersGenerator)}
    streams = [
        _http_blocks([item for item in placed if item[1].generator not in local], setup, recipe),
        _local_blocks([item for item in placed if item[1].generator in local], setup, recipe, num_gpus),
    ]
    with ThreadPoolExecutor(max_workers=len(streams)) as pool:
        for done in [pool.submit(sink.consume, blocks) for blocks in streams]:
            done.result()


def _http_blocks(placed: Sequence[Placed], setup: Setup, recipe: Recipe) -> Blocks:
    """Requests to different endpoints alternate, so that all endpoints are busy from the start.

    An actor works on many blocks at once: with one at a time it would drain at every block's end. Twice as many rows
    are in its hands as may be in flight.
    """
    overlap = max(4, 2 * -(-recipe.generation.num_in_flight // _HTTP_BLOCK_ROWS))
    yield from _in_actors(
        list(_chunks(_alternating(placed), _HTTP_BLOCK_ROWS)),
        setup,
        num_actors=recipe.generation.num_processes,
        max_concurrency=overlap,
        num_cpus=0.25,
        num_gpus=0.0,
    )


def _local_blocks(placed: Sequence[Placed], setup: Setup, recipe: Recipe, num_gpus: float) -> Blocks:
    """Blocks hold one generator's requests, of similar length, as many as decode together.

    Where each process would get one block, on a CPU, the blocks go to tasks: that is a later pass of few problems.
    """
    if not placed:
        return
    sizes = {config.name: config.batch_size for config in setup.configs if isinstance(config, TransformersGenerator)}
    num_processes = recipe.generation.num_processes
    blocks = []
    for name, size in sizes.items():
        mine = sorted(
            (item for item in placed if item[1].generator == name),
            key=lambda item: (sum(len(message["content"]) for message in item[1].messages), item[1].problem_id),
        )
        blocks += list(_chunks(mine, min(size, max(1, -(-len(placed) // num_processes)))))
    wants_gpu = num_gpus > 0 and any(
        isinstance(config, TransformersGenerator) and config.device in ("auto", "cuda") for config in setup.configs
    )
    if len(blocks) <= num_processes and not wants_gpu:
        yield from map_in_tasks(
            GenerateBlocks, {"setup": setup}, _tables(blocks), num_cpus=1.0, num_at_once=num_processes
        )
        return
    num_actors = min(num_processes, len(blocks))
    yield from _in_actors(
        blocks,
        setup,
        num_actors=num_actors,
        max_concurrency=1,
        num_cpus=1.0,
        num_gpus=min(1.0, num_gpus / num_actors) if wants_gpu else 0.0,
    )


def _in_actors(
    blocks: Sequence[Sequence[Placed]],
    setup: Setup,
    *,
    num_actors: int,
    max_concurrency: int,
    num_cpus: float,
    num_gpus: float,
) -> Blocks:
    if not blocks:
        return
    answered = ray.data.from_arrow(_tables(blocks)).map_batches(
        GenerateBlocks,
        # None keeps blocks whole; with GPUs Ray Data asks for a number, and may then join blocks, which changes nothing
        # but what decodes together.
        batch_size=max(map(len, blocks)) if num_gpus else None,
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


def _tables(blocks: Sequence[Sequence[Placed]]) -> list[pa.Table]:
    return [
        pa.Table.from_pylist(
            [request_row(request) | {"position": position} for position, request in block], schema=_REQUESTS
        )
        for block in blocks
    ]


def _alternating(placed: Sequence[Placed]) -> list[Placed]:
    queues: dict[str, list[Placed]] = {}
    for item in placed:
        queues.setdefault(item[1].generator, []).append(item)
    return [item for turn in zip_longest(*queues.values()) for item in turn if item is not None]


def _chunks(items: Sequence[Placed], size: int) -> Iterator[Sequence[Placed]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
