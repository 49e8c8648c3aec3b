"""``/v1/decisions`` and ``/v1/outcomes``: stored decisions, reports about them, and live accuracy.

Records contain user texts, so if the service has keys, these routes need one with ``decisions: true``. Reading and
writing block, so they run in threads of their own, with bounded queues. A report is answered once it is stored.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

import pyarrow.compute as pc
from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BaseModel, Field, StrictBool
from scipy.stats import binomtest

from raydebm.decision.guarantee.watch import ErrorWatch, suspension_of
from raydebm.decision.policy import policy_id
from raydebm.decision.rules import beliefs_about
from raydebm.errors import OverloadedError, ServiceError
from raydebm.records import Candidate
from raydebm.service.core import Meter, TriageService
from raydebm.service.routes.bodies import CandidateBody, DecisionDetails, ErrorBody, candidate_body, details_of
from raydebm.service.routes.openapi import named_examples
from raydebm.service.settings import Body, Bundle, Text, writable
from raydebm.service.store.outcomes import RIGHT, WRONG, Claim, ClaimMonitor, OutcomeLog, ReportedOutcome, content_of
from raydebm.service.store.parquet_folder import UNREADABLE
from raydebm.service.store.reader import DecisionList, DecisionReader, Filter, SortKey
from raydebm.service.store.record import DecisionRecord, DecisionSummary, DecisionWriter, summary_of, time_of_id
from raydebm.tasks.fields import MAX_FIELDS

log = logging.getLogger(__name__)

T = TypeVar("T")
NUM_THREADS = 2
MAX_READS = 32
"""Limit on running and queued reads; further ones are refused."""
MAX_WAITING = 256
"""Limit on reports waiting to be stored; further ones are refused."""
MAX_REPORTS = 100
"""Limit on reports per decision, including replaced ones."""
RECENT = timedelta(minutes=10)
"""Decisions newer than this may still wait in this replica's writer."""
MAX_LIMIT = 200
MAX_POLICIES = 50
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
    "one field was wrong": {"correct": False, "by": "ada", "fields": {"Ava": {"correct": False, "value": "knave"}}},
}
NOT_ALLOWED: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorBody, "description": "The key may not see stored decisions."},
}
ReportedAs = Literal["right", "wrong"]


# ---- bodies ---------------------------------------------------------------------------------------------------------


class ListQuery(Filter):
    """Query parameters of a list of decisions."""

    sort: SortKey = "time"
    """Decisions without a value come last."""
    descending: bool = True
    offset: int = Field(0, ge=0, le=1_000_000_000)
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class StoredProblem(BaseModel):
    prompt: str
    scored_prompt: str | None
    """Text that the ensemble read as the problem, if it differs from the prompt (earlier turns of a chat)."""
    data: dict[str, Any]
    difficulty: str


class StoredCandidate(CandidateBody):
    """A candidate as it was stored."""

    reasoning: str | None
    """Thinking that the generator returned separately; never scored or parsed."""
    prompt_tokens: int | None
    latency_s: float | None


class OutcomeBody(BaseModel):
    """One report about a decision."""

    time: datetime
    """Time of receipt by the receiving replica's clock."""
    outcome: ReportedAs
    by: str
    answer: str | None
    note: str | None
    fields: dict[str, Any]
    """Reports on single fields by path."""
    key: str | None
    """Name of the API key that sent it."""
    current: bool
    """True for the last report by this name."""


class StoredDecision(DecisionSummary, DecisionDetails):
    """Everything about one decision."""

    problem: StoredProblem
    request: dict[str, Any]
    """Other fields of the request, in addition to problem and policy."""
    candidates: list[StoredCandidate]
    outcomes: list[OutcomeBody]
    """All reports about it, oldest first."""


class FieldReport(Body):
    """Outcome of one field of the selected answer."""

    correct: StrictBool
    value: Annotated[Any, AfterValidator(writable)] = None
    """The right value, if it is known. Null is a value too."""


class OutcomeRequest(Body):
    """Outcome of a decision."""

    correct: StrictBool
    """True if the selected candidate was right: the returned answer, or the one withheld by an abstention."""
    by: Annotated[Text, Field(min_length=1, max_length=100)]
    """Name of the reporter. A later report by the same name replaces the earlier one, which is kept as history."""
    answer: Annotated[Text, Field(min_length=1, max_length=64_000)] | None = None
    """The correct answer, written as the task reads answers."""
    note: Annotated[Text, Field(max_length=2_000)] | None = None
    fields: Annotated[dict[Text, FieldReport], Field(max_length=MAX_FIELDS)] = Field(default_factory=dict)
    """Outcomes of single fields by path, as in the decision's ``fields``. A field that is not named has no outcome,
    unless the answer is right: then every field is."""

    @property
    def of_fields(self) -> dict[str, Any]:
        """The reports on fields as JSON values."""
        return {path: each.model_dump(exclude_unset=True) for path, each in sorted(self.fields.items())}


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
    """A guaranteed error rate, and the betting test against it."""

    max_error: float
    delta: float
    """Maximum probability of ever raising a false alarm."""
    by: list[str] | None
    """Reporters whose outcomes count; null: all."""
    outcomes: int
    """Number of answered requests with an outcome in the test."""
    wrong: int
    log10_wealth: float
    """Logarithm of the betting martingale M: evidence against the guarantee."""
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
    """Null if nothing is guaranteed."""


