"""What lists show of every stored decision, kept in memory: files never change, so each is read once.

100,000 decisions take about 40 MB. Beyond ``MAX_BYTES`` the oldest files are read again each time.
"""

import threading
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from raydebm.decisions.record import SUMMARY
from raydebm.decisions.storage.damage import decoding

MAX_BYTES = 128 * 2**20
SHOWN_CHARS = 200
"""Answers and reasons are cut here: a list shows their beginning, and an answer may be a whole program."""
_CUT = ("answer", "reason")


class SummaryIndex:
    """Columns of a schema by file. Threads may share it."""

    def __init__(self, filesystem: fs.FileSystem, schema: pa.Schema = SUMMARY) -> None:
        self._filesystem, self._schema = filesystem, schema
        self._kept: dict[str, pa.Table] = {}
        self._reading = threading.Lock()

    def table(self, paths: Sequence[str], *, known: Sequence[str]) -> pa.Table:
        """
        Args:
            paths: files to read, oldest first.
            known: all files that exist; others are forgotten.

        Raises:
            FileNotFoundError: a file is gone.
            DamagedFileError: a file cannot be decoded.
        """
        with self._reading:  # two threads must not read the same files at the same time
            self._kept = {path: self._kept[path] for path in known if path in self._kept}
            size = sum(table.nbytes for table in self._kept.values())
            tables = []
            for path in reversed(paths):
                table = self._kept.get(path)
                if table is None:
                    table = self._read(path)
                    if size + table.nbytes <= MAX_BYTES:
                        self._kept[path] = table
                        size += table.nbytes
                tables.append(table)
        return pa.concat_tables(reversed(tables)) if tables else self._schema.empty_table()

    def _read(self, path: str) -> pa.Table:
        schema = self._schema
        with decoding(path, self._filesystem), pq.ParquetFile(path, filesystem=self._filesystem) as file:
            table = completed(file.read(columns=schema.names), schema.names, schema).select(schema.names)
            table.validate(full=True)  # text that is no text would only be noticed where it is shown
            for name in set(_CUT) & set(schema.names):
                place = schema.get_field_index(name)
                shown = pc.utf8_slice_codeunits(table[name], 0, SHOWN_CHARS)
                table = table.set_column(place, schema.field(place), shown)
            return table.cast(schema).combine_chunks()


def completed(table: pa.Table, columns: Sequence[str], schema: pa.Schema = SUMMARY) -> pa.Table:
    """With nulls for columns that an older file lacks."""
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
    return table
