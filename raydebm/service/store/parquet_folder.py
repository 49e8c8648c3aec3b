"""Folder of immutable Parquet files of one kind, appended to by several replicas, with concurrent merges and reads.

``<kind>-<first>-<last>-<writer>-<sequence>-<level>.parquet``: the content (decisions or outcomes), the times of the
first and last row in microseconds since 1970, the writer, and the number of merges. Files appear whole under their
names. Files replaced by a merge are removed some time later, so that every listing has the merged file, the replaced
ones, or both; rows in both are read once, by id.
"""

import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from raydebm.errors import PoolError
from raydebm.run.addresses import filesystem_of
from raydebm.run.folder import Folder

log = logging.getLogger(__name__)

DECISION_FILES, OUTCOME_FILES = "decisions", "outcomes"
MERGE_FILES = 8
"""Number of files of one level that are merged into one of the next."""
MAX_LEVEL = 3
MAX_MERGED_BYTES = 16 * 2**20
"""Maximum size of a merged file, which bounds the memory of a merge to a few times as much."""
ROW_GROUP = 1024
"""Row group size; readers skip groups by their minimum and maximum."""
TIDY_EVERY_S = 60.0
NUM_TRIES = 5
"""Number of listings before giving up on disappearing files."""
SHOWN_CHARS = 200
"""Length of answers and reasons kept in memory."""
UNREADABLE = (OSError, PoolError, pa.ArrowException)
"""Errors of a folder that cannot be listed, read or written, or is a file."""
_DECODING = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""Errors of decoding damaged content; ``OSError`` may also mean a failing disk."""
_NAME = re.compile(r"([a-z]+)-(\d{16})-(\d{16})-([0-9a-f]+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A file, parsed from its name."""

    name: str
    first_us: int
    last_us: int
    level: int
    size: int
    """Size in bytes."""


def file_name(
    first_us: int, last_us: int, *, writer: str, sequence: int, level: int, kind: str = DECISION_FILES
) -> str:
    """Name of a file with rows from ``first_us`` to ``last_us``, in microseconds since 1970."""
    return f"{kind}-{first_us:016d}-{last_us:016d}-{writer}-{sequence:06d}-{level}.parquet"


def record_files(root: str, *, kind: str = DECISION_FILES) -> list[RecordFile]:
    """The folder's files of one kind, oldest first; [] without a folder. Raises PoolError if it is a file."""
    files = []
    for info in Folder(root).files():
        match = _NAME.fullmatch(info.base_name)
        if match is not None and match[1] == kind:
            first, last, level, size = int(match[2]), int(match[3]), int(match[6]), info.size or 0
            files.append(RecordFile(name=info.base_name, first_us=first, last_us=last, level=level, size=size))
    return sorted(files, key=lambda file: (file.last_us, file.name))


