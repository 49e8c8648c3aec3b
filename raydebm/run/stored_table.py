"""Records that stay on disk: a table is read in batches each time that it is iterated.

Does not know: what is done with the records.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from raydebm.run.codec import Codec
from raydebm.run.folder import BATCH_ROWS, Folder

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Many(Protocol[T_co]):
    """Records that can be counted and iterated more than once: a list, or a table on disk."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[T_co]: ...


@dataclass(frozen=True, slots=True)
class StoredTable(Generic[T]):
    """The records of a table. What goes wrong with the file is a PoolError of the first read."""

    folder: Folder
    codec: Codec[T]
    parts: tuple[str, ...]
    keep: Callable[[T], bool] | None = None
    """Which records count; None: all."""

    def where(self, keep: Callable[[T], bool]) -> "StoredTable[T]":
        """The records of the table for which ``keep`` is true."""
        return replace(self, keep=keep)

    def __len__(self) -> int:
        """Counts by reading where a choice was made."""
        return self.folder.num_rows(*self.parts) if self.keep is None else sum(1 for _ in self)

    def __iter__(self) -> Iterator[T]:
        records = (self.codec.record(row) for table in self.tables(BATCH_ROWS) for row in table.to_pylist())
        return records if self.keep is None else filter(self.keep, records)

    def tables(self, size: int) -> Iterator[pa.Table]:
        """All rows, also those that were not chosen, at most ``size`` a table."""
        return self.folder.read_tables(self.codec, *self.parts, size=size)

    def column(self, name: str) -> Iterator[str]:
        """The values of one column of texts, in order, also of rows that were not chosen. The others are not read."""
        for table in self.folder.read_tables(self.codec, *self.parts, columns=[name]):
            yield from table[name].to_pylist()
