"""Reads stored decisions lazily: filters, pages, one decision, and what is needed to decide again.

Lists read only the columns that a list shows, and skip files by their names and row groups by their statistics, so that
a page over 100,000 decisions costs a fraction of a second. Files may come and go while they are read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from raydebm.errors import ConfigError, PoolError
from raydebm.serving.records import DECISIONS, SUMMARY, DecisionRecord, microseconds, record_of, time_of_id
from raydebm.serving.records_files import RecordFile, filesystem_of, record_files, replaced_by
from raydebm.store import Row

T = TypeVar("T")
SortKey = Literal["time", "sigma", "signal", "mu", "energy", "penalty", "cost_usd", "latency_ms", "num_candidates"]
NUM_TRIES = 5
"""Listings are repeated when a file that was listed is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which decisions. None: any."""

    decision: str | None = None
    """``accept`` or ``abstain``."""
    task: str | None = None
    since: datetime | None = None
    """At or after; with a time zone."""
    until: datetime | None = None
    """Before; with a time zone."""
    min_sigma: float | None = None
    """Of the selected candidate, inclusive. Decisions without a selection have no sigma and do not pass."""
    max_sigma: float | None = None
    problem_id: str | None = None
    request_id: str | None = None
    num_passes: int | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise ConfigError(f"{name} must have a time zone, got {value.isoformat()!r}; add Z or +00:00")

    def expression(self) -> ds.Expression | None:
        """As pyarrow's datasets take it; None when everything passes."""
        found: ds.Expression | None = None
        for column, compare, value in (
            ("decision", "eq", self.decision),
            ("task", "eq", self.task),
            ("problem_id", "eq", self.problem_id),
            ("request_id", "eq", self.request_id),
            ("num_passes", "eq", self.num_passes),
            ("time", "ge", _scalar(self.since)),
            ("time", "lt", _scalar(self.until)),
            ("sigma", "ge", self.min_sigma),
            ("sigma", "le", self.max_sigma),
        ):
            if value is not None:
                term = getattr(ds.field(column), f"__{compare}__")(value)
                found = term if found is None else found & term
        return found

    def may_hold(self, file: RecordFile) -> bool:
        """Whether a file's times overlap the filter's."""
        late = self.until is not None and file.first_us >= microseconds(self.until.astimezone(UTC))
        early = self.since is not None and file.last_us < microseconds(self.since.astimezone(UTC))
        return not (late or early)


