"""``POST /v1/decisions/{record_id}/outcome`` and ``GET /v1/outcomes``: outcome reports and live accuracy.

A report is answered once it is stored. Records contain user texts, so these routes need a key with that permission.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

import pyarrow.compute as pc
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field, StrictBool
from scipy.stats import binomtest

from raydebm.decision.guarantee.watch import ErrorWatch, suspension_of
from raydebm.errors import OverloadedError, ServiceError
from raydebm.records import Candidate
from raydebm.service.core.result import Meter
from raydebm.service.core.service import TriageService
from raydebm.service.routes.answers import ErrorBody
from raydebm.service.routes.connection import while_connected
from raydebm.service.routes.openapi import named_examples
from raydebm.service.settings.bundle import Bundle
from raydebm.service.settings.overrides import Body, Text
from raydebm.service.store.outcomes import RIGHT, Claim, ClaimMonitor, OutcomeLog, ReportedOutcome, content_of
from raydebm.service.store.parquet_folder import UNREADABLE
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.record import DecisionSummary, time_of_id
from raydebm.service.store.writer import DecisionWriter

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_WAITING = 256
"""Limit on reports waiting to be stored; further ones are refused."""
MAX_REPORTS = 100
"""Limit on reports per decision, including replaced ones."""
RECENT = timedelta(minutes=10)
"""Decisions newer than this may still wait in this replica's writer."""
MAX_POLICIES = 50
LEVEL = 0.95
_LN10 = 2.302585092994046
_OF_DECISION = {"record_id", "task", "policy_id", "decision", "selected", "problem_key"}
"""Fields that a report copies from its decision."""
EXAMPLES = {
    "it was right": {"correct": True, "by": "billing-tests"},
    "it was wrong": {
        "correct": False,
        "by": "ada",
        "answer": '{"Ava": "knave", "Zoey": "knight"}',
        "note": "Zoey contradicts nobody.",
    },
}
NOT_ALLOWED: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorBody, "description": "The key may not see stored decisions."},
}
ReportedAs = Literal["right", "wrong"]


# ---- bodies ---------------------------------------------------------------------------------------------------------


class OutcomeRequest(Body):
    """Outcome of a decision."""

    correct: StrictBool
    """True if the selected candidate was right: the returned answer, or the one withheld by an abstention."""
    by: Annotated[Text, Field(min_length=1, max_length=100)]
    """Name of the reporter. A later report by the same name replaces the earlier one, which is kept as history."""
    answer: Annotated[Text, Field(min_length=1, max_length=64_000)] | None = None
    """The correct answer, written as the task reads answers."""
    note: Annotated[Text, Field(max_length=2_000)] | None = None


class OutcomeReceipt(BaseModel):
    """Stored state after the report."""

    record_id: str
    status: Literal["created", "replaced", "unchanged"]
    """unchanged: the same report was stored already. replaced: the report replaces another one by the same name."""
    outcome: ReportedAs
    """Outcome that counts for the decision: the last report."""
    disputed: bool
    """True if the current reports of several reporters differ."""
    reports: int
    """Number of reports about the decision, including replaced ones."""


class ClaimBody(BaseModel):
    """A promised error rate, and the betting test against it."""

    max_error: float
    delta: float
    """Probability of a false alarm, ever."""
    by: list[str] | None
    """Reporters whose outcomes count; null: all."""
    outcomes: int
    """Number of answered requests with an outcome in the test."""
    wrong: int
    log10_wealth: float
    """Logarithm of the betting martingale M: evidence against the promise."""
    log10_alarm: float
    """An alarm is raised when ``log10_wealth`` reaches it: log10(1 / delta)."""
    suspended: bool
    reason: str | None


class PolicyOutcomes(BaseModel):
    """Coverage and live accuracy of one policy."""

    policy_id: str | None
    """Id of the policy, as in the list of decisions; null for decisions of versions that did not store it."""
    served: bool
    """True if the service uses this policy for a task now."""
    decisions: int
    accepted: int
    coverage: float | None
    """Share of decisions that were answered."""
    right: int
    """Number of answered requests with a right outcome."""
    wrong: int
    accuracy: float | None
    accuracy_low: float | None
    """Bounds of the exact 95 % interval (Clopper and Pearson)."""
    accuracy_high: float | None
    refused_right: int
    """Number of abstentions that withheld a right answer."""
    refused_wrong: int
    claim: ClaimBody | None
    """Null if nothing is promised."""