class OutcomeFigures(BaseModel):
    """Outcomes by policy, the policy with the newest decision first."""

    decisions: int
    with_outcome: int
    """Number of decisions with an outcome, including deleted ones."""
    disputed: int
    policies: list[PolicyOutcomes]
    """At most 50."""


# ---- from records ---------------------------------------------------------------------------------------------------


def stored_decision(
    record: DecisionRecord, reports: Sequence[ReportedOutcome] = (), *, suspended: str | None = None
) -> StoredDecision:
    """Everything about a decision, with the reports about it in order of arrival, and the reason why its policy's
    guarantee is suspended, if it is."""
    outcome, problem, lambda_ = record.outcome, record.problem, record.policy.lambda_
    current = {report.by: report.outcome_id for report in reports}
    outcomes = [
        OutcomeBody(
            **{name: getattr(report, name) for name in ("time", "by", "answer", "note", "fields", "key")},
            outcome=RIGHT if report.correct else WRONG,
            current=current[report.by] == report.outcome_id,
        )
        for report in reports
    ]
    candidates = [
        StoredCandidate(
            **candidate_body(scored, lambda_).model_dump(),
            **{name: getattr(scored.candidate, name) for name in ("reasoning", "prompt_tokens", "latency_s")},
        )
        for scored in outcome.pool
    ]
    return StoredDecision(
        **summary_of(record, outcome=outcomes[-1].outcome if outcomes else None).model_dump(),
        problem=StoredProblem(
            prompt=problem.prompt,
            scored_prompt=record.scored_prompt,
            data=dict(problem.data),
            difficulty=problem.difficulty,
        ),
        policy=record.policy.to_json(),
        request=dict(record.request),
        candidates=candidates,
        outcomes=outcomes,
        **details_of(record, beliefs_about(outcome.pool, record.policy, outcome.best), suspended),
    )


def outcome_figures(reader: DecisionReader, monitor: ClaimMonitor, *, served: Collection[str]) -> OutcomeFigures:
    """Coverage and live accuracy by policy, from every stored decision and every report. Blocks."""
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
        right, wrong = counts[name, "accept", RIGHT], counts[name, "accept", WRONG]
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
                refused_wrong=counts[name, "abstain", WRONG],
                claim=_claim_body(*watches[name]) if name in watches else None,
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
    interval = binomtest(successes, trials).proportion_ci(0.95, "exact")
    return float(interval.low), float(interval.high)


def _claim_body(claim: Claim, watch: ErrorWatch) -> ClaimBody:
    return ClaimBody(
        **asdict(claim),
        outcomes=watch.num,
        wrong=watch.num_wrong,
        log10_wealth=watch.log_wealth / math.log(10),
        log10_alarm=watch.log_alarm / math.log(10),
        suspended=watch.alarmed,
        reason=suspension_of(watch),
    )


def check_fields(record: DecisionRecord, body: OutcomeRequest) -> None:
    """Raise ServiceError 422 for a field that the decision lacks, or that is reported both as right and as wrong."""
    known = {each.path: each for each in record.outcome.fields}
    for path, report in body.fields.items():
        if (own := known.get(path)) is None:
            message = f"the decision has no field {path!r}; it has {', '.join([*known][:20]) or 'none'}"
            raise ServiceError(message, 422, "unknown_field", f"fields.{path}")
        is_own = "value" in report.model_fields_set and not own.is_missing and report.value == own.value
        if not report.correct and (body.correct or is_own):
            message = f"field {path!r} is reported as wrong and, by the same report, right; correct one of the two"
            raise ServiceError(message, 422, "contradiction", f"fields.{path}")