def _scalar(time: datetime | None) -> pa.Scalar | None:
    return None if time is None else pa.scalar(time.astimezone(UTC), pa.timestamp("us", tz="UTC"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a list."""

    total: int
    """Decisions that pass the filter."""
    offset: int
    rows: list[Row]
    """Columns of ``SUMMARY``."""


class DecisionReader:
    """Reads one folder of decisions. Keeps the files' footers in memory, nothing else. Threads may share it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._filesystem, self._path = filesystem_of(root)
        self._replaced: dict[str, frozenset[str]] = {}
        self._dataset: tuple[tuple[str, ...], ds.Dataset] = ((), ds.dataset(DECISIONS.empty_table()))

    def count(self, where: Filter | None = None) -> int:
        """How many decisions pass."""
        where = where or Filter()
        return self._retried(lambda: int(self._of(where).count_rows(filter=where.expression())))

    def page(
        self,
        where: Filter | None = None,
        *,
        sort: SortKey = "time",
        descending: bool = True,
        offset: int = 0,
        limit: int = 50,
    ) -> Page:
        """A part of the decisions that pass, sorted; those without a value for ``sort`` come last, ties by record id.

        Raises:
            ConfigError: an unknown sort key, or a negative offset or limit.
        """
        if sort not in get_args(SortKey):
            raise ConfigError(f"decisions cannot be sorted by {sort!r}; known: {', '.join(get_args(SortKey))}")
        if offset < 0 or limit < 0:
            raise ConfigError(f"offset and limit must be >= 0, got {offset} and {limit}")
        found = where or Filter()
        return self._retried(lambda: self._page(found, sort, descending, offset, limit))

    def _page(self, where: Filter, sort: str, descending: bool, offset: int, limit: int) -> Page:
        dataset = self._of(where)
        keys = dataset.to_table(columns=list(dict.fromkeys(["record_id", "time", sort])), filter=where.expression())
        direction = "descending" if descending else "ascending"
        order = pc.sort_indices(keys, sort_keys=[(sort, direction), ("record_id", direction)])
        wanted = keys.take(order[offset : offset + limit])
        if wanted.num_rows == 0:
            return Page(total=keys.num_rows, offset=offset, rows=[])
        ids = wanted["record_id"]
        first, last = pc.min_max(wanted["time"]).values()
        near = (ds.field("time") >= first) & (ds.field("time") <= last) & ds.field("record_id").isin(ids)
        rows = dataset.to_table(columns=SUMMARY.names, filter=near).to_pylist()
        by_id = {row["record_id"]: row for row in rows}
        return Page(total=keys.num_rows, offset=offset, rows=[by_id[found] for found in ids.to_pylist()])

    def get(self, record_id: str) -> DecisionRecord | None:
        """One whole decision; None when it is not (or no longer) there."""
        time = time_of_id(record_id)
        if time is None:
            return None
        where = Filter(since=time, until=time + timedelta(microseconds=1))
        rows = self._retried(lambda: self._rows(where, ds.field("record_id") == record_id))
        return record_of(rows[0]) if rows else None

    def records(self, where: Filter | None = None, *, batch_size: int = 64) -> Iterator[DecisionRecord]:
        """Whole decisions that pass, oldest file first, a few at a time in memory."""
        for batch in self.batches(DECISIONS.names, where, batch_size=batch_size):
            yield from map(record_of, batch.to_pylist())

    def batches(
        self, columns: Sequence[str], where: Filter | None = None, *, batch_size: int = 2048
    ) -> Iterator[pa.RecordBatch]:
        """Selected columns of the decisions that pass, oldest file first.

        All files are opened first: what was listed can then be read to its end, whatever is merged or removed.

        Args:
            columns: names; members of lists of structures with dots, such as ``candidates.list.element.members``.
            where: which decisions.
            batch_size: decisions of one batch, at most.
        """
        found = where or Filter()
        expression = found.expression()
        needed = list(dict.fromkeys([*columns, *(() if expression is None else _FILTER_COLUMNS)]))
        files = self._retried(lambda: self._opened(found))
        for file in files:
            with file:
                for batch in file.iter_batches(batch_size=batch_size, columns=needed):
                    if expression is None:
                        yield batch
                    else:
                        yield from pa.Table.from_batches([batch]).filter(expression).to_batches()

    def _opened(self, where: Filter) -> list[pq.ParquetFile]:
        opened: list[pq.ParquetFile] = []
        try:
            opened.extend(pq.ParquetFile(path, filesystem=self._filesystem) for path in self._paths(where))
        except FileNotFoundError:
            for file in opened:
                file.close()
            raise
        return opened

    def _rows(self, where: Filter, exactly: ds.Expression) -> list[Row]:
        return list(self._of(where).to_table(filter=where.expression() & exactly).to_pylist())

    def _of(self, where: Filter) -> ds.Dataset:
        """The dataset over the files that may hold what is wanted. That of all files is kept, for its footers."""
        paths = tuple(self._paths(where))
        kept_paths, kept = self._dataset
        if paths == kept_paths:
            return kept
        if not paths:
            return ds.dataset(DECISIONS.empty_table())
        made = ds.dataset(list(paths), schema=DECISIONS, format="parquet", filesystem=self._filesystem)
        if where.since is None and where.until is None:
            self._dataset = (paths, made)
        return made

    def _paths(self, where: Filter) -> list[str]:
        return [f"{self._path}/{file.name}" for file in self._files() if where.may_hold(file)]

    def _files(self) -> list[RecordFile]:
        """Without those that a merged file stands for."""
        files = record_files(self.root)
        replaced = {file.name: self._replaced_by(file) for file in files if file.level}
        self._replaced = replaced  # one assignment, because threads may share a reader
        gone = frozenset().union(*replaced.values())
        return [file for file in files if file.name not in gone]

    def _replaced_by(self, file: RecordFile) -> frozenset[str]:
        """Raises PoolError when the file is not a Parquet table; FileNotFoundError when it is gone."""
        known = self._replaced.get(file.name)
        if known is not None:
            return known
        try:
            metadata = pq.read_metadata(f"{self._path}/{file.name}", filesystem=self._filesystem)
        except pa.ArrowInvalid as error:
            raise PoolError(f"{self.root}/{file.name} is not a readable Parquet file: {error}") from error
        return replaced_by(metadata.metadata)

    def _retried(self, read: Callable[[], T]) -> T:
        for _ in range(NUM_TRIES - 1):
            try:
                return read()
            except FileNotFoundError:
                continue  # merged or removed since it was listed
        return read()


_FILTER_COLUMNS = ("decision", "task", "problem_id", "request_id", "num_passes", "time", "sigma")
