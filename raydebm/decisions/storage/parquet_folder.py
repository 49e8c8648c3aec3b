"""A folder of immutable Parquet files of one kind: appended to by several replicas, merged, tidied and read meanwhile.

In:   tables with the times of their first and last row.
Out:  files as ``files`` names them. A reader sees every row once, whatever is written, merged or removed
meanwhile.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.decisions.storage.damage import DamagedFileError, decoding
from raydebm.decisions.storage.file_names import (
    DECISION_FILES,
    RecordFile,
    file_name,
    record_files,
    replaced_by,
    replaces_metadata,
)
from raydebm.run.addresses import filesystem_of
from raydebm.run.folder import Folder

log = logging.getLogger(__name__)

T = TypeVar("T")

MERGE_FILES = 8
"""So many files of one level become one of the next."""
MAX_LEVEL = 3
MAX_MERGED_BYTES = 16 * 2**20
"""Files are not merged beyond it, which bounds the memory that merging takes to a few times as much."""
ROW_GROUP = 1024
"""Rows whose minimum and maximum let a reader skip them."""
TIDY_EVERY_S = 60.0
NUM_TRIES = 5
"""Listings are repeated when a file that was listed is gone."""


class FolderWriter:
    """Writes files of one kind into a folder. Several writers (replicas) may share it: each has names of its own. One
    thread at a time."""

    def __init__(
        self,
        root: str,
        *,
        kind: str = DECISION_FILES,
        max_mb: float,
        max_days: float | None,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            root: a local path or a filesystem URL; it is made when the first file is written.
            kind: how file names begin.
            max_mb: the oldest files of this kind go when all of them together are larger.
            max_days: files whose last row is older go; None: only the size counts.
            clock: seconds since 1970, for the age limit.
        """
        self.root, self._kind = root, kind
        self._max_mb, self._max_days, self._clock = max_mb, max_days, clock
        self._writer = uuid.uuid4().hex[:12]
        self._sequence = 0
        self._own: list[list[RecordFile]] = [[] for _ in range(MAX_LEVEL + 1)]
        self._last_tidy: float | None = None

    def append(self, table: pa.Table, first_us: int, last_us: int) -> None:
        """Write one file; it is complete when this returns.

        Raises:
            OSError: it could not be written; nothing of it is left.
        """
        self._own[0].append(self._save(table, first_us, last_us, level=0))

    def _save(self, table: pa.Table, first_us: int, last_us: int, *, level: int) -> RecordFile:
        name = file_name(first_us, last_us, writer=self._writer, sequence=self._sequence, level=level, kind=self._kind)
        self._sequence += 1
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", row_group_size=ROW_GROUP)
        content = sink.getvalue()
        Folder(self.root).write_bytes(content, name)
        return RecordFile(
            name=name, first_us=first_us, last_us=last_us, writer=self._writer, level=level, size=len(content)
        )

    def merge(self) -> None:
        """Make larger files of small ones of our own, so that a reader opens few."""
        for level in range(MAX_LEVEL):
            files = self._own[level]
            if len(files) < MERGE_FILES:
                continue
            self._own[level] = []
            if sum(file.size for file in files) > MAX_MERGED_BYTES:
                continue
            tables = [table for table in map(self._read, files) if table is not None]
            if not tables:
                continue
            # A file that could not be removed when these took its place must not come back when they go.
            earlier = (name for table in tables for name in sorted(replaced_by(table.schema.metadata)))
            names = [*(file.name for file in files), *earlier]
            merged = pa.concat_tables(tables).replace_schema_metadata(replaces_metadata(names))
            first, last = min(file.first_us for file in files), max(file.last_us for file in files)
            self._own[level + 1].append(self._save(merged, first, last, level=level + 1))
            for file in files:
                self._remove(file.name)

    def _read(self, file: RecordFile) -> pa.Table | None:
        filesystem, path = filesystem_of(self.root)
        try:
            return pq.read_table(f"{path}/{file.name}", filesystem=filesystem, partitioning=None)
        except FileNotFoundError:
            return None  # removed by the limits, perhaps of another replica

    def tidy(self) -> None:
        """Remove what is too old, then the oldest until the rest is small enough; at most once a minute."""
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
    """Lists the files of one kind that are to be read. Threads may share it."""

    def __init__(self, root: str, *, kind: str = DECISION_FILES) -> None:
        self.root, self._kind = root, kind
        self.filesystem, self._path = filesystem_of(root)
        self._replaced: dict[str, frozenset[str]] = {}
        self._tables: set[str] = set()
        """Files that are known to be readable."""
        self._warned: set[tuple[str, int]] = set()
        """(name, size) of those that were not."""
        self._damaged: set[str] = set()
        """Names of files that could be opened and not decoded."""

    def files(self) -> list[RecordFile]:
        """Oldest first, without those that a merged file stands for. Raises FileNotFoundError (see ``retried``)."""
        files = self._listed()
        replaced = {file.name: self._replaced_by(file) for file in files if file.level}
        # One assignment, because threads may share a reader.
        self._replaced = {name: names for name, names in replaced.items() if names is not None}
        gone = frozenset().union(*self._replaced.values())
        return [file for file in files if file.name not in gone]

    def _listed(self) -> list[RecordFile]:
        """Every row's file. A listing is not atomic: one that a merge overtakes can hold neither the new file, which it
        has passed by, nor the old ones, which are removed before it comes to them. The next one then holds the new
        file, so two in a row without a loss between them are enough."""
        files = record_files(self.root, kind=self._kind)
        for _ in range(NUM_TRIES):
            before, files = files, record_files(self.root, kind=self._kind)
            if {file.name for file in before} <= {file.name for file in files}:
                break
        return files

    def path_of(self, file: RecordFile) -> str:
        """For ``filesystem``."""
        return f"{self._path}/{file.name}"

    def paths(self, files: Sequence[RecordFile]) -> list[str]:
        """Those of them that are readable tables."""
        return [self.path_of(file) for file in files if self._is_table(file)]

    def retried(self, read: Callable[[], T]) -> T:
        """What ``read`` returns, also when a file is merged or removed between its listing and its reading, and without
        those that turn out to be damaged."""
        for _ in range(NUM_TRIES - 1):
            try:
                return self._without_damaged(read)
            except FileNotFoundError:
                continue
        return self._without_damaged(read)

    def _without_damaged(self, read: Callable[[], T]) -> T:
        while True:  # each turn leaves one more file out
            try:
                return read()
            except DamagedFileError as error:
                self.leave_out(error)

    def leave_out(self, error: DamagedFileError) -> None:
        """Read the file no more, and say so once."""
        name = error.path.rpartition("/")[2]
        if name not in self._damaged:
            self._damaged.add(name)
            log.warning("%s/%s is left out: it is no readable Parquet file: %s", self.root, name, error.reason)

    def _replaced_by(self, file: RecordFile) -> frozenset[str] | None:
        """None: the file is no table (yet). Raises FileNotFoundError when it is gone."""
        if file.name in self._replaced:
            return self._replaced[file.name]
        metadata = self._metadata_of(file)
        return None if metadata is None else replaced_by(metadata.metadata)

    def _is_table(self, file: RecordFile) -> bool:
        """A machine that lost its power may leave an empty file, which must not hide the others. One that is still
        being copied is looked at again."""
        if file.name in self._damaged:
            return False
        if file.name not in self._tables and self._metadata_of(file) is not None:
            self._tables.add(file.name)
        return file.name in self._tables

    def _metadata_of(self, file: RecordFile) -> pq.FileMetaData | None:
        path = self.path_of(file)
        try:
            with decoding(path, self.filesystem):
                return pq.read_metadata(path, filesystem=self.filesystem)
        except DamagedFileError as error:
            if (file.name, file.size) not in self._warned:
                self._warned.add((file.name, file.size))
                log.warning("%s/%s is left out: it is no readable Parquet file: %s", self.root, file.name, error.reason)
            return None
