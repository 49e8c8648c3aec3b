"""Reads stored decisions lazily: filters, pages, one decision, and what is needed to decide again.

Lists rest on an index in memory; everything else skips files by their names and row groups by their statistics. Files
may come and go while they are read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from raydebm.decisions.outcomes.log import OutcomeLog
from raydebm.decisions.record import DECISIONS, SUMMARY, DecisionRecord, microseconds, record_of, time_of_id
from raydebm.decisions.storage.damage import NO_DECISION, DamagedFileError, decoding, note_left_out
from raydebm.decisions.storage.file_names import RecordFile
from raydebm.decisions.storage.index import SummaryIndex, completed
from raydebm.decisions.storage.parquet_folder import FolderReader
from raydebm.errors import ConfigError
from raydebm.run.codec import Row

T = TypeVar("T")
SortKey = Literal[
    "time", "sigma", "confidence", "signal", "mu", "energy", "penalty", "cost_usd", "latency_ms", "num_candidates"
]
NO_OUTCOME = "none"
LISTED = pa.schema([*SUMMARY, ("outcome", pa.string())])
"""``SUMMARY``, and what was reported: right, wrong or null. It stands in the log of outcomes and in no decision's
file."""
LAST_YEAR = 9998
"""No decision is newer; what comes after it would be no time."""


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
    """Least sigma of the selected candidate, inclusive. Decisions without a selection have no sigma and do not pass."""
    max_sigma: float | None = None
    problem_id: str | None = None
    request_id: str | None = None
    num_passes: int | None = None
    generator: str | None = None
    """Who wrote the selected candidate."""
    violated: bool | None = None
    """Whether the selected candidate violates a constraint. Decisions without a selection do not pass."""
    text: str | None = None
    """Stands in the title, which is the beginning of the problem; upper and lower case are the same."""
    outcome: str | None = None
    """What was reported about it: ``right``, ``wrong`` or ``none``."""
    policy_id: str | None = None
    """Id of the policy that decided."""

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise ConfigError(f"{name} must have a time zone, got {value.isoformat()!r}; add Z or +00:00")

    def expression(self) -> ds.Expression | None:
        """As pyarrow's datasets take it; None when everything passes."""
        terms = list(self._terms().values())
        return None if not terms else reduce(and_, terms)

    def columns(self) -> list[str]:
        """What the expression reads."""
        return list(dict.fromkeys(column for column, _ in self._terms()))

    def _terms(self) -> dict[tuple[str, str], ds.Expression]:
        """By column and comparison."""
        wanted: tuple[tuple[str, str, Any], ...] = (
            ("decision", "eq", self.decision),
            ("task", "eq", self.task),
            ("problem_id", "eq", self.problem_id),
            ("request_id", "eq", self.request_id),
            ("num_passes", "eq", self.num_passes),
            ("generator", "eq", self.generator),
            ("policy_id", "eq", self.policy_id),
            ("outcome", "eq", None if self.outcome == NO_OUTCOME else self.outcome),
            ("penalty", "gt" if self.violated else "le", None if self.violated is None else 0.0),
            ("time", "ge", _scalar(self.since)),
            ("time", "lt", _scalar(self.until)),
            ("sigma", "ge", self.min_sigma),
            ("sigma", "le", self.max_sigma),
        )
        terms: dict[tuple[str, str], ds.Expression] = {
            (column, compare): getattr(ds.field(column), f"__{compare}__")(value)
            for column, compare, value in wanted
            if value is not None
        }
        if self.outcome == NO_OUTCOME:
            terms["outcome", "absent"] = ds.field("outcome").is_null()
        if self.text:
            terms["title", "holds"] = pc.match_substring(ds.field("title"), self.text, ignore_case=True)
        return terms

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
    """Columns of ``LISTED``; answers and reasons cut to their first 200 characters."""


