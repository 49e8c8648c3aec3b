"""Blocks of candidates from a generator that is waited for in a thread of its own, for hours if need be.

Columns needed: those of ``request_row``, and ``position``. Columns made: ``run.tables.CANDIDATES``, and ``position``.
Does not know: Ray, batches.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from raydebm.errors import GenerationError
from raydebm.generators.protocol import Generator
from raydebm.generators.requests import request_of
from raydebm.generators.sink import WITH_POSITION, Blocks
from raydebm.records import Candidate
from raydebm.run.placed_rows import POSITION
from raydebm.run.spool import Spool
from raydebm.run.tables import CANDIDATES

LOOK_S = 1.0
"""So often the waiting thread sees whether it is still wanted."""
_BLOCK_ROWS = 64

Rows = list[dict[str, Any]]


def windows(spool: Spool, size: int) -> Iterator[Rows]:
    """Rows of a spool: whole slices, at least one, and no more than ``size`` rows of several."""
    window: Rows = []
    for table in spool.tables():
        if window and len(window) + table.num_rows > size:
            yield window
            window = []
        window += table.to_pylist()
    if window:
        yield window


def awaited_blocks(
    open_generator: Callable[[], Generator], row_windows: Iterable[Rows], *, is_ending: threading.Event
) -> Blocks:
    """The candidates of one window after the other.

    Args:
        open_generator: called once, in the thread that reads the blocks.
        row_windows: requests with their places; those of one window are asked together.
        is_ending: set by another thread when the blocks are wanted no longer.

    Raises:
        GenerationError: it was set.
    """
    with asyncio.Runner() as runner:
        generator = open_generator()
        try:
            for rows in row_windows:
                requests = [request_of(row) for row in rows]
                places = {request.candidate_id: row[POSITION] for request, row in zip(requests, rows, strict=True)}
                candidates = generator.stream(requests)
                while block := runner.run(_next_block(candidates, is_ending)):
                    made = [CANDIDATES.row(one) | {POSITION: places[one.candidate_id]} for one in block]
                    yield pa.Table.from_pylist(made, schema=WITH_POSITION)
        finally:
            runner.run(generator.aclose())


async def _next_block(candidates: AsyncIterator[Candidate], is_ending: threading.Event) -> list[Candidate]:
    """The next candidates, at most a block of them; none at the end."""
    block: list[Candidate] = []
    while len(block) < _BLOCK_ROWS:
        coming = asyncio.ensure_future(_next_of(candidates))
        while not coming.done():
            await asyncio.wait([coming], timeout=LOOK_S)
            if is_ending.is_set() and not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                raise GenerationError("the run has ended before its batches did; the next one goes on with them")
        if (candidate := coming.result()) is None:
            break
        block.append(candidate)
    return block


async def _next_of(candidates: AsyncIterator[Candidate]) -> Candidate | None:
    return await anext(candidates, None)
