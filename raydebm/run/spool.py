"""Tables for workers, in Parquet files of the run. Ray carries only their addresses."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.run.folder import Folder

ADDRESS = "address"
MAX_SLICES = 2048
"""Limit on slices, because Ray's driver keeps a few kB per block while a dataset runs."""


def slice_rows(total: int, *, at_least: int) -> int:
    """Rows per slice: the smallest multiple of ``at_least`` that gives at most ``MAX_SLICES`` slices.

    Args:
        total: number of rows, or an upper bound.
        at_least: rows per unit of work.
    """
    return max(-(-total // (MAX_SLICES * at_least)), 1) * at_least


class Spool:
    """A folder of numbered tables (slices), which ``close`` removes."""

    def __init__(self, folder: Folder, *parts: str) -> None:
        """Make an empty spool at a path of the run's folder, and remove what an earlier process left there."""
        self._folder, self._parts = folder, parts
        self.addresses: list[pa.Table] = []
        """One single-row table per slice with its address, in order: the blocks that Ray carries."""
        self.num_rows = 0
        self.close()

    def add(self, table: pa.Table) -> None:
        """Write one slice."""
        sink, name = pa.BufferOutputStream(), f"{len(self.addresses):06d}.parquet"
        pq.write_table(table, sink)
        self._folder.write_bytes(sink.getvalue(), *self._parts, name)
        self.addresses.append(pa.table({ADDRESS: [self._folder.uri(*self._parts, name)]}))
        self.num_rows += table.num_rows

    def close(self) -> None:
        """Remove all slices."""
        self._folder.remove(*self._parts)


def read_slices(block: pa.Table) -> Iterator[pa.Table]:
    """The slices at the addresses in a block of ``Spool.addresses``."""
    for address in block[ADDRESS].to_pylist():
        parent, name = str(address).rsplit("/", 1)
        yield pq.read_table(pa.BufferReader(Folder(parent).read_bytes(name)))