class OutcomeFigures(BaseModel):
    """Outcomes by policy, the policy with the newest decision first."""

    decisions: int
    with_outcome: int
    """Number of decisions with an outcome, including deleted ones."""
    disputed: int
    policies: list[PolicyOutcomes]
    """At most 50."""


# ---- who may ------------------------------------------------------------------------------------------------------


def may_see_decisions(request: Request) -> None:
    """Raise ServiceError 403 for a key that may not see stored decisions."""
    if not getattr(request.state, "may_see_decisions", True):
        raise ServiceError("this key may not see stored decisions (`decisions: false`)", 403, "not_allowed")


def stored_here(found: T | None) -> T:
    """Raise ServiceError 404 if the service stores no decisions."""
    if found is None:
        raise ServiceError("this service stores no decisions; set `records.folder`", 404, "no_records")
    return found


def check_reporter(request: Request, name: str, watched: Collection[str]) -> None:
    """Check that the caller may report under this name. Without keys, and with keys from the environment, anyone may.

    Args:
        request: the report's request.
        name: the report's ``by``.
        watched: names whose reports are bet on (``auditors``).

    Raises:
        ServiceError: 403, the name is watched or reserved, and the key does not list it.
    """
    own: Collection[str] | None = getattr(request.state, "reports_as", None)
    if own is not None and name not in own and (name in watched or name in request.state.reserved_names):
        message = (
            f"only API keys with {name!r} under `reports_as` in the keys file may report outcomes by this name; use "
            "such a key, or another name"
        )
        raise ServiceError(message, 403, "not_allowed", "by")


# ---- guarantees -----------------------------------------------------------------------------------------------------


def claim_monitor(bundle: Bundle, meter: Meter) -> ClaimMonitor | None:
    """Monitor of the served policies' certified guarantees. None if decisions, and so outcomes, are not stored."""
    if bundle.records is None or bundle.records.folder is None:
        return None
    claims = {
        name: Claim(max_error=policy.guarantee["max_error"], by=bundle.auditors)
        for name, policy in bundle.answering.items()
        if policy.guarantee and policy.guarantee["certified"]
    }
    return ClaimMonitor(OutcomeLog(bundle.records.folder), claims, on_change=meter.watched)


# ---- the reports ----------------------------------------------------------------------------------------------------


