"""Tables on their way to workers: files that every worker can read, so that only their addresses pass through Ray."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.run.folder import Folder

ADDRESS = "address"
MOST_SLICES = 2048
"""Ray's driver keeps a few kB per block as long as a dataset runs; so there are never more."""


def slice_rows(total: int, *, at_least: int) -> int:
    """Rows per slice: a multiple of ``at_least``, so many that there are at most ``MOST_SLICES`` of them.

    Args:
        total: rows in all, or more.
        at_least: rows that are worked on together.
    """
    return max(-(-total // (MOST_SLICES * at_least)), 1) * at_least


class Spool:
    """A folder of numbered tables, its slices. It is there until ``close``."""

    def __init__(self, folder: Folder, *parts: str) -> None:
        """Make an empty spool; what an earlier process left there is removed.

        Args:
            folder: the run's.
            parts: the spool's name below it.
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
        """One table per slice, in their order, with its address: what Ray carries in place of the slice."""
        names = map(_name, range(self.num_slices))
        return [pa.table({ADDRESS: [self._folder.uri(*self._parts, name)]}) for name in names]

    def tables(self) -> Iterator[pa.Table]:
        """The slices in their order."""
        return (table for block in self.addresses for table in read_slices(block))

    def close(self) -> None:
        """Remove all slices."""
        self._folder.remove(*self._parts)


def read_slices(block: pa.Table) -> Iterator[pa.Table]:
    """The slices whose addresses a block of ``Spool.addresses`` has."""
    for address in block[ADDRESS].to_pylist():
        parent, name = str(address).rsplit("/", 1)
        yield pq.read_table(pa.BufferReader(Folder(parent).read_bytes(name)))


def _name(number: int) -> str:
    return f"{number:06d}.parquet"


POSITION = "position"
BUCKET_ROWS = 2048
"""Places per bucket; rows with texts of 50 kB are 100 MB then."""


def with_position(schema: pa.Schema) -> pa.Schema:
    """The columns, and ``position``: a row's place in the table, from 0."""
    return schema.append(pa.field(POSITION, pa.int64()))


class PlacedRows:
    """Takes rows in any order and gives them back in the order of their places. Not for several threads at once."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """
        Args:
            folder: an empty folder; the caller removes it.
            schema: the columns without ``position``.
        """
        self._folder, self._schema = folder, with_position(schema)
        self._num_parts: Counter[int] = Counter()
        self.num_rows = 0

    def add(self, table: pa.Table) -> list[Path]:
        """Write rows with their ``position``, each place once; returns the new files."""
        table = table.select(self._schema.names).cast(self._schema)
        self.num_rows += table.num_rows
        buckets = table[POSITION].to_numpy() // BUCKET_ROWS
        return [self._write(int(bucket), table.filter(pa.array(buckets == bucket))) for bucket in np.unique(buckets)]

    def tables(self) -> Iterator[pa.Table]:
        """All rows without ``position``, in order, a bucket at a time."""
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