def claim_monitor(bundle: Bundle, meter: Meter) -> ClaimMonitor | None:
    """Monitor of the served policies' certified guarantees. None if decisions, and so outcomes, are not stored."""
    if bundle.records is None or bundle.records.folder is None:
        return None
    claims = {
        name: Claim(max_error=policy.guarantee["max_error"], by=bundle.args.auditors)
        for name, policy in bundle.answering.items()
        if policy.guarantee and policy.guarantee["certified"]
    }

    def watched(policy: str, watch: ErrorWatch) -> None:
        meter.set("claim_suspended", int(watch.alarmed), policy=policy)

    return ClaimMonitor(OutcomeLog(bundle.records.folder), claims, on_change=watched)


# ---- the desk -------------------------------------------------------------------------------------------------------


class RecordsDesk:
    """Stored decisions of one folder, and reports about them, for concurrent callers on one event loop.

    Every method raises ServiceError 503 if the folder cannot be read or written now.
    """

    def __init__(self, service: TriageService, monitor: ClaimMonitor) -> None:
        self._service, self._monitor = service, monitor
        self._reader = DecisionReader(monitor.outcomes.records, outcomes=monitor.outcomes)
        self._readers = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="raydebm-decisions")
        self._writers = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="raydebm-outcomes")
        self._num_reads = self.num_waiting = 0
        self._storing = asyncio.Lock()

    async def page(self, query: ListQuery) -> DecisionList:
        """A page of the decisions that pass a filter."""
        facts = query.model_dump(include={"sort", "descending", "offset", "limit"})
        return await self._read(lambda: self._reader.page(query, **facts))

    async def get(self, record_id: str) -> StoredDecision:
        """One decision. Raises ServiceError 404 if it does not exist."""

        def read() -> StoredDecision:
            record = self._reader.get(record_id)
            if record is None:
                message = f"there is no stored decision {record_id!r}; it may be too old to be kept, or not written yet"
                raise ServiceError(message, 404, "unknown_record", "record_id")
            history = self._reader.outcomes.history(record_id)
            return stored_decision(record, history, suspended=self._monitor.suspension(policy_id(record.policy)))

        return await self._read(read)

    async def _read(self, work: Callable[[], T]) -> T:
        if self._num_reads >= MAX_READS:
            raise OverloadedError(f"{MAX_READS} reads of stored decisions are running or waiting here")
        self._num_reads += 1
        try:
            return await self._in_thread(work, self._readers, "records_unreadable")
        finally:
            self._num_reads -= 1

    async def figures(self) -> OutcomeFigures:
        """Coverage and live accuracy by policy."""

        def read() -> OutcomeFigures:
            self._monitor.refresh()
            return outcome_figures(self._reader, self._monitor, served=tuple(self._service.bundle.answering))

        return await self._in_thread(read)

    async def report(self, record_id: str, body: OutcomeRequest, *, key: str | None = None) -> OutcomeReceipt:
        """Store a report. ``key`` is the name of the API key that sent it. Raises ServiceError if it is not stored."""
        decision = await self._in_thread(lambda: self._decision(record_id))
        if body.correct and decision.selected is None:
            message = "nothing was selected in this decision, so no answer can be right; report `correct: false`"
            raise ServiceError(message, 422, "no_answer", "correct")
        if body.answer is not None or body.fields:
            record = await self._in_thread(lambda: self._reader.get(record_id))
            if record is not None:
                await self._check_answer(record, body)
                check_fields(record, body)
        if self.num_waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} reports are waiting to be stored")

        async def store() -> OutcomeReceipt:
            self.num_waiting += 1
            try:
                async with self._storing:
                    return await self._in_thread(lambda: self._store(decision, body, key))
            finally:
                self.num_waiting -= 1

        # A client that disconnects does not undo the write.
        return await asyncio.shield(store())

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

    async def _check_answer(self, record: DecisionRecord, body: OutcomeRequest) -> None:
        """Raise ServiceError 422 if the answer cannot be parsed, or is the one reported as wrong."""
        if body.answer is None:
            return
        problem, best = record.problem, record.outcome.best
        candidate = Candidate(
            candidate_id="given", task=problem.task, problem_id=problem.problem_id, generator=body.by, text=body.answer
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

    def _store(self, decision: DecisionSummary, body: OutcomeRequest, key: str | None) -> OutcomeReceipt:
        """Blocks. A report that changes nothing is not written."""
        outcomes, record_id = self._reader.outcomes, decision.record_id
        content = content_of(correct=body.correct, answer=body.answer, note=body.note, fields=body.of_fields)
        lines = outcomes.lines()
        before = lines.filter(pc.equal(lines["record_id"], record_id)).to_pylist()
        last = next((row["content"] for row in reversed(before) if row["by"] == body.by), None)
        if last != content:
            if len(before) >= MAX_REPORTS:
                message = f"{MAX_REPORTS} outcomes of this decision are stored already; no more are accepted"
                raise ServiceError(message, 409, "too_many_outcomes", "record_id", retry=False)
            (outcome_id,), now = outcomes.new_ids(1)
            reported = ReportedOutcome(
                outcome_id=outcome_id,
                content=content,
                time=now,
                key=key,
                **body.model_dump(exclude={"fields"}),
                fields=body.of_fields,
                **decision.model_dump(include=_OF_DECISION),
            )
            outcomes.append([reported])
            before.append({"by": body.by, "correct": body.correct})
            verdict = RIGHT if body.correct else WRONG
            self._service.meter.count("outcomes", task=decision.task, decision=decision.decision, outcome=verdict)
            try:  # the report is stored, so an error here must not fail the request
                outcomes.tidy()
                self._monitor.refresh()
            except UNREADABLE as error:
                log.warning("outcomes in %s cannot be merged or read: %s", outcomes.root, error)
        return OutcomeReceipt(
            record_id=record_id,
            status="created" if last is None else "unchanged" if last == content else "replaced",
            outcome="right" if before[-1]["correct"] else "wrong",
            disputed=len(set({row["by"]: row["correct"] for row in before}.values())) > 1,
            reports=len(before),
        )

    async def _in_thread(
        self, work: Callable[[], T], pool: ThreadPoolExecutor | None = None, code: str = "outcomes_unavailable"
    ) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool or self._writers, work)
        except UNREADABLE as error:
            log.warning("%s: %s cannot be read or written: %s", code, self._reader.root, error)
            message = "stored decisions and outcomes cannot be read or written now; the service's log says why"
            raise ServiceError(message, 503, code) from error