class OutcomeDesk:
    """Accept reports about the decisions of one folder, on one event loop."""

    def __init__(self, service: TriageService, reader: DecisionReader, monitor: ClaimMonitor) -> None:
        """Args:
        service: source of the checks for given answers, the meter, and the writer with recent decisions.
        reader: the decisions, with their log of outcomes.
        monitor: monitor to update after every report.
        """
        self._service, self._reader, self._monitor = service, reader, monitor
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="raydebm-outcomes")
        self._num_waiting = 0
        self._storing = asyncio.Lock()

    async def report(self, record_id: str, body: OutcomeRequest, *, key: str | None = None) -> OutcomeReceipt:
        """Store a report. Returns once it is stored.

        Args:
            record_id: id of the decision.
            body: the report.
            key: name of the sender's API key.

        Raises:
            ServiceError: 404 for an unknown decision; 422 if the report contradicts itself, or its answer cannot be
                parsed; 409 after ``MAX_REPORTS`` reports; 503 if it cannot be stored now.
        """
        decision = await self._in_thread(lambda: self._decision(record_id))
        if body.correct and decision.selected is None:
            message = "nothing was selected in this decision, so no answer can be right; report `correct: false`"
            raise ServiceError(message, 422, "no_answer", "correct")
        if body.answer is not None:
            await self._check_answer(record_id, body, body.answer)
        if self._num_waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} reports wait to be stored")
        # A client that disconnects does not undo the write.
        return await asyncio.shield(self._stored(decision, body, key))

    async def figures(self) -> OutcomeFigures:
        """Coverage and live accuracy by policy. Raises ServiceError 503 if the folder cannot be read."""

        def read() -> OutcomeFigures:
            self._monitor.refresh()
            return outcome_figures(self._reader, self._monitor, served=tuple(self._service.bundle.answering))

        return await self._in_thread(read)

    def _decision(self, record_id: str) -> DecisionSummary:
        decision, made = self._reader.summary(record_id), time_of_id(record_id)
        writer = self._service.records
        is_recent = made is not None and abs(datetime.now(UTC) - made) < RECENT
        if decision is None and isinstance(writer, DecisionWriter) and is_recent:
            writer.flush()
            decision = self._reader.summary(record_id)
        if decision is None:
            message = (
                f"there is no stored decision {record_id!r}; give the `record_id` of an answer or of GET "
                "/v1/decisions. One that another replica just made appears within seconds; old ones are deleted"
            )
            raise ServiceError(message, 404, "unknown_record", "record_id")
        return decision

    async def _check_answer(self, record_id: str, body: OutcomeRequest, answer: str) -> None:
        """Raise ServiceError 422 if the answer cannot be parsed, or is the one reported as wrong."""
        record = await self._in_thread(lambda: self._reader.get(record_id))
        if record is None:
            return
        problem, best = record.problem, record.outcome.best
        candidate = Candidate(
            candidate_id="given", task=problem.task, problem_id=problem.problem_id, generator=body.by, text=answer
        )
        (report,) = await self._service.backend.check(problem, [candidate])
        if report.error is not None:  # the task is not served here any more, or its checker broke
            log.warning("a reported answer was not checked: %s", report.error)
        elif report.vote_key is None:
            message = f"task {problem.task!r} finds no answer in `answer`; write it as the task reads answers"
            raise ServiceError(message, 422, "unreadable_answer", "answer")
        elif not body.correct and best is not None and best.report.vote_key == report.vote_key:
            message = "`answer` is the selected answer, which `correct: false` calls wrong; correct one of the two"
            raise ServiceError(message, 422, "contradiction", "answer")

    async def _stored(self, decision: DecisionSummary, body: OutcomeRequest, key: str | None) -> OutcomeReceipt:
        self._num_waiting += 1
        try:
            async with self._storing:
                return await self._in_thread(lambda: self._store(decision, body, key))
        finally:
            self._num_waiting -= 1

    def _store(self, decision: DecisionSummary, body: OutcomeRequest, key: str | None) -> OutcomeReceipt:
        """Blocks. A report that changes nothing is not written."""
        outcomes, record_id = self._reader.outcomes, decision.record_id
        content = content_of(correct=body.correct, answer=body.answer, note=body.note)
        lines = outcomes.lines()
        before = lines.filter(pc.equal(lines["record_id"], record_id)).to_pylist()
        last = next((row["content"] for row in reversed(before) if row["by"] == body.by), None)
        if last != content:
            if len(before) >= MAX_REPORTS:
                message = f"{MAX_REPORTS} outcomes of this decision are stored already; no more are accepted"
                raise ServiceError(message, 409, "too_many_outcomes", "record_id", retry=False)
            (outcome_id,), now = outcomes.new_ids(1)
            reported = ReportedOutcome(
                outcome_id=outcome_id, content=content, time=now, key=key,
                correct=body.correct, by=body.by, answer=body.answer, note=body.note,
                **decision.model_dump(include=_OF_DECISION),
            )  # fmt: skip
            outcomes.append([reported])
            before.append({"by": body.by, "correct": body.correct})
            self._service.meter.reported(task=decision.task, decision=decision.decision, correct=body.correct)
            try:  # the report is stored, so an error here must not fail the request
                outcomes.tidy()
                self._monitor.refresh()
            except UNREADABLE as error:
                log.warning("outcomes in %s cannot be merged or looked at: %s", outcomes.root, error)
        return OutcomeReceipt(
            record_id=record_id,
            status="created" if last is None else "unchanged" if last == content else "replaced",
            outcome="right" if before[-1]["correct"] else "wrong",
            disputed=len(set({row["by"]: row["correct"] for row in before}.values())) > 1,
            reports=len(before),
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except UNREADABLE as error:
            log.warning("outcomes in %s cannot be read or written: %s", self._reader.outcomes.root, error)
            message = "outcomes cannot be read or written now; try again. The service's log says why"
            raise ServiceError(message, 503, "outcomes_unavailable") from error


# ---- figures --------------------------------------------------------------------------------------------------------


def outcome_figures(reader: DecisionReader, monitor: ClaimMonitor, *, served: Collection[str]) -> OutcomeFigures:
    """Coverage and live accuracy by policy, from every stored decision and every report. Blocks.

    Args:
        reader: the decisions, with their log of outcomes.
        monitor: guarantee and bet by policy id.
        served: ids of the policies served now.
    """
    decisions = reader.table(["time", "policy_id", "decision"]).sort_by([("time", "descending")]).to_pylist()
    lines, verdicts = reader.outcomes.snapshot()
    by_policy = Counter(row["policy_id"] for row in decisions)  # the one with the newest decision first
    accepted = Counter(row["policy_id"] for row in decisions if row["decision"] == "accept")
    verdict_of = dict(zip(verdicts["record_id"].to_pylist(), verdicts["outcome"].to_pylist(), strict=True))
    reported = {row["record_id"]: row for row in lines.select(["record_id", "policy_id", "decision"]).to_pylist()}
    counts = Counter((row["policy_id"], row["decision"], verdict_of[name]) for name, row in reported.items())
    watches = monitor.watches()
    policies = []
    for name in dict.fromkeys([*by_policy, *(policy for policy, _, _ in counts)]):
        right, wrong = counts[name, "accept", RIGHT], counts[name, "accept", "wrong"]
        low, high = exact_interval(right, right + wrong)
        policies.append(
            PolicyOutcomes(
                policy_id=name,
                served=name in served,
                decisions=by_policy[name],
                accepted=accepted[name],
                coverage=accepted[name] / by_policy[name] if by_policy[name] else None,
                right=right,
                wrong=wrong,
                accuracy=right / (right + wrong) if right + wrong else None,
                accuracy_low=low,
                accuracy_high=high,
                refused_right=counts[name, "abstain", RIGHT],
                refused_wrong=counts[name, "abstain", "wrong"],
                claim=claim_body(*watches[name]) if name in watches else None,
            )
        )
    return OutcomeFigures(
        decisions=len(decisions),
        with_outcome=verdicts.num_rows,
        disputed=pc.sum(verdicts["disputed"]).as_py() or 0,
        policies=policies[:MAX_POLICIES],
    )


def exact_interval(successes: int, trials: int) -> tuple[float | None, float | None]:
    """The exact 95 % interval of a proportion (Clopper and Pearson 1934); (None, None) without trials."""
    if trials == 0:
        return None, None
    interval = binomtest(successes, trials).proportion_ci(LEVEL, "exact")
    return float(interval.low), float(interval.high)


def claim_body(claim: Claim, watch: ErrorWatch) -> ClaimBody:
    """A guarantee and the bet against it."""
    suspension = suspension_of(watch)
    return ClaimBody(
        max_error=claim.max_error,
        delta=claim.delta,
        by=None if claim.by is None else list(claim.by),
        outcomes=watch.num,
        wrong=watch.num_wrong,
        log10_wealth=watch.log_wealth / _LN10,
        log10_alarm=watch.log_alarm / _LN10,
        suspended=suspension.suspended,
        reason=suspension.reason,
    )


# ---- routes ---------------------------------------------------------------------------------------------------------


def outcome_routes(desk: OutcomeDesk | None, *, watched: Collection[str] = ()) -> APIRouter:
    """Args:
    desk: the outcome desk. None if the service stores no decisions; every route then answers 404.
    watched: names whose reports are bet on.
    """
    router = APIRouter(tags=["outcomes"], dependencies=[Depends(may_see_decisions)])

    @router.post(
        "/v1/decisions/{record_id}/outcome",
        summary="Report an outcome",
        response_model=OutcomeReceipt,
        responses={**NOT_ALLOWED, 409: {"model": ErrorBody, "description": "Too many reports about this decision."}},
        openapi_extra=named_examples(EXAMPLES),
    )
    async def report(record_id: str, body: OutcomeRequest, request: Request) -> OutcomeReceipt:
        """Report whether the selected candidate of a stored decision was right. It is stored before the response.

        Repeating a report changes nothing. Another report by the same name replaces it, and both are kept as history.
        If several names report, the last report counts. A name that a key reserves, or whose reports test the promise,
        needs a key that lists it (403)."""
        check_reporter(request, body.by, watched)
        key = getattr(request.state, "key", None)
        return await while_connected(request, stored_here(desk).report(record_id, body, key=key))

    @router.get("/v1/outcomes", summary="Show live accuracy", response_model=OutcomeFigures, responses=NOT_ALLOWED)
    async def figures(request: Request) -> OutcomeFigures:
        """Coverage, live accuracy and the test of the promised error rate, by policy."""
        return await while_connected(request, stored_here(desk).figures())

    return router
