"""Tables on their way to workers, in shared files: Ray only carries their addresses."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.run.folder import Folder

ADDRESS = "address"
MOST_SLICES = 2048
"""Limit on slices, because Ray's driver keeps a few kB per block while a dataset runs."""


def slice_rows(total: int, *, at_least: int) -> int:
    """Rows per slice: the smallest multiple of ``at_least`` that gives at most ``MOST_SLICES`` slices.

    Args:
        total: number of rows, or an upper bound.
        at_least: rows per unit of work.
    """
    return max(-(-total // (MOST_SLICES * at_least)), 1) * at_least


class Spool:
    """A folder of numbered tables, its slices. Exists until ``close``."""

    def __init__(self, folder: Folder, *parts: str) -> None:
        """Make an empty spool, and remove what an earlier process left there.

        Args:
            folder: the run's folder.
            parts: path of the spool below it.
        """
        self._folder, self._parts = folder, parts
        self.num_slices = self.num_rows = 0
        self.close()

    def add(self, table: pa.Table) -> None:
        """Write one slice."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self._folder.write_bytes(sink.getvalue(), *self._parts, _name(self.num_slices))
        self.num_slices += 1
        self.num_rows += table.num_rows

    @property
    def addresses(self) -> list[pa.Table]:
        """One single-row table per slice with its address, in order: the blocks that Ray carries."""
        names = map(_name, range(self.num_slices))
        return [pa.table({ADDRESS: [self._folder.uri(*self._parts, name)]}) for name in names]

    def tables(self) -> Iterator[pa.Table]:
        """The slices in order."""
        return (table for block in self.addresses for table in read_slices(block))

    def close(self) -> None:
        """Remove all slices."""
        self._folder.remove(*self._parts)


def read_slices(block: pa.Table) -> Iterator[pa.Table]:
    """The slices at the addresses in a block of ``Spool.addresses``."""
    for address in block[ADDRESS].to_pylist():
        parent, name = str(address).rsplit("/", 1)
        yield pq.read_table(pa.BufferReader(Folder(parent).read_bytes(name)))


def _name(number: int) -> str:
    return f"{number:06d}.parquet"


POSITION = "position"
BUCKET_ROWS = 2048
"""Positions per bucket: about 100 MB for rows with texts of 50 kB."""


def with_position(schema: pa.Schema) -> pa.Schema:
    """The schema with ``position``: the row's index in the table, from 0."""
    return schema.append(pa.field(POSITION, pa.int64()))


class PlacedRows:
    """Rows that arrive in any order and are read in the order of their positions. Not thread-safe."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """Start without rows.

        Args:
            folder: an empty folder; the caller removes it.
            schema: the columns without ``position``.
        """
        self._folder, self._schema = folder, with_position(schema)
        self._num_parts: Counter[int] = Counter()
        self.num_rows = 0

    def add(self, table: pa.Table) -> list[Path]:
        """Write rows with their ``position``, each position once; returns the new files."""
        table = table.select(self._schema.names).cast(self._schema)
        self.num_rows += table.num_rows
        buckets = table[POSITION].to_numpy() // BUCKET_ROWS
        return [self._write(int(bucket), table.filter(pa.array(buckets == bucket))) for bucket in np.unique(buckets)]

    def tables(self) -> Iterator[pa.Table]:
        """All rows without ``position``, in order, one bucket at a time."""
        for bucket in sorted(self._num_parts):
            parts = [pq.read_table(self._path(bucket, part)) for part in range(self._num_parts[bucket])]
            yield pa.concat_tables(parts).sort_by(POSITION).drop_columns(POSITION)

    def _write(self, bucket: int, table: pa.Table) -> Path:
        path = self._path(bucket, self._num_parts[bucket])
        pq.write_table(table, path)
        self._num_parts[bucket] += 1
        return path

    def _path(self, bucket: int, part: int) -> Path:
        return self._folder / f"{bucket:08d}-{part:06d}.parquet"
