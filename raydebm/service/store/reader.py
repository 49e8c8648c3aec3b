"""Reader of stored decisions: filters, pages, single decisions, and streams of whole ones.

Lists use columns in memory; everything else skips files by their times. Files may appear and disappear during reads.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Annotated, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from raydebm.errors import ConfigError
from raydebm.run.codec import Row
from raydebm.service.store.outcomes import OutcomeLog
from raydebm.service.store.parquet_folder import FolderReader
from raydebm.service.store.record import (
    DECISIONS,
    LISTED,
    SUMMARY,
    DecisionRecord,
    DecisionSummary,
    microseconds,
    record_of,
    time_of_id,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

SortKey = Literal[
    "time", "sigma", "confidence", "signal", "mu", "energy", "penalty", "cost_usd", "latency_ms", "num_candidates"
]
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def _storable(value: datetime) -> datetime:
    """Convert to UTC. Refuses times that microseconds since 1970 cannot represent in every time zone."""
    if not _EARLIEST <= value <= _LATEST:
        raise ValueError(f"must be between {_EARLIEST:%Y-%m-%d} and {_LATEST:%Y-%m-%d}")
    return value.astimezone(UTC)


def _encodable(value: str) -> str:
    value.encode()
    return value


_Time = Annotated[AwareDatetime, AfterValidator(_storable)]
_Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_encodable)]


class Filter(BaseModel):
    """Filter of decisions. Default: no condition."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    decision: Literal["accept", "abstain"] | None = None
    task: _Name | None = None
    generator: _Name | None = None
    """Generator of the selected candidate."""
    text: _Name | None = None
    """Text that occurs in the first 120 characters of the problem, compared without case."""
    since: _Time | None = None
    """At or after; with a time zone, such as 2026-01-31T12:00Z."""
    until: _Time | None = None
    """Before."""
    request_id: _Name | None = None
    outcome: Literal["right", "wrong", "none"] | None = None
    """Reported outcome; `none`: no report yet."""
    policy_id: _Name | None = None
    """Id of the policy that decided."""

    def expression(self) -> ds.Expression | None:
        """The filter except for the outcome, as a pyarrow expression; None if everything passes."""
        names = ("decision", "task", "request_id", "generator", "policy_id")
        terms = [ds.field(name) == value for name in names if (value := getattr(self, name)) is not None]
        if self.since is not None:
            terms.append(ds.field("time") >= _scalar(self.since))
        if self.until is not None:
            terms.append(ds.field("time") < _scalar(self.until))
        if self.text:
            terms.append(pc.match_substring(ds.field("title"), self.text, ignore_case=True))
        return reduce(and_, terms) if terms else None

    @property
    def span_us(self) -> tuple[int | None, int | None]:
        """First and last microsecond of the time range."""
        since = None if self.since is None else microseconds(self.since)
        return since, None if self.until is None else microseconds(self.until) - 1


def _scalar(time: datetime) -> pa.Scalar:
    return pa.scalar(time, pa.timestamp("us", tz="UTC"))


class DecisionList(BaseModel):
    """Part of a list. Answers and reasons are cut to their first 200 characters."""

    object: Literal["list"] = "list"
    total: int
    """Number of decisions that match the filter."""
    offset: int
    data: list[DecisionSummary]


class DecisionReader:
    """Read one folder of decisions, with the columns of lists in memory. Thread-safe."""

    def __init__(self, root: str, *, outcomes: OutcomeLog | None = None) -> None:
        self.root = root
        self._folder = FolderReader(root, DECISIONS, SUMMARY, row_id="record_id")
        self.outcomes = outcomes or OutcomeLog(root)

    def page(
        self,
        where: Filter | None = None,
        *,
        sort: SortKey = "time",
        descending: bool = True,
        offset: int = 0,
        limit: int = 50,
    ) -> DecisionList:
        """A page of the decisions that pass, sorted; those without a value for ``sort`` are last, ties by record id."""
        lines = self.table(LISTED.names, where)
        direction = "descending" if descending else "ascending"
        order = pc.sort_indices(lines, sort_keys=[(sort, direction), ("record_id", direction)])
        rows = lines.take(order[offset : offset + limit]).to_pylist()
        return DecisionList(total=lines.num_rows, offset=offset, data=list(_summaries(rows)))

    def summary(self, record_id: str) -> DecisionSummary | None:
        """One decision's row of a list; None if it does not exist."""
        where = _exactly(record_id)
        rows = [] if where is None else self.table(LISTED.names, where).to_pylist()
        return next((row for row in _summaries(rows) if row.record_id == record_id), None)

    def table(self, columns: Sequence[str], where: Filter | None = None) -> pa.Table:
        """Columns ``LISTED`` of all decisions that pass, unordered; answers and reasons cut to 200 characters."""
        where = where or Filter()
        lines = self._folder.table(*where.span_us)
        if (expression := where.expression()) is not None:
            lines = lines.filter(expression)
        lines = lines.append_column(LISTED.field("outcome"), self.outcomes.outcome_column(lines["record_id"]))
        if where.outcome == "none":
            lines = lines.filter(pc.is_null(lines["outcome"]))
        elif where.outcome is not None:
            lines = lines.filter(pc.equal(lines["outcome"], where.outcome))
        return lines.select(list(columns))

    def get(self, record_id: str) -> DecisionRecord | None:
        """One whole decision; None if it does not exist."""
        where = _exactly(record_id)
        records = () if where is None else self.records(where)
        return next((record for record in records if record.record_id == record_id), None)

    def records(self, where: Filter | None = None, *, batch_size: int = 64) -> Iterator[DecisionRecord]:
        """Whole decisions that pass, oldest file first, a few at a time in memory."""
        where = where or Filter()
        wanted = None if where.outcome is None else set(self.table(["record_id"], where)["record_id"].to_pylist())
        for batch in self._folder.batches(*where.span_us, where=where.expression(), batch_size=batch_size):
            for row in batch.to_pylist():
                if wanted is not None and row["record_id"] not in wanted:
                    continue
                if (record := _read(record_of, row)) is not None:
                    yield record


def _summaries(rows: Iterable[Row]) -> Iterator[DecisionSummary]:
    return (row for row in (_read(DecisionSummary.model_validate, row) for row in rows) if row is not None)


def _read(read: Callable[[Row], T], row: Row) -> T | None:
    """The row as a record; None if it is damaged, which Parquet without page checksums may not notice."""
    try:
        return read(row)
    except (ConfigError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("a stored decision is left out: it cannot be read: %s", error)
        return None


def _exactly(record_id: str) -> Filter | None:
    """Filter for a decision, which others of the same microsecond also pass; None for an invalid id."""
    time = time_of_id(record_id)
    if time is None or not _EARLIEST <= time < _LATEST:
        return None
    return Filter(since=time, until=time + timedelta(microseconds=1))
