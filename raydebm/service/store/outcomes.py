"""Stored outcomes: an append-only log next to the decisions, the current verdicts, and tests of guaranteed error rates.

Rows never change and are never removed. All reports on a decision are stored, and the last to arrive counts. Arrival
is ordered by ``outcome_id``, which begins with a hybrid logical clock: microseconds since 1970, but at least one more
than anything in the log. So a clock that is set back, or that differs between replicas, does not let an older report
win. Every replica, also after a restart, tests on the same outcomes, in the order of the first report on each problem.

Independent of: Ray, HTTP.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from raydebm.decision.guarantee.watch import ErrorWatch, suspension_of
from raydebm.identity import content_id
from raydebm.run.codec import Codec
from raydebm.service.store.parquet_folder import OUTCOME_FILES, UNREADABLE, FolderReader, FolderWriter
from raydebm.service.store.record import EPOCH, microseconds

log = logging.getLogger(__name__)

FOLDER = "outcomes"
"""Folder name inside the records folder."""
RIGHT, WRONG = "right", "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedOutcome:
    """One report on one decision."""

    outcome_id: str
    """Unique; sorts by arrival."""
    record_id: str
    correct: bool
    """Verdict on the selected candidate: the accepted answer, or the one withheld by an abstention."""
    by: str
    """Reporter: a person, a program, a team. Each has one current report."""
    content: str
    task: str
    policy_id: str | None
    """Id of the deciding policy (``record.policy_id``)."""
    decision: str
    """``accept`` or ``abstain``."""
    time: datetime
    """Time of receipt on the clock of the receiving replica, UTC."""
    answer: str | None = None
    """The correct answer, in the form that the task parses."""
    note: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Reports on single fields by path: ``correct``, and ``value`` if the right one is known."""
    key: str | None = None
    """Name of the sender's API key. None if no key is needed."""
    selected: str | None = None
    """Candidate id. None if nothing was selected."""
    problem_key: str | None = None
    """``record.problem_key`` of the decision."""


_CODEC = Codec(ReportedOutcome)
OUTCOMES = _CODEC.schema
_OF_LINES = ("outcome_id", "record_id", "correct", "by", "content", "task", "policy_id", "decision", "problem_key")
LINES = pa.schema([OUTCOMES.field(name) for name in _OF_LINES])
"""Columns kept in memory for every outcome. ``content`` is an id of the report's content; the last four are copied from
the decision, so that figures survive its removal."""


def content_of(*, correct: bool, answer: str | None, note: str | None, fields: Mapping[str, Any]) -> str:
    """Id of a report's content; equal reports have equal ids."""
    return content_id(correct, answer, note, *([dict(fields)] if fields else []))


def reports_by_record(
    reports: Iterator[ReportedOutcome], *, by: Sequence[str] | None = None
) -> dict[str, list[ReportedOutcome]]:
    """Current reports on each decision, one per reporter, in order of arrival."""
    current: dict[str, dict[str, ReportedOutcome]] = {}
    for report in reports:
        if by is None or report.by in by:
            about = current.setdefault(report.record_id, {})
            about.pop(report.by, None)  # moves a later report to the end
            about[report.by] = report
    return {record_id: list(about.values()) for record_id, about in current.items()}


