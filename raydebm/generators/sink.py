"""The table of candidates while it is being made: rows in any order into part files, counted, put in order at last."""

import collections.abc
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.generators.journal import Journal
from raydebm.generators.tally import Tally
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.tables import CANDIDATES

Progress = Callable[[int, int], None]
"""Told (rows done, rows in all) after every block."""

POSITION = pa.field("position", pa.int64())
WITH_POSITION = pa.schema([*CANDIDATES.schema, POSITION])
Placed = tuple[int, GenerationRequest]
"""A request and its place in the table that is being made."""
Blocks = collections.abc.Generator[pa.Table, None, None]
"""Answers as they come. Closing it ends the actors that make them."""


class CandidateSink:
    """Takes rows in any order into part files on this machine's disk, counts them, and puts them in order at last."""

    def __init__(self, folder: Path, *, total: int, on_progress: Progress | None) -> None:
        self.tally = Tally()
        self.total = total
        """Rows that the table will have, for the progress."""
        self._folder, self._on_progress = folder, on_progress
        self._lock = threading.Lock()
        self._num_parts = self._num_read = 0

    def consume(self, blocks: Blocks) -> None:
        """Blocks are written as they come and not kept."""
        # Closed here: after an error the traceback would keep it, and with it the actors, which go on asking.
        with contextlib.closing(blocks):
            for block in blocks:
                self._write(block.select(WITH_POSITION.names).cast(WITH_POSITION))

    def write_reused(self, placed: Sequence[Placed], journal: Journal) -> list[Placed]:
        """Write what the journal holds; returns the requests that it does not."""
        answers = [(position, request, journal.get(request.candidate_id)) for position, request in placed]
        self.write_candidates(((position, found) for position, _, found in answers if found is not None), reused=True)
        return [(position, request) for position, request, found in answers if found is None]

    def write_candidates(self, candidates: Iterable[tuple[int, Candidate]], *, reused: bool = False) -> None:
        """Write (place, candidate) pairs; ``reused`` ones came from a journal and cost nothing now."""
        rows: list[dict[str, Any]] = [CANDIDATES.row(found) | {"position": position} for position, found in candidates]
        if rows:
            self._write(pa.Table.from_pylist(rows, schema=WITH_POSITION), reused=reused)

    def expect(self, total: int) -> None:
        """Set the number of rows that the table will have."""
        self.total = total
        if self._on_progress is not None:
            self._on_progress(self.tally.num_rows, total)

    def read_new(self) -> list[Candidate]:
        """The candidates that were written since the last call, in any order."""
        parts = [self._part(number) for number in range(self._num_read, self._num_parts)]
        self._num_read = self._num_parts
        rows = (row for part in parts for row in pq.read_table(part, schema=WITH_POSITION).to_pylist())
        return list(map(CANDIDATES.record, rows))

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:06d}.parquet"

    def _write(self, table: pa.Table, *, reused: bool = False) -> None:
        counted = table.select(
            ["text", "error", "generator", "temperature", "prompt_tokens", "completion_tokens", "cost_usd"]
        )
        with self._lock:
            pq.write_table(table, self._part(self._num_parts))
            self._num_parts += 1
            self.tally.add(counted.to_pylist(), reused=reused)
            if self._on_progress is not None:
                self._on_progress(self.tally.num_rows, self.total)

    def assembled(self) -> bytes:
        """All rows in the order of the requests, as one Parquet file. Holds the table in memory once."""
        table = pq.read_table(self._folder, schema=WITH_POSITION).sort_by("position").select(CANDIDATES.schema.names)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content
