"""Candidates by Ray Data: requests stream through actors that hold the generators, answers stream into Parquet.

Endpoints and local models run side by side, as one dataset each. One row per candidate; a failed request is a row with
``error``. Every answer is in the journal before it is in a block, so a killed run repeats nothing that was answered.

Columns needed: those of ``request_row``, and ``position``. Columns made: ``store.CANDIDATES``, and ``position``.
"""

import asyncio
import collections.abc
import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from ray.data import ActorPoolStrategy

from raydebm.config import GeneratorConfig, Recipe, TransformersGenerator
from raydebm.distributed.pooled import map_in_tasks
from raydebm.distributed.spending import Account
from raydebm.distributed.vllm import beside_servers, running_endpoints
from raydebm.errors import RaydebmError, UnknownNameError
from raydebm.generators import Budget, Generator, Journal, Secret, build_generator, check_keys, collect
from raydebm.generators.recorded import recorded_generators
from raydebm.generators.requests import request_of, request_row, unanswered
from raydebm.generators.tally import GenerationSummary, Tally, check_enough
from raydebm.records import Candidate, GenerationRequest, Problem
from raydebm.store import CANDIDATES, RunDir, candidate_row

_LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told (rows done, rows in all) after every block."""

_HTTP_BLOCK_ROWS = 64
_POSITION = pa.field("position", pa.int64())
_WITH_POSITION = pa.schema([*CANDIDATES, _POSITION])
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
        _POSITION,
    ]
)
Placed = tuple[int, GenerationRequest]
"""A request and its place in the table that is being made."""
_Blocks = collections.abc.Generator[pa.Table, None, None]
"""Answers as they come. Closing it ends the actors that make them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
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

    def __init__(self, setup: _Setup) -> None:
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
                candidate_row(found[request.candidate_id]) | {"position": row["position"]}
                for row, request in zip(rows, requests, strict=True)
            ],
            schema=_WITH_POSITION,
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
                    journal=self._journal,
                    budget=self._budget,
                    key=self._setup.keys.get(name),
                    shared_slots=self._slots,
                    threads=self._setup.threads,
                )
            except RaydebmError as error:  # one model that cannot be loaded must not stop the others
                self._generators[name] = error
        return self._generators[name]


