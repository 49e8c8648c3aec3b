"""Tables on their way to workers: files that every worker can read, so that only their addresses pass through Ray."""

from collections.abc import Iterator

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
