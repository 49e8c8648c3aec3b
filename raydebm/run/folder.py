"""A folder on any filesystem: small files and tables, written atomically."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raydebm.errors import ConfigError, PoolError
from raydebm.run.addresses import filesystem_of, is_url
from raydebm.run.codec import Codec

T = TypeVar("T")

TABLES_IN_MEMORY = 16
"""Number of cached tables, enough for one or two runs: one stage after another reads the same tables."""
PARTIAL = ".tmp"
"""Suffix of files being written."""
BATCH_ROWS = 1024
"""Rows in memory at once when a table is read or written record by record."""


GROUP_ROWS = 8192
GROUP_BYTES = 32 * 2**20
"""Size at which a row group is written: small enough for memory, large enough to compress well."""


class TableWriter:
    """Writer that appends tables to a Parquet file, which is complete when the context ends. Buffers one row group."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        """Open a Parquet writer. The caller closes the stream."""
        self.num_rows = 0
        self._schema = schema
        self._file = pq.ParquetWriter(stream, schema)
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._file.close()

    def write(self, table: pa.Table) -> None:
        """Append rows. Columns may be in any order; columns outside the schema are dropped."""
        table = table.select(self._schema.names).cast(self._schema)
        self.num_rows += table.num_rows
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        if self._pending_rows >= GROUP_ROWS or self._pending_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending_rows:
            self._file.write_table(pa.concat_tables(self._pending), row_group_size=self._pending_rows)
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """A local folder, or one on another filesystem."""

    root: str
    """Local path or filesystem URL (``s3://bucket/run``)."""

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a local disk, so that processes can append to files and torch can read them."""
        return not is_url(self.root)

    def uri(self, *parts: str) -> str:
        """The address of a path below the folder: a path if the root is one, else a URL."""
        return "/".join([self.root.rstrip("/"), *parts])

    def exists(self, *parts: str) -> bool:
        """Whether there is a file or folder at this path."""
        filesystem, path = self._at(*parts)
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def files(self, *parts: str) -> list[fs.FileInfo]:
        """The files in a folder; none if there is no folder.

        Raises:
            PoolError: the path is a file.
        """
        filesystem, path = self._at(*parts)
        try:
            infos = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except NotADirectoryError as error:
            raise PoolError(f"{self.uri(*parts)} is a file; give the folder") from error
        except FileNotFoundError:  # allow_not_found fails if the folder is made right after Arrow did not find it
            return []
        return [info for info in infos if info.type == fs.FileType.File]

    def names(self, *parts: str) -> list[str]:
        """Sorted names of the files in a folder. Errors are those of ``files``."""
        return sorted(info.base_name for info in self.files(*parts))

    def remove(self, *parts: str) -> None:
        """Remove a file or folder if it exists."""
        filesystem, path = self._at(*parts)
        kind = filesystem.get_file_info(path).type
        if kind == fs.FileType.Directory:
            filesystem.delete_dir(path)
        elif kind == fs.FileType.File:
            filesystem.delete_file(path)

    def remove_partial(self, *parts: str) -> None:
        """Remove partial files that killed processes left in a folder."""
        for name in self.names(*parts):
            if name.endswith(PARTIAL):
                self.remove(*parts, name)

    def write_bytes(self, content: bytes | pa.Buffer, *parts: str) -> None:
        """Write a file atomically: readers see the old or the new one."""
        with self._replacing(*parts) as stream:
            stream.write(content)

    def read_bytes(self, *parts: str) -> bytes:
        """The whole contents of a file."""
        filesystem, path = self._at(*parts)
        with filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
        return content

    def write_json(self, value: object, *parts: str) -> None:
        """Write a value as JSON, with sorted keys and a final newline."""
        self.write_bytes((json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), *parts)

    def read_json(self, *parts: str) -> Any:
        """The value in a JSON file."""
        return json.loads(self.read_bytes(*parts))

    def read_object(self, *parts: str, remedy: str) -> dict[str, Any] | None:
        """The object in a JSON file; None if the file is missing.

        Args:
            parts: path of the file.
            remedy: advice for a corrupt file.

        Raises:
            ConfigError: the file is not a JSON object, it is a folder, or its folder is a file.
            OSError: the filesystem does not answer; a retry may succeed.
        """
        where = self.uri(*parts)
        try:
            value = self.read_json(*parts)
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise ConfigError(f"{where} cannot be read: it leads through a file; give a folder") from error
        except OSError as error:
            if not self._is_folder(*parts):
                raise
            raise ConfigError(f"{where} is a folder, but must be a file; {remedy}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where} is not JSON: {error}; {remedy}") from error
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must hold an object, got {type(value).__name__}; {remedy}")
        return value

    def needed_object(self, *parts: str) -> dict[str, Any]:
        """The object in a JSON file that a complete stage must have.

        Raises:
            ConfigError: the file is missing, or wrong as in ``read_object``.
        """
        remedy = self._remedy(*parts)
        value = self.read_object(*parts, remedy=remedy)
        if value is None:
            raise ConfigError(f"{self.uri(*parts)} does not exist; {remedy}")
        return value

    @contextlib.contextmanager
    def open_table(self, codec: Codec[Any], *parts: str) -> Iterator[TableWriter]:
        """Context manager that writes one Parquet file in parts. The file replaces the old one at the end; after an
        error nothing has changed."""
        with self._replacing(*parts) as stream, TableWriter(stream, codec.schema) as writer:
            yield writer

    def write_records(self, codec: Codec[T], records: Iterable[T], *parts: str) -> int:
        """Write records as one Parquet file, in batches; returns their number."""
        with self.open_table(codec, *parts) as writer:
            rows: list[dict[str, Any]] = []
            for record in records:
                rows.append(codec.row(record))
                if len(rows) == BATCH_ROWS:
                    writer.write(pa.Table.from_pylist(rows, schema=codec.schema))
                    rows = []
            writer.write(pa.Table.from_pylist(rows, schema=codec.schema))
        return writer.num_rows

    def read_records(self, codec: Codec[T], *parts: str) -> tuple[T, ...]:
        """Read a Parquet file, or all part files of a folder (ordered by name). Recent unchanged files are cached.

        Raises:
            PoolError: the table or a column is missing or unreadable.
        """
        filesystem, path = self._at(*parts)
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            return _records.__wrapped__(self, codec, parts, None)
        return _records(self, codec, parts, (info.mtime_ns, info.size))

    def read_tables(
        self, codec: Codec[Any], *parts: str, columns: Iterable[str] | None = None, size: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """Read the rows of ``read_records`` as tables of at most ``size`` rows, without caching.

        Args:
            columns: columns to read. Default: those of the codec. Missing columns with a default are left out.

        Raises:
            PoolError: see ``read_records``.
        """
        wanted = codec.schema.names if columns is None else list(columns)
        for path in self._table_files(*parts):
            with self._opened_table(path) as file:
                schema = pa.schema(
                    [codec.schema.field(name) for name in self._present_columns(codec, file, wanted, *parts)]
                )
                for batch in file.iter_batches(batch_size=size, columns=schema.names):
                    yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    def num_rows(self, *parts: str) -> int:
        """Number of rows of a table, from its metadata.

        Raises:
            PoolError: the table is missing or unreadable.
        """
        total = 0
        for path in self._table_files(*parts):
            with self._opened_table(path) as file:
                total += file.metadata.num_rows
        return total

    def publish(self, source: Path, *parts: str, last: str) -> None:
        """Replace the folder at ``parts`` with the files of a local folder.

        Args:
            last: name of the file that marks the folder as complete; written last.
        """
        self.remove(*parts)
        files = [file for file in source.rglob("*") if file.is_file()]
        for file in sorted(files, key=lambda file: (file.name == last, file)):
            self.write_bytes(file.read_bytes(), *parts, *file.relative_to(source).parts)

    @contextlib.contextmanager
    def _replacing(self, *parts: str) -> Iterator[pa.NativeFile]:
        """A stream into a temporary file, renamed when everything is written."""
        filesystem, path = self._at(*parts)
        filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
        suffix = f".{uuid.uuid4().hex[:12]}{PARTIAL}"  # unique, because another process may write the same file
        try:
            with filesystem.open_output_stream(path + suffix) as stream:
                yield stream
            filesystem.move(path + suffix, path)
        except BaseException:
            self.remove(*parts[:-1], parts[-1] + suffix)
            raise
        if path.endswith(".parquet"):
            _records.cache_clear()  # the clock of a filesystem may be too coarse to tell two versions apart

    def _table_files(self, *parts: str) -> list[tuple[str, ...]]:
        if not self._is_folder(*parts):
            return [parts]
        return [(*parts, name) for name in self.names(*parts) if name.endswith(".parquet")]

    @contextlib.contextmanager
    def _opened_table(self, parts: tuple[str, ...]) -> Iterator[pq.ParquetFile]:
        where, (filesystem, path) = self.uri(*parts), self._at(*parts)
        try:
            # Without a buffer, each column of a row group is read whole.
            with filesystem.open_input_file(path) as source, pq.ParquetFile(source, buffer_size=2**20) as file:
                yield file
        except FileNotFoundError as error:
            raise PoolError(f"{where} does not exist; run the stage that writes it first") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise PoolError(f"{where} is not a readable Parquet table: {error}") from error

    def _present_columns(self, codec: Codec[Any], file: pq.ParquetFile, names: Iterable[str], *parts: str) -> list[str]:
        known = file.schema_arrow.names
        missing = [name for name in codec.required if name in names and name not in known]
        if missing:
            raise PoolError(
                f"{self.uri(*parts)} lacks column(s) {', '.join(missing)}; it has {', '.join(known)}. Another "
                f"version wrote it, or it is not a table of this kind: {self._remedy(*parts)}"
            )
        return [name for name in names if name in known]

    def _remedy(self, *parts: str) -> str:
        return "give one that this version wrote"

    def _is_folder(self, *parts: str) -> bool:
        filesystem, path = self._at(*parts)
        return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)

    def _at(self, *parts: str) -> tuple[fs.FileSystem, str]:
        filesystem, path = filesystem_of(self.root)
        return filesystem, "/".join([path, *parts])


@lru_cache(maxsize=TABLES_IN_MEMORY)
def _records(folder: Folder, codec: Codec[T], parts: tuple[str, ...], version: tuple[int, int] | None) -> tuple[T, ...]:
    """The records of a table.

    Args:
        version: modification time and size of the file: the cache key.
    """
    return tuple(codec.record(row) for table in folder.read_tables(codec, *parts) for row in table.to_pylist())


T_co = TypeVar("T_co", covariant=True)


class Many(Protocol[T_co]):
    """Records that can be counted and iterated repeatedly: a list, or a table on disk."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[T_co]: ...


@dataclass(frozen=True, slots=True)
class StoredTable(Generic[T]):
    """The records of a table. A bad file raises PoolError at the first read."""

    folder: Folder
    codec: Codec[T]
    parts: tuple[str, ...]
    keep: Callable[[T], bool] | None = None
    """Filter of records. Default: all."""

    def where(self, keep: Callable[[T], bool]) -> "StoredTable[T]":
        """The records of the table for which ``keep`` is true."""
        return replace(self, keep=keep)

    def __len__(self) -> int:
        """Number of records; reads the table if there is a filter."""
        return self.folder.num_rows(*self.parts) if self.keep is None else sum(1 for _ in self)

    def __iter__(self) -> Iterator[T]:
        records = (self.codec.record(row) for table in self.tables(BATCH_ROWS) for row in table.to_pylist())
        return records if self.keep is None else filter(self.keep, records)

    def tables(self, size: int) -> Iterator[pa.Table]:
        """All rows, without the filter, in tables of at most ``size`` rows."""
        return self.folder.read_tables(self.codec, *self.parts, size=size)

    def column(self, name: str) -> Iterator[str]:
        """The values of one text column in order, without the filter. Other columns are not read."""
        for table in self.folder.read_tables(self.codec, *self.parts, columns=[name]):
            yield from table[name].to_pylist()
