"""One Parquet file, written part by part."""

from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS = 8192
GROUP_BYTES = 32 * 2**20
"""A row group is written when it has so many rows or bytes. Small enough to keep, large enough to compress well."""


class TableWriter:
    """Appends tables to a Parquet file, which is complete when the context ends. Holds one row group in memory."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        """
        Args:
            stream: where the file goes; the caller closes it.
            schema: that of every table.
        """
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
        """Append rows. Columns may come in any order; those that the file has not are left out."""
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