# ---- routes ---------------------------------------------------------------------------------------------------------


def may_see_decisions(request: Request) -> None:
    """Raise ServiceError 403 for a key that may not see stored decisions."""
    if request.state.caller is not None and not request.state.caller.decisions:
        raise ServiceError("this key may not see stored decisions (`decisions: false`)", 403, "not_allowed")


def check_reporter(request: Request, name: str, watched: Collection[str]) -> None:
    """Raise ServiceError 403 if the key does not list a name that is reserved, or whose reports test the guarantee.
    Without keys, and with keys from the environment, anyone may report by any name."""
    caller, keyring = request.state.caller, request.state.keyring
    if caller is None or caller.reports_as is None or name in caller.reports_as:
        return
    if name in watched or name in keyring.reserved_names:
        message = (
            f"only API keys with {name!r} under `reports_as` in the keys file may report outcomes by this name; use "
            "such a key, or another name"
        )
        raise ServiceError(message, 403, "not_allowed", "by")


def record_routes(desk: RecordsDesk | None, *, watched: Collection[str] = ()) -> APIRouter:
    """Routes of stored decisions and outcomes, 404 if none are stored. Reports by ``watched`` names test guarantees."""
    router = APIRouter(dependencies=[Depends(may_see_decisions)], responses=NOT_ALLOWED)

    def here() -> RecordsDesk:
        if desk is None:
            raise ServiceError("no decisions are stored; set `records.folder` in serve_config.yaml", 404, "no_records")
        return desk

    @router.get("/v1/decisions", tags=["decisions"], summary="List stored decisions")
    async def page(query: Annotated[ListQuery, Query()]) -> DecisionList:
        """Stored decisions that pass a filter, sorted, a page at a time."""
        return await here().page(query)

    @router.get(
        "/v1/decisions/{record_id}", tags=["decisions"], summary="Show a stored decision", responses=NOT_ALLOWED
    )
    async def one(record_id: str) -> StoredDecision:
        """Everything about one stored decision: problem, passes with feedback, candidates, settings, versions."""
        return await here().get(record_id)

    @router.post(
        "/v1/decisions/{record_id}/outcome",
        tags=["outcomes"],
        summary="Report an outcome",
        responses={409: {"model": ErrorBody, "description": "Too many reports about this decision."}},
        openapi_extra=named_examples(EXAMPLES),
    )
    async def report(record_id: str, body: OutcomeRequest, request: Request) -> OutcomeReceipt:
        """Report whether the selected candidate of a stored decision was right. It is stored before the response.

        Repeating a report changes nothing. Another report by the same name replaces it, and both are kept as history.
        If several names report, the last report counts. A name that a key reserves, or whose reports test the
        guarantee, needs a key that lists it (403)."""
        check_reporter(request, body.by, watched)
        key = None if request.state.caller is None else request.state.caller.name
        return await here().report(record_id, body, key=key)

    @router.get("/v1/outcomes", tags=["outcomes"], summary="Show live accuracy")
    async def figures() -> OutcomeFigures:
        """Coverage, live accuracy and the test of the guaranteed error rate, by policy."""
        return await here().figures()

    return router