class OutcomeLog:
    """Outcomes of one records folder. Thread-safe, except that ``append`` needs a single caller."""

    def __init__(self, records: str, *, clock: Callable[[], float] = time.time) -> None:
        self.records = records
        self.root = f"{records.rstrip('/')}/{FOLDER}"
        self._clock = clock
        self._reader = FolderReader(self.root, OUTCOMES, LINES, row_id="outcome_id", kind=OUTCOME_FILES)
        self._writer = FolderWriter(self.root, kind=OUTCOME_FILES)
        self._counted: tuple[pa.Table, pa.Table] = (LINES.empty_table(), verdicts_of(LINES.empty_table()))

    # ---- reading -----------------------------------------------------------------------------------------------

    def lines(self) -> pa.Table:
        """Columns ``LINES`` of every report, in order of arrival."""
        return self.snapshot()[0]

    def verdicts(self) -> pa.Table:
        """Current verdicts: ``record_id``, ``outcome`` (right or wrong) and ``disputed``, a row per decision."""
        return self.snapshot()[1]

    def outcome_column(self, record_ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """``right``, ``wrong`` or null for each of these decisions."""
        verdicts = self.verdicts()
        places = pc.index_in(record_ids, value_set=verdicts["record_id"].combine_chunks())
        return verdicts["outcome"].combine_chunks().take(places.combine_chunks())

    def history(self, record_id: str) -> list[ReportedOutcome]:
        """All reports on a decision, in order of arrival."""
        return list(self._reported(ds.field("record_id") == record_id))

    def reports(self) -> Iterator[ReportedOutcome]:
        """All reports, in order of arrival."""
        return self._reported(None)

    def _reported(self, where: ds.Expression | None) -> Iterator[ReportedOutcome]:
        batches = list(self._reader.batches(where=where, batch_size=10_000))
        table = pa.Table.from_batches(batches, schema=OUTCOMES).sort_by("outcome_id")
        return map(_CODEC.record, table.to_pylist())

    def snapshot(self) -> tuple[pa.Table, pa.Table]:
        """Consistent ``lines`` and ``verdicts``."""
        lines, (known, verdicts) = self._reader.table().sort_by("outcome_id"), self._counted
        if lines["outcome_id"] != known["outcome_id"]:
            verdicts = verdicts_of(lines)
            self._counted = (lines, verdicts)
        return lines, verdicts

    # ---- writing -----------------------------------------------------------------------------------------------

    def new_ids(self, num: int) -> tuple[list[str], datetime]:
        """Ids that sort after everything in the log, in order; and the current time."""
        now = EPOCH + timedelta(microseconds=int(1e6 * self._clock()))
        lines = self.lines()
        last = int(lines["outcome_id"][-1].as_py()[:16], 16) if lines.num_rows else 0
        first = max(microseconds(now), last + 1)
        return [f"{first + place:016x}{uuid.uuid4().hex[:8]}" for place in range(num)], now.astimezone(UTC)

    def append(self, reports: Sequence[ReportedOutcome]) -> None:
        """Store reports; they are on the disk, or in the remote store, when this returns. On OSError none is stored."""
        rows = [_CODEC.row(report) for report in reports]
        times = [microseconds(report.time) for report in reports]
        self._writer.append(pa.Table.from_pylist(rows, schema=OUTCOMES), min(times), max(times))

    def tidy(self) -> None:
        """Merge small files."""
        self._writer.merge()


def verdicts_of(lines: pa.Table) -> pa.Table:
    """Last report of each decision, sorted by ``record_id``; ``disputed`` if the reporters' current reports differ."""
    by_person = lines.group_by(["record_id", "by"], use_threads=False).aggregate([("correct", "last")])
    people = by_person.group_by("record_id", use_threads=False).aggregate(
        [("correct_last", "min"), ("correct_last", "max")]
    )
    last = lines.group_by("record_id", use_threads=False).aggregate([("correct", "last")])
    # The order of groups is undefined, so both are sorted to align rows.
    people, last = people.sort_by("record_id"), last.sort_by("record_id")
    return pa.table(
        {
            "record_id": last["record_id"],
            "outcome": pc.if_else(last["correct_last"], RIGHT, WRONG),
            "disputed": pc.not_equal(people["correct_last_min"], people["correct_last_max"]),
        }
    )


REFRESH_S = 30.0
"""Minimum seconds between two updates; outcomes that other replicas received count from the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The guarantee of one policy."""

    max_error: float
    """Guaranteed maximum of the error rate of answered requests."""
    delta: float = 0.05
    """Maximum probability of ever raising a false alarm."""
    by: tuple[str, ...] | None = None
    """Reporters that count. Default: all."""

    def new_watch(self) -> ErrorWatch:
        """The watch before any outcome."""
        return ErrorWatch(alpha=self.max_error, delta=self.delta)


class ClaimMonitor:
    """Watch the guarantees of one service. Thread-safe."""

    def __init__(
        self,
        outcomes: OutcomeLog,
        claims: Mapping[str, Claim],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[str, ErrorWatch], None] = lambda policy, watch: None,
    ) -> None:
        """``on_change`` is called for every watch after each update."""
        self.outcomes, self._clock, self._on_change = outcomes, clock, on_change
        self.claims = dict(claims)
        self._watches = {name: claim.new_watch() for name, claim in self.claims.items()}
        self._looked_at: float | None = None
        self._refreshing = threading.Lock()

    def suspension(self, policy: str) -> str | None:
        """Reason why the guarantee of the policy with this id is suspended. None if the guarantee is in force, does not
        exist, or was not compared with the outcomes yet.

        Never blocks: starts an update in a separate thread, at most every ``REFRESH_S``, for later requests.
        """
        now = self._clock()
        if self.claims and (self._looked_at is None or not 0 <= now - self._looked_at < REFRESH_S):
            self._looked_at = now
            threading.Thread(target=self.look, name="raydebm-claims", daemon=True).start()
        return suspension_of(self._watches[policy]) if policy in self.claims else None

    def take_over(self, earlier: "ClaimMonitor | None") -> None:
        """Copy an earlier monitor's state of equal guarantees, so that suspensions survive while the outcomes cannot be
        read. Blocks during the earlier one's update."""
        if earlier is not None and earlier.outcomes.root == self.outcomes.root:
            with earlier._refreshing:
                same = {name for name, claim in self.claims.items() if earlier.claims.get(name) == claim}
                self._watches |= {name: earlier._watches[name] for name in same}

    def watches(self) -> dict[str, tuple[Claim, ErrorWatch]]:
        """Guarantee and watch by policy id, as of the last update."""
        return {name: (claim, self._watches[name]) for name, claim in self.claims.items()}

    def reasons(self) -> list[str]:
        """Reasons for the suspensions; empty if there are none."""
        suspensions = {name: suspension_of(watch) for name, watch in self._watches.items()}
        return [f"the guarantee of policy {name} is suspended: {why}" for name, why in suspensions.items() if why]

    def refresh(self) -> None:
        """Update from the outcomes now. Blocks. If they cannot be read, raises an error of ``UNREADABLE`` and keeps the
        state."""
        with self._refreshing:
            self._looked_at = self._clock()
            if not self.claims:
                return
            lines = self.outcomes.lines()
            for policy, claim in self.claims.items():
                watch = claim.new_watch().after_all(errors_of(lines, policy, by=claim.by))
                if watch.alarmed and not self._watches[policy].alarmed:
                    facts = {"policy": policy, "reason": suspension_of(watch)}
                    log.warning("claim suspended", extra={"facts": facts})
                self._watches[policy] = watch
                self._on_change(policy, watch)

    def look(self) -> None:
        """Refresh, but log unreadable outcomes and keep the state instead of raising."""
        try:
            self.refresh()
        except UNREADABLE as error:
            log.warning("outcomes cannot be read, so claims stay unchanged: %s", error)


def errors_of(lines: pa.Table, policy: str, *, by: tuple[str, ...] | None = None) -> list[bool]:
    """Verdicts on the problems that a policy answered, True if wrong, in the order of the first report.

    The last report on a request counts. Equal requests get equal answers, so further ones add no evidence.
    """
    wanted = pc.and_(pc.equal(lines["policy_id"], policy), pc.equal(lines["decision"], "accept"))
    if by is not None:
        wanted = pc.and_(wanted, pc.is_in(lines["by"], pa.array(list(by), pa.string())))
    reports = lines.filter(wanted).group_by("record_id", use_threads=False)
    counted = reports.aggregate([("correct", "last"), ("outcome_id", "first"), ("problem_key", "first")])
    rows = counted.sort_by("outcome_id_first").to_pylist()
    wrong: dict[str, bool] = {}
    for row in rows:
        wrong.setdefault(row["problem_key_first"] or row["record_id"], not row["correct_last"])
    return list(wrong.values())
