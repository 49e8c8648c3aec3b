"""Writer of decisions while the service runs: in batches, from one thread, off the request path.

``put`` appends to a bounded queue and returns. A thread writes the queue every few seconds, merges small files, and
removes files beyond the limits. It cannot fail or delay a request: if the disk is full or the folder cannot be written,
decisions wait, and beyond the queue's bounds they are dropped, counted and logged.

A crash of the process loses the decisions since the last write (``FLUSH_S``). Files are not synced, so
a power cut may also lose the operating system's buffers.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from raydebm.records import well_formed
from raydebm.service.store.parquet_folder import ROW_GROUP, FolderWriter
from raydebm.service.store.record import DECISIONS, DecisionRecord, microseconds, record_row

log = logging.getLogger(__name__)

FLUSH_S = 5.0
"""Longest time in the queue, in seconds. A crash may lose as much."""
MAX_WAITING = 2000
"""Limit on queued decisions; further ones are dropped."""
MAX_WAITING_CHARS = 64_000_000
"""Limit on the queue's text, in characters."""


class RecordsArgs(BaseModel):
    """The ``records`` section of the application's arguments. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str | None = None
    """A local path that this node can write, or a filesystem URL. Default: ``records`` in the run directory."""
    max_mb: float = Field(2048, gt=0)
    """Total size beyond which the oldest files are removed."""
    max_days: float | None = Field(30, gt=0)
    """Age of the last decision at which a file is removed. None for no limit."""


def writer_of(args: RecordsArgs | None) -> "DecisionWriter | None":
    """Writer for the arguments, or None without any."""
    return None if args is None or args.folder is None else DecisionWriter(args.folder, args)


class DecisionWriter:
    """Write one folder. Several writers (replicas) may share it, with distinct file names."""

    def __init__(
        self,
        root: str,
        args: RecordsArgs | None = None,
        *,
        flush_s: float = FLUSH_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = root
        args, self._flush_s = args or RecordsArgs(), flush_s
        self._folder = FolderWriter(root, max_mb=args.max_mb, max_days=args.max_days, clock=clock)
        self._waiting: deque[tuple[DecisionRecord, int]] = deque()
        self._waiting_chars = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._writing = threading.Lock()
        self.num_written = 0
        self.num_dropped = 0
        self.last_error: str | None = None
        """Error of the last write; None if it succeeded."""

    def put(self, record: DecisionRecord) -> bool:
        """Queue a decision. Never raises and never waits for a disk. Returns False if it was dropped and counted."""
        size = _num_chars(record)
        with self._wake:
            full = len(self._waiting) >= MAX_WAITING
            full = full or self._waiting_chars + size > MAX_WAITING_CHARS
            if full or self._closing:
                self.num_dropped += 1
                return False
            self._waiting.append((record, size))
            self._waiting_chars += size
            self._start()
            if len(self._waiting) >= MAX_WAITING // 4 or len(self._waiting) >= ROW_GROUP:
                self._wake.notify()
        return True

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="raydebm-records", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads on this machine: the next decision tries again
            self.last_error = str(error)
            return
        self._thread = thread

    @property
    def num_waiting(self) -> int:
        """Number of queued decisions."""
        return len(self._waiting)

    def close(self) -> None:
        """Write the queue and end the thread. Later decisions are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=30)
        self.flush()

    def _run(self) -> None:
        while not self._closing:
            with self._wake:
                if not self._closing:
                    self._wake.wait(timeout=self._flush_s)
            self.flush()
            if self.last_error is not None and not self._closing:
                time.sleep(min(self._flush_s, 1.0))  # a folder that cannot be written must not cost a core

    def flush(self) -> bool:
        """Write the queue now. Returns False on failure, which leaves the queue as it was."""
        with self._writing:
            try:
                while self._waiting:
                    self._write_batch()
                self._folder.merge()
                self._folder.tidy()
            except Exception as error:  # noqa: BLE001 - whatever storage does, the thread goes on and requests notice nothing
                if self.last_error is None:
                    log.error("decisions cannot be written to %s: %s", self.root, error)
                self.last_error = str(error)
                return False
            if self.last_error is not None:
                log.warning("decisions are written again; %d were dropped since the start", self.num_dropped)
            self.last_error = None
            return True

    def _write_batch(self) -> None:
        with self._wake:
            records = [record for record, _ in islice(self._waiting, ROW_GROUP)]
        table = _table(records)
        if table.num_rows:
            times = [microseconds(record.time) for record in records]
            self._folder.append(table, min(times), max(times))
        with self._wake:
            for _ in records:
                self._waiting_chars -= self._waiting.popleft()[1]
        self.num_written += table.num_rows
        self.num_dropped += len(records) - table.num_rows


def _num_chars(record: DecisionRecord) -> int:
    """Approximate size of the record in memory: all texts that a client or a model can make long."""
    outcome, problem = record.outcome, record.problem
    texts = [problem.prompt, record.scored_prompt, *(pass_.feedback for pass_ in outcome.passes)]
    for scored in outcome.pool:
        texts += [scored.candidate.text, scored.candidate.reasoning, scored.report.answer]
        texts += [violation.message for violation in scored.report.violations]
    return 2000 + sum(len(text) for text in texts if text) + len(str(problem.data)) + len(str(record.request))


def _table(records: Sequence[DecisionRecord]) -> pa.Table:
    """Convert one record at a time: pyarrow holds the interpreter's lock while converting, and requests run meanwhile.
    Records that cannot be stored (a problem's data may be anything) are left out."""
    tables = [DECISIONS.empty_table()]
    for record in records:
        try:
            row = record_row(record)
            try:
                tables.append(pa.Table.from_pylist([row], schema=DECISIONS))
            except UnicodeEncodeError:
                row = {name: well_formed(value) if isinstance(value, str) else value for name, value in row.items()}
                tables.append(pa.Table.from_pylist([row], schema=DECISIONS))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            log.warning("the decision on request %s cannot be stored: %s", record.request_id, error)
    return pa.concat_tables(tables)
