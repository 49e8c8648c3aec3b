"""Table of candidates under construction: rows in any order, counted, and sorted on disk."""

import collections.abc
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.generators.journal import Journal
from raydebm.generators.tally import Tally
from raydebm.records import Candidate, GenerationRequest
from raydebm.run.spool import POSITION, PlacedRows, with_position
from raydebm.run.tables import CANDIDATES

Progress = Callable[[int, int], None]
"""Called with (rows done, total rows) after every block."""

WITH_POSITION = with_position(CANDIDATES.schema)
Placed = tuple[int, GenerationRequest]
"""A position in the table, and the request of that row."""
Blocks = collections.abc.Generator[pa.Table, None, None]
"""Answers as they arrive. Closing it ends the actors."""

_COUNTED = ["text", "error", "generator", "temperature", "prompt_tokens", "completion_tokens", "cost_usd"]


class CandidateSink:
    """Store on this machine's disk for rows that arrive in any order. Counts them, and returns them in order."""

    def __init__(self, folder: Path, *, total: int, on_progress: Progress | None, reads_new: bool = False) -> None:
        """Start an empty table.

        Args:
            folder: an empty folder; the caller removes it.
            total: expected number of rows.
            on_progress: see ``Progress``.
            reads_new: whether ``read_new`` will be called.
        """
        self.tally = Tally()
        self.total = total
        self._rows, self._on_progress = PlacedRows(folder, CANDIDATES.schema), on_progress
        self._new: list[Path] | None = [] if reads_new else None
        self._lock = threading.Lock()

    def consume(self, blocks: Blocks) -> None:
        """Write blocks as they arrive, without keeping them."""
        # Closed here: after an error the traceback would keep the blocks, and with them running actors.
        with contextlib.closing(blocks):
            for block in blocks:
                self._write(block)

    def write_reused(self, placed: Sequence[Placed], journal: Journal) -> list[Placed]:
        """Write the answers in the journal; returns the other requests."""
        answers = [(position, request, journal.get(request.candidate_id)) for position, request in placed]
        self.write_candidates(
            ((position, candidate) for position, _, candidate in answers if candidate is not None), reused=True
        )
        return [(position, request) for position, request, candidate in answers if candidate is None]

    def write_candidates(self, candidates: Iterable[tuple[int, Candidate]], *, reused: bool = False) -> None:
        """Write (position, candidate) pairs; ``reused`` ones are from a journal and free."""
        rows = [CANDIDATES.row(candidate) | {POSITION: position} for position, candidate in candidates]
        if rows:
            self._write(pa.Table.from_pylist(rows, schema=WITH_POSITION), reused=reused)

    def expect(self, total: int) -> None:
        """Set the expected number of rows."""
        self.total = total
        if self._on_progress is not None:
            self._on_progress(self.tally.num_rows, total)

    def read_new(self) -> list[Candidate]:
        """The candidates written since the last call, in any order. Needs ``reads_new``."""
        assert self._new is not None
        rows = (row for part in self._new for row in pq.read_table(part, schema=WITH_POSITION).to_pylist())
        candidates = list(map(CANDIDATES.record, rows))
        self._new.clear()
        return candidates

    def tables(self) -> Iterator[pa.Table]:
        """All rows in the order of the requests, in batches."""
        return self._rows.tables()

    def _write(self, table: pa.Table, *, reused: bool = False) -> None:
        with self._lock:
            paths = self._rows.add(table)
            if self._new is not None:
                self._new += paths
            self.tally.add(table.select(_COUNTED).to_pylist(), reused=reused)
            if self._on_progress is not None:
                self._on_progress(self.tally.num_rows, self.total)