class FolderWriter:
    """Write files of one kind into a folder. Several writers (replicas) may share it, with distinct names. Not
    thread-safe."""

    def __init__(
        self,
        root: str,
        *,
        kind: str = DECISION_FILES,
        max_mb: float = math.inf,
        max_days: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``tidy`` removes files whose last row is older than ``max_days``, and the oldest ones beyond ``max_mb``."""
        self.root, self._kind = root, kind
        self._max_mb, self._max_days, self._clock = max_mb, max_days, clock
        self._writer = uuid.uuid4().hex[:12]
        self._sequence = 0
        self._own: list[list[RecordFile]] = [[] for _ in range(MAX_LEVEL + 1)]
        self._replaced: list[str] = []
        """Names of files whose rows are in merged ones."""
        self._last_tidy: float | None = None

    def append(self, table: pa.Table, first_us: int, last_us: int) -> None:
        """Write one file; it is complete when this returns. On OSError nothing of it is left."""
        self._own[0].append(self._save(table, first_us, last_us, level=0))

    def _save(self, table: pa.Table, first_us: int, last_us: int, *, level: int) -> RecordFile:
        name = file_name(first_us, last_us, writer=self._writer, sequence=self._sequence, level=level, kind=self._kind)
        self._sequence += 1
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", row_group_size=ROW_GROUP)
        content = sink.getvalue()
        Folder(self.root).write_bytes(content, name)
        return RecordFile(name=name, first_us=first_us, last_us=last_us, level=level, size=len(content))

    def merge(self) -> None:
        """Merge this writer's small files, so that a reader opens few; remove files replaced by an earlier merge."""
        for name in self._replaced:
            self._remove(name)
        self._replaced = []
        filesystem, path = filesystem_of(self.root)
        for level in range(MAX_LEVEL):
            files = self._own[level]
            if len(files) < MERGE_FILES:
                continue
            self._own[level] = []
            if sum(file.size for file in files) > MAX_MERGED_BYTES:
                continue
            tables = []
            for file in files:
                try:
                    tables.append(pq.read_table(f"{path}/{file.name}", filesystem=filesystem, partitioning=None))
                except FileNotFoundError:  # removed by the limits, perhaps of another replica
                    continue
            if tables:
                first, last = min(file.first_us for file in files), max(file.last_us for file in files)
                self._own[level + 1].append(self._save(pa.concat_tables(tables), first, last, level=level + 1))
                self._replaced += [file.name for file in files]

    def tidy(self) -> None:
        """Remove files that are too old, then the oldest until the rest fits; at most once a minute."""
        now = self._clock()
        if self._last_tidy is not None and 0 <= now - self._last_tidy < TIDY_EVERY_S:
            return
        self._last_tidy = now
        files = record_files(self.root, kind=self._kind)
        total = sum(file.size for file in files)
        oldest_us = 0.0 if self._max_days is None else 1e6 * (now - 86_400 * self._max_days)
        for file in files:
            if file.last_us < oldest_us or total > self._max_mb * 1e6:
                self._remove(file.name)
                total -= file.size

    def _remove(self, name: str) -> None:
        try:
            Folder(self.root).remove(name)
        except OSError as error:
            log.debug("%s: %s", name, error)


class FolderReader:
    """Read the files of one kind. Keeps some columns in memory, because files never change. Thread-safe."""

    def __init__(
        self, root: str, schema: pa.Schema, kept: pa.Schema, *, row_id: str, kind: str = DECISION_FILES
    ) -> None:
        """Columns of ``schema`` that older files lack are null; ``row_id`` is the column with the id of a row."""
        self.root, self._schema, self._kept, self._kind = root, schema, kept, kind
        self._id = row_id
        self._filesystem, self._path = filesystem_of(root)
        self._tables: dict[str, pa.Table] = {}
        self._left_out: set[tuple[str, int]] = set()
        """(name, size) of undecodable files; a file that is still being copied will change its size."""

    def files(self, first_us: int | None = None, last_us: int | None = None) -> list[RecordFile]:
        """Files, oldest first, optionally only those that may have rows in a time range."""
        return [
            file
            for file in self._listed()
            if (first_us is None or file.last_us >= first_us)
            and (last_us is None or file.first_us <= last_us)
            and (file.name, file.size) not in self._left_out
        ]

    def _listed(self) -> list[RecordFile]:
        """Files in two equal listings, if possible: Arrow omits a file that a merge removes while it lists the folder,
        and its rows may then be in no listed file."""
        files = record_files(self.root, kind=self._kind)
        for _ in range(NUM_TRIES):
            earlier, files = files, record_files(self.root, kind=self._kind)
            if files == earlier:
                break
        return files

    def table(self, first_us: int | None = None, last_us: int | None = None) -> pa.Table:
        """Kept columns of every row in a time range, and of some rows outside of it, unordered."""
        for attempt in range(NUM_TRIES):
            files = self.files(first_us, last_us)
            known = dict(self._tables)  # another thread may replace it
            try:
                tables = {file.name: known.get(file.name) or self._read(file) for file in files}
            except FileNotFoundError:  # merged or removed between its listing and its reading
                if attempt == NUM_TRIES - 1:
                    raise
                continue
            if first_us is None and last_us is None:
                self._tables = tables
            break
        table = pa.concat_tables([self._kept.empty_table(), *tables.values()])
        if not any(file.level for file in files):
            return table
        places = pa.table({self._id: table[self._id], "place": pa.array(range(table.num_rows))})
        first = places.group_by(self._id).aggregate([("place", "min")])["place_min"]
        return table.take(first)

    def _read(self, file: RecordFile) -> pa.Table:
        table = pa.Table.from_batches(self._scan(file, self._kept.names), schema=self._kept)
        for name in {"answer", "reason"} & set(self._kept.names):
            shown = pc.utf8_slice_codeunits(table[name], 0, SHOWN_CHARS)
            table = table.set_column(self._kept.get_field_index(name), self._kept.field(name), shown)
        return table

    def batches(
        self,
        first_us: int | None = None,
        last_us: int | None = None,
        *,
        where: ds.Expression | None = None,
        batch_size: int = 64,
    ) -> Iterator[pa.RecordBatch]:
        """Whole rows that pass ``where``, oldest file first, each once, despite concurrent merges and removals."""
        read: set[str] = set()
        seen: set[str] = set()
        while files := [file for file in self.files(first_us, last_us) if file.name not in read]:
            for file in files:
                read.add(file.name)
                try:
                    for batch in self._scan(file, self._schema.names, where=where, batch_size=batch_size):
                        ids = batch.column(self._id).to_pylist()
                        new = pa.array([each not in seen for each in ids], pa.bool_())
                        seen.update(ids)
                        yield batch.filter(new)
                except FileNotFoundError:  # its rows are in a merged file, which the next listing has
                    break
            else:
                return

    def _scan(
        self, file: RecordFile, columns: Sequence[str], *, where: ds.Expression | None = None, batch_size: int = 2**16
    ) -> Iterator[pa.RecordBatch]:
        """Batches of one file up to the first damage. Raises OSError if the file is gone, or the disk or the network
        does not answer."""
        path = f"{self._path}/{file.name}"
        try:
            dataset = ds.dataset([path], schema=self._schema, format="parquet", filesystem=self._filesystem)
            for batch in dataset.to_batches(
                columns=list(columns), filter=where, batch_size=batch_size, batch_readahead=0, fragment_readahead=1
            ):
                batch.validate(full=True)  # invalid text would otherwise be noticed only when it is shown
                yield batch
        except FileNotFoundError:
            raise
        except _DECODING as error:
            self._check_readable(path)  # Arrow raises the same types for a damaged file and for a disk that fails
            self._left_out.add((file.name, file.size))
            reason = str(error).strip().partition("\n")[0]
            log.warning("%s/%s is skipped, because it is not a readable Parquet file: %s", self.root, file.name, reason)

    def _check_readable(self, path: str) -> None:
        """Raise OSError if not all bytes of a file can be read."""
        with self._filesystem.open_input_stream(path) as stream:
            while stream.read(2**20):
                pass
