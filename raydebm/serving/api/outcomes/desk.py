"""Takes reports about decisions while the service answers requests, and says what was reported.

A report is answered when it is stored. Reports that arrive while others are being written are written together, so that
many small ones do not make many small files.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from raydebm.decisions.outcomes.claims import ClaimMonitor
from raydebm.decisions.outcomes.log import OutcomeLog, ReportedOutcome, content_of
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.record import DecisionRecord, time_of_id
from raydebm.decisions.storage.damage import UNREADABLE
from raydebm.errors import ServiceError
from raydebm.records import Candidate, ConstraintReport, Problem
from raydebm.run.codec import Row
from raydebm.serving.api.outcomes.accuracy import DECISION_COLUMNS, outcome_figures
from raydebm.serving.api.schema.outcome_bodies import OutcomeFigures, OutcomeReceipt, OutcomeRequest
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError

log = logging.getLogger(__name__)

MAX_WAITING = 256
"""Reports that may wait to be stored; the next one is refused."""
MAX_REPORTS = 100
"""Reports about one decision, replaced ones included."""
RECENT = timedelta(minutes=10)
"""Decisions that are newer may still wait to be written in this replica."""

T = TypeVar("T")
Check = Callable[[Problem, Sequence[Candidate]], Awaitable[list[ConstraintReport]]]
"""The gold-free checks of the task, which also read the answer (``core.backend.Backend.check``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A report that is to be stored."""

    decision: Row
    body: OutcomeRequest
    key: str | None


class OutcomeDesk:
    """Reports about the decisions of one folder. Belongs to one event loop."""

    def __init__(
        self,
        reader: DecisionReader,
        monitor: ClaimMonitor,
        *,
        check: Check,
        served: Sequence[str] = (),
        flush: Callable[[], object] | None = None,
        on_report: Callable[[Row, bool], None] = lambda decision, correct: None,
    ) -> None:
        """
        Args:
            reader: the decisions, with their log of outcomes.
            monitor: looks at the outcomes after every report.
            check: reads given answers.
            served: ids of the policies that are served now.
            flush: writes decisions that wait in this process; None: none do.
            on_report: called with the decision's summary and the verdict, for each report that is new.
        """
        self._reader, self._monitor, self._check = reader, monitor, check
        self._served, self._flush, self._on_report = frozenset(served), flush, on_report
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="raydebm-outcomes")
        self._waiting: list[tuple[_Draft, asyncio.Future[OutcomeReceipt]]] = []
        self._storing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _log(self) -> OutcomeLog:
        return self._reader.outcomes

    async def report(self, record_id: str, body: OutcomeRequest, *, key: str | None = None) -> OutcomeReceipt:
        """Store a report; it is stored when this returns.

        Args:
            record_id: of the decision.
            body: what is reported.
            key: name of the API key that sent it.

        Raises:
            ServiceError: 404 for an unknown decision; 422 where the report contradicts itself, or its answer cannot be
                read; 409 after ``MAX_REPORTS`` reports; 503 when it cannot be stored now.
        """
        decision = await self._in_thread(lambda: self._decision(record_id))
        if body.correct and decision["selected"] is None:
            message = "nothing was selected in this decision, so that no answer can be right; report `correct: false`"
            raise ServiceError(message, 422, "no_answer", "correct")
        if body.answer is not None:
            await self._check_answer(record_id, body, body.answer)
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyError(f"{MAX_WAITING} reports wait to be stored; try again", 503, BUSY_RETRY_S)
        future: asyncio.Future[OutcomeReceipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((_Draft(decision=decision, body=body, key=key), future))
        task = asyncio.create_task(self._store_waiting())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(future)  # a client that goes away does not undo what is being written

    async def figures(self) -> OutcomeFigures:
        """Coverage and live accuracy by policy.

        Raises:
            ServiceError: 503 when the folder cannot be read.
        """

        def read() -> OutcomeFigures:
            self._monitor.refresh()
            lines, verdicts = self._log.snapshot()
            return outcome_figures(
                self._reader.table(DECISION_COLUMNS),
                lines,
                verdicts,
                served=self._served,
                watches=self._monitor.watches(),
            )

        return await self._in_thread(read)

    # ---- the decision that is meant ----------------------------------------------------------------------------

    def _decision(self, record_id: str) -> Row:
        decision = self._reader.summary(record_id)
        if decision is None and self._flush is not None and _is_recent(record_id):
            self._flush()
            decision = self._reader.summary(record_id)
        if decision is None:
            message = (
                f"there is no stored decision {record_id!r}; give the `record_id` of an answer or of GET "
                "/v1/decisions. One that another replica made seconds ago is there soon; old ones are not kept"
            )
            raise ServiceError(message, 404, "unknown_record", "record_id")
        return decision

    async def _check_answer(self, record_id: str, body: OutcomeRequest, answer: str) -> None:
        record = await self._in_thread(lambda: self._reader.get(record_id))
        if record is None:
            return
        candidate = Candidate(
            candidate_id="given", task=record.problem.task, problem_id=record.problem.problem_id, generator=body.by,
            text=answer,
        )  # fmt: skip
        (report,) = await self._check(record.problem, [candidate])
        if report.error is not None:  # the task is not served here any more, or its checker broke
            log.warning("a reported answer was not checked: %s", report.error)
            return
        _check_consistent(record, body, report)

    # ---- storing -----------------------------------------------------------------------------------------------

    async def _store_waiting(self) -> None:
        async with self._storing:
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return  # written together with an earlier one
            try:
                results = await self._in_thread(lambda: self._store([draft for draft, _ in waiting]))
            except Exception as error:  # noqa: BLE001 - whatever storage does, everybody who waits is told
                results = [error] * len(waiting)
            for (_, future), result in zip(waiting, results, strict=True):
                if future.cancelled():
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _store(self, drafts: Sequence[_Draft]) -> list[OutcomeReceipt | Exception]:
        """Blocks. One write for all of them; drafts that change nothing are not written."""
        ids, now = self._log.new_ids(len(drafts))
        earlier = _Earlier(self._log.lines())
        new: list[tuple[ReportedOutcome, _Draft]] = []
        results: list[OutcomeReceipt | Exception] = []
        for outcome_id, draft in zip(ids, drafts, strict=True):
            reported = _reported(outcome_id, draft, now)
            try:
                receipt = earlier.add(reported)
            except ServiceError as error:
                results.append(error)
                continue
            results.append(receipt)
            if receipt.status != "unchanged":
                new.append((reported, draft))
        if new:
            self._log.append([reported for reported, _ in new])
            for reported, draft in new:
                self._on_report(draft.decision, reported.correct)
            self._look_again()
        return results

    def _look_again(self) -> None:
        """What was reported is stored by now, so nothing that fails here fails a request."""
        try:
            self._log.tidy()
            self._monitor.refresh()
        except UNREADABLE as error:
            log.warning("outcomes in %s cannot be merged or looked at: %s", self._log.root, error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except UNREADABLE as error:
            log.warning("outcomes in %s cannot be read or written: %s", self._log.root, error)
            message = "outcomes cannot be read or written now; try again. The service's log says why"
            raise ServiceError(message, 503, "outcomes_unavailable") from error


class _Earlier:
    """What was reported before, and before in the same batch."""

    def __init__(self, lines: pa.Table) -> None:
        self._lines = lines
        self._by_record: dict[str, list[tuple[str, bool, str]]] = {}

    def add(self, reported: ReportedOutcome) -> OutcomeReceipt:
        """Count one more. Raises ServiceError 409 when there are too many."""
        before = self._reports(reported.record_id)
        last = next((content for by, _, content in reversed(before) if by == reported.by), None)
        if last != reported.content:
            if len(before) >= MAX_REPORTS:
                message = f"{MAX_REPORTS} outcomes of this decision were reported; no more are stored"
                raise ServiceError(message, 409, "too_many_outcomes", "record_id", retry=False)
            before.append((reported.by, reported.correct, reported.content))
        current = {by: correct for by, correct, _ in before}
        return OutcomeReceipt(
            record_id=reported.record_id,
            status="created" if last is None else "unchanged" if last == reported.content else "replaced",
            outcome="right" if before[-1][1] else "wrong",
            disputed=len(set(current.values())) > 1,
            reports=len(before),
        )

    def _reports(self, record_id: str) -> list[tuple[str, bool, str]]:
        if record_id not in self._by_record:
            rows = self._lines.filter(pc.equal(self._lines["record_id"], record_id)).to_pylist()
            self._by_record[record_id] = [(row["by"], row["correct"], row["content"]) for row in rows]
        return self._by_record[record_id]


def _reported(outcome_id: str, draft: _Draft, now: datetime) -> ReportedOutcome:
    body, decision = draft.body, draft.decision
    return ReportedOutcome(
        outcome_id=outcome_id,
        record_id=decision["record_id"],
        correct=body.correct,
        by=body.by,
        content=content_of(correct=body.correct, answer=body.answer, note=body.note),
        task=decision["task"],
        policy_id=decision["policy_id"],
        decision=decision["decision"],
        time=now,
        answer=body.answer,
        note=body.note,
        key=draft.key,
        selected=decision["selected"],
        problem_key=decision["problem_key"],
    )


def _check_consistent(record: DecisionRecord, body: OutcomeRequest, report: ConstraintReport) -> None:
    """Raises ServiceError 422 where the given answer cannot be read, or is the one that is reported as wrong."""
    if report.vote_key is None:
        message = f"task {record.problem.task!r} finds no answer in `answer`; write it as the task reads answers"
        raise ServiceError(message, 422, "unreadable_answer", "answer")
    best = record.outcome.best
    if not body.correct and best is not None and best.report.vote_key == report.vote_key:
        message = "`answer` is the selected answer, which `correct: false` calls wrong; correct one of the two"
        raise ServiceError(message, 422, "contradiction", "answer")


def _is_recent(record_id: str) -> bool:
    time = time_of_id(record_id)
    return time is not None and abs(datetime.now(UTC) - time) < RECENT