class DecisionReader:
    """Reads one folder of decisions. Keeps what lists show in memory (``index``). Threads may share it."""

    def __init__(self, root: str, *, outcomes: OutcomeLog | None = None) -> None:
        """
        Args:
            root: the folder, a local path or a filesystem URL.
            outcomes: what was reported about its decisions; None: the log below the folder, with the usual limits.
        """
        self.root = root
        self._folder = FolderReader(root)
        self._index = SummaryIndex(self._folder.filesystem)
        self.outcomes = outcomes or OutcomeLog(root)

    def count(self, where: Filter | None = None) -> int:
        """How many decisions pass."""
        return int(self.table([], where).num_rows)

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
        filter_ = where or Filter()
        lines = self._folder.retried(lambda: self._lines(filter_))
        keys = _passing(lines, [sort, "record_id"], filter_).combine_chunks()
        direction = "descending" if descending else "ascending"
        order = pc.sort_indices(keys, sort_keys=[(sort, direction), ("record_id", direction)])
        ids = keys["record_id"].take(order[offset : offset + limit])
        return Page(total=keys.num_rows, offset=offset, rows=_rows_of(lines, ids.to_pylist()))

    def summaries(self, record_ids: Sequence[str]) -> list[Row]:
        """Columns of ``LISTED`` of these decisions, in their order; those that are not there are left out."""
        return _rows_of(self.table(LISTED.names), record_ids)

    def summary(self, record_id: str) -> Row | None:
        """Columns of ``LISTED`` of one decision; None when it is not (or no longer) there."""
        where = _exactly(record_id)
        rows = [] if where is None else _rows_of(self.table(LISTED.names, where), [record_id])
        return rows[0] if rows else None

    def table(self, columns: Sequence[str], where: Filter | None = None) -> pa.Table:
        """Columns of ``LISTED`` of all decisions that pass, in no order; answers and reasons cut to 200 characters."""
        filter_ = where or Filter()
        return _passing(self._folder.retried(lambda: self._lines(filter_)), columns, filter_)

    def _lines(self, where: Filter) -> pa.Table:
        files = self._folder.files()
        paths = self._folder.paths([file for file in files if where.may_hold(file)])
        return self._with_outcomes(self._index.table(paths, known=list(map(self._folder.path_of, files))))

    def _with_outcomes(self, table: pa.Table) -> pa.Table:
        return table.append_column(LISTED.field("outcome"), self.outcomes.outcome_column(table["record_id"]))

    def get(self, record_id: str) -> DecisionRecord | None:
        """One whole decision; None when it is not (or no longer) there."""
        where = _exactly(record_id)
        if where is None:
            return None
        rows = self._folder.retried(lambda: self._rows(where, ds.field("record_id") == record_id))
        return _record(rows[0]) if rows else None

    def records(self, where: Filter | None = None, *, batch_size: int = 64) -> Iterator[DecisionRecord]:
        """Whole decisions that pass, oldest file first, a few at a time in memory."""
        for batch in self.batches(DECISIONS.names, where, batch_size=batch_size):
            yield from (record for row in batch.to_pylist() if (record := _record(row)) is not None)

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
        filter_ = where or Filter()
        expression = filter_.expression()
        of_filter = [name for name in filter_.columns() if name != "outcome"]
        needed = list(dict.fromkeys([*columns, *of_filter, *(["record_id"] if filter_.outcome else [])]))
        files = self._folder.retried(lambda: self._opened(filter_))
        for path, file in files:
            with file:
                for batch in self._decoded(path, file, needed, batch_size):
                    if expression is None:
                        yield batch
                    else:
                        table = completed(pa.Table.from_batches([batch]), of_filter)
                        table = self._with_outcomes(table) if filter_.outcome else table
                        yield from table.filter(expression).to_batches()

    def _decoded(
        self, path: str, file: pq.ParquetFile, columns: Sequence[str], batch_size: int
    ) -> Iterator[pa.RecordBatch]:
        """The batches of one file, as far as it can be decoded."""
        batches = file.iter_batches(batch_size=batch_size, columns=columns)
        while True:
            try:
                with decoding(path, self._folder.filesystem):
                    batch = next(batches, None)
                    if batch is not None:
                        batch.validate(full=True)
            except DamagedFileError as error:
                self._folder.leave_out(error)
                return
            if batch is None:
                return
            yield batch

    def _opened(self, where: Filter) -> list[tuple[str, pq.ParquetFile]]:
        opened: list[tuple[str, pq.ParquetFile]] = []
        try:
            for path in self._paths(where):
                with decoding(path, self._folder.filesystem):
                    opened.append((path, pq.ParquetFile(path, filesystem=self._folder.filesystem)))
        except (FileNotFoundError, DamagedFileError):
            for _, file in opened:
                file.close()
            raise
        return opened

    def _rows(self, where: Filter, exactly: ds.Expression) -> list[Row]:
        return [row for path in self._paths(where) for row in self._rows_in(path, where.expression() & exactly)]

    def _rows_in(self, path: str, expression: ds.Expression) -> list[Row]:
        filesystem = self._folder.filesystem
        with decoding(path, filesystem):
            dataset = ds.dataset([path], schema=DECISIONS, format="parquet", filesystem=filesystem)
            return list(dataset.to_table(filter=expression).to_pylist())

    def _paths(self, where: Filter) -> list[str]:
        return self._folder.paths([file for file in self._folder.files() if where.may_hold(file)])


def _exactly(record_id: str) -> Filter | None:
    """A filter that this decision passes, and others of the very same microsecond; None when it is no such id."""
    time = time_of_id(record_id)
    if time is None or time.year > LAST_YEAR:
        return None
    return Filter(since=time, until=time + timedelta(microseconds=1))


def _passing(lines: pa.Table, columns: Sequence[str], where: Filter) -> pa.Table:
    expression = where.expression()
    if expression is not None:
        lines = lines.select(list(dict.fromkeys([*columns, *where.columns()]))).filter(expression)
    return lines.select(list(columns))


def _rows_of(lines: pa.Table, record_ids: Sequence[str]) -> list[Row]:
    """The rows of these ids, in their order."""
    wanted = pa.array(list(record_ids), pa.string())
    by_id = {row["record_id"]: row for row in lines.filter(pc.is_in(lines["record_id"], wanted)).to_pylist()}
    return [by_id[record_id] for record_id in record_ids if record_id in by_id]


def _record(row: Row) -> DecisionRecord | None:
    """None for a row that is no decision."""
    try:
        return record_of(row)
    except NO_DECISION as error:
        note_left_out(error)
        return None
