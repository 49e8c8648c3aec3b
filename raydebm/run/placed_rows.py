"""Rows that come in any order, put in order on this machine's disk.

Each row has its place in the table that is being made. Rows of neighbouring places share a bucket of files, so that
reading one bucket after the other gives the whole table in order, with one bucket in memory.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
