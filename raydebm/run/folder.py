"""A folder on any filesystem: small files and tables, each written whole or not at all."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raydebm.errors import PoolError
from raydebm.run.addresses import filesystem_of, is_url
from raydebm.run.codec import Codec

T = TypeVar("T")

TABLES_IN_MEMORY = 16
"""Tables that are kept after reading, which is those of one run or two: stages read the same ones in turn."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder. ``root`` is a local path or a filesystem URL (``s3://bucket/run``)."""

    root: str

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a local disk, where processes can append to files and torch can read them."""
        return not is_url(self.root)

    def uri(self, *parts: str) -> str:
        """The address of something below the folder, in the form the root was given."""
        return "/".join([self.root.rstrip("/"), *parts])

    def exists(self, *parts: str) -> bool:
        """Whether there is a file or folder of that name."""
        filesystem, path = self._at(*parts)
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def names(self, *parts: str) -> list[str]:
        """Names of the files in a folder, sorted; none where there is no such folder."""
        filesystem, path = self._at(*parts)
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)

    def remove(self, *parts: str) -> None:
        """Remove a file or folder if it is there."""
        filesystem, path = self._at(*parts)
        kind = filesystem.get_file_info(path).type
        if kind == fs.FileType.Directory:
            filesystem.delete_dir(path)
        elif kind == fs.FileType.File:
            filesystem.delete_file(path)

    def write_bytes(self, content: bytes, *parts: str) -> None:
        """Write a file so that readers see the old one or the new one, never a torn one."""
        filesystem, path = self._at(*parts)
        filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
        with filesystem.open_output_stream(path + ".tmp") as stream:
            stream.write(content)
        filesystem.move(path + ".tmp", path)
        if path.endswith(".parquet"):
            _records.cache_clear()  # the clock of a filesystem may be too coarse to tell two versions apart

    def read_bytes(self, *parts: str) -> bytes:
        """The whole contents of a file."""
        filesystem, path = self._at(*parts)
        with filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
        return content

    def write_json(self, value: object, *parts: str) -> None:
        """Write a value with sorted keys and a last line break."""
        self.write_bytes((json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), *parts)

    def read_json(self, *parts: str) -> Any:
        """The value in a JSON file."""
        return json.loads(self.read_bytes(*parts))

    def write_records(self, codec: Codec[T], records: Iterable[T], *parts: str) -> int:
        """Write records as one Parquet file; returns how many."""
        table = pa.Table.from_pylist(list(map(codec.row, records)), schema=codec.schema)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self.write_bytes(sink.getvalue().to_pybytes(), *parts)
        return int(table.num_rows)

    def read_records(self, codec: Codec[T], *parts: str) -> tuple[T, ...]:
        """Read a Parquet file, or all part files of a folder (ordered by name). A file that was read a short while ago
        and has not changed is not read again.

        Raises:
            PoolError: the table is missing or unreadable, or a column is; the message says which.
        """
        filesystem, path = self._at(*parts)
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            return _records.__wrapped__(self, codec, parts, None)
        return _records(self, codec, parts, (info.mtime_ns, info.size))

    def publish(self, source: Path, *parts: str, last: str) -> None:
        """Replace the folder at ``parts`` by the files of a local folder.

        Args:
            last: name of the file whose presence means complete; it is written last.
        """
        self.remove(*parts)
        files = [file for file in source.rglob("*") if file.is_file()]
        for file in sorted(files, key=lambda file: (file.name == last, file)):
            self.write_bytes(file.read_bytes(), *parts, *file.relative_to(source).parts)

    def _at(self, *parts: str) -> tuple[fs.FileSystem, str]:
        filesystem, path = filesystem_of(self.root)
        return filesystem, "/".join([path, *parts])


@lru_cache(maxsize=TABLES_IN_MEMORY)
def _records(folder: Folder, codec: Codec[T], parts: tuple[str, ...], version: tuple[int, int] | None) -> tuple[T, ...]:
    """The records of a table.

    Args:
        version: time and size of the file, so that a changed one is read again.
    """
    where = folder.uri(*parts)
    filesystem, path = folder._at(*parts)
    try:
        table = pq.read_table(path, filesystem=filesystem)
    except FileNotFoundError as error:
        raise PoolError(f"{where} does not exist; run the stage that writes it first") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise PoolError(f"{where} is not a readable Parquet table: {error}") from error
    missing = [name for name in codec.required if name not in table.column_names]
    if missing:
        raise PoolError(f"{where} lacks column(s) {', '.join(missing)}; it has {', '.join(table.column_names)}")
    schema = pa.schema([field for field in codec.schema if field.name in table.column_names])
    rows = table.select(schema.names).cast(schema).to_pylist()
    return tuple(map(codec.record, rows))