def generate(
    requests: Sequence[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    stage: str = "candidates",
    on_progress: Progress | None = None,
    problems: Iterable[Problem] = (),
    account: Account | None = None,
) -> GenerationSummary:
    """Answer all requests and write ``<run>/<stage>/candidates.parquet`` in their order, then the manifest.

    Ray is initialised by the caller. Answers found in the journal are reused. A request that occurs twice is answered
    once.

    Args:
        problems: lets recorded pools be joined by the source's own problem ids.
        account: the journal, and the run whose limit counts; None: ``<run>/<stage>/journal/``.

    Raises:
        MissingKeyError: an endpoint's key is not in the environment; nothing was sent.
        UnknownNameError: a request names a generator that the recipe lacks; nothing was sent.
        PoolError: too many requests failed; the answers stay in the journal.
        ResourceError: a vLLM server is to be started and cannot be, or it leaves no GPU to a local model that asks
            for one.
    """
    started = time.monotonic()
    placed = list(enumerate({request.candidate_id: request for request in requests}.values()))
    configs = _asked(recipe, placed)
    keys = check_keys(configs)
    account = account or Account(run, (stage, "journal"))
    with tempfile.TemporaryDirectory(prefix="raydebm-") as folder:
        sink = _Sink(Path(folder), total=len(placed), on_progress=on_progress)
        placed = sink.write_reused(placed, Journal(account.folder))
        placed = _replay_recorded(placed, configs, problems, sink)
        if placed:
            num_gpus = _cluster_gpus()
            configs, left_gpus = beside_servers(configs, num_gpus=num_gpus)
            with running_endpoints(configs, num_gpus=num_gpus) as reachable:
                setup = _Setup(
                    configs=reachable,
                    keys=keys,
                    journal=account.folder,
                    max_usd=recipe.generation.max_usd,
                    elsewhere_usd=account.elsewhere_usd(recipe),
                    num_in_flight=recipe.generation.num_in_flight,
                    threads=recipe.ray.threads_per_worker,
                )
                _stream(placed, setup=setup, recipe=recipe, sink=sink, num_gpus=left_gpus)
        summary = sink.tally.summary(seconds=time.monotonic() - started)
        check_enough(summary, max_failed_frac=recipe.generation.max_failed_frac, journal=account.folder)
        run.write_bytes(sink.assembled(), stage, "candidates.parquet")
    if summary.num_failed:
        _LOG.warning("%d of %d requests failed: %s", summary.num_failed, summary.num_requests, summary.errors)
    run.finish(stage, summary.facts())
    return summary


def _asked(recipe: Recipe, placed: Sequence[Placed]) -> tuple[GeneratorConfig, ...]:
    """The recipe's generators that some request names."""
    known = {config.name: config for config in recipe.generators}
    names = dict.fromkeys(request.generator for _, request in placed)
    for name in names:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    return tuple(known[name] for name in names)


def _replay_recorded(
    placed: list[Placed], configs: Sequence[GeneratorConfig], problems: Iterable[Problem], sink: "_Sink"
) -> list[Placed]:
    """Answer the requests to recorded pools here, which is a look-up; returns the others."""
    recorded: set[str] = set()
    for generator in recorded_generators(configs, problems=problems):
        recorded.add(generator.name)
        mine = [(position, request) for position, request in placed if request.generator == generator.name]
        candidates = asyncio.run(collect(generator, [request for _, request in mine]))
        sink.write_candidates((position, found) for (position, _), found in zip(mine, candidates, strict=True))
    return [(position, request) for position, request in placed if request.generator not in recorded]


def _cluster_gpus() -> float:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return float(resources.get("GPU", 0.0))


def _stream(placed: Sequence[Placed], *, setup: _Setup, recipe: Recipe, sink: "_Sink", num_gpus: float) -> None:
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


def _http_blocks(placed: Sequence[Placed], setup: _Setup, recipe: Recipe) -> _Blocks:
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


def _local_blocks(placed: Sequence[Placed], setup: _Setup, recipe: Recipe, num_gpus: float) -> _Blocks:
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
    setup: _Setup,
    *,
    num_actors: int,
    max_concurrency: int,
    num_cpus: float,
    num_gpus: float,
) -> _Blocks:
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


class _Sink:
    """Takes rows in any order into part files on this machine's disk, counts them, and puts them in order at last."""

    def __init__(self, folder: Path, *, total: int, on_progress: Progress | None) -> None:
        self.tally = Tally()
        self._folder, self._total, self._on_progress = folder, total, on_progress
        self._lock = threading.Lock()
        self._num_parts = 0

    def consume(self, blocks: _Blocks) -> None:
        """Blocks are written as they come and not kept."""
        # Closed here: after an error the traceback would keep it, and with it the actors, which go on asking.
        with contextlib.closing(blocks):
            for block in blocks:
                self._write(block.select(_WITH_POSITION.names).cast(_WITH_POSITION))

    def write_reused(self, placed: Sequence[Placed], journal: Journal) -> list[Placed]:
        """Write what the journal holds; returns the requests that it does not."""
        answers = [(position, request, journal.get(request.candidate_id)) for position, request in placed]
        self.write_candidates(((position, found) for position, _, found in answers if found is not None), reused=True)
        return [(position, request) for position, request, found in answers if found is None]

    def write_candidates(self, candidates: Iterable[tuple[int, Candidate]], *, reused: bool = False) -> None:
        rows: list[dict[str, Any]] = [candidate_row(found) | {"position": position} for position, found in candidates]
        if rows:
            self._write(pa.Table.from_pylist(rows, schema=_WITH_POSITION), reused=reused)

    def _write(self, table: pa.Table, *, reused: bool = False) -> None:
        counted = table.select(["text", "error", "generator", "prompt_tokens", "completion_tokens", "cost_usd"])
        with self._lock:
            pq.write_table(table, self._folder / f"{self._num_parts:06d}.parquet")
            self._num_parts += 1
            self.tally.add(counted.to_pylist(), reused=reused)
            if self._on_progress is not None:
                self._on_progress(self.tally.num_rows, self._total)

    def assembled(self) -> bytes:
        """All rows in the order of the requests, as one Parquet file. Holds the table in memory once."""
        table = pq.read_table(self._folder, schema=_WITH_POSITION).sort_by("position").select(CANDIDATES.names)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content
