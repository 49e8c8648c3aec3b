"""``/v1/decisions``: list and show stored decisions.

Records contain user texts, so these routes need a key with that permission if the service has keys. Reads block, so
they run in two threads of their own, with a bounded queue.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from raydebm.decision.rules import beliefs_about
from raydebm.errors import OverloadedError, ServiceError
from raydebm.service.routes.answers import CandidateBody, DecisionDetails, candidate_body, details_of
from raydebm.service.routes.connection import while_connected
from raydebm.service.routes.outcomes import NOT_ALLOWED, ReportedAs, may_see_decisions, stored_here
from raydebm.service.store.outcomes import RIGHT, WRONG, ClaimMonitor, ReportedOutcome
from raydebm.service.store.parquet_folder import UNREADABLE
from raydebm.service.store.reader import DecisionList, DecisionReader, Filter, SortKey
from raydebm.service.store.record import DecisionRecord, DecisionSummary, summary_of

log = logging.getLogger(__name__)

T = TypeVar("T")
NUM_THREADS = 2
MAX_READS = 32
"""Limit on running and queued reads; further ones are refused."""
MAX_LIMIT = 200


# ---- bodies ---------------------------------------------------------------------------------------------------------


class ListQuery(Filter):
    """The URL's query of a list."""

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


# ---- from stored decisions ------------------------------------------------------------------------------------------


def stored_decision(
    record: DecisionRecord, reports: Sequence[ReportedOutcome] = (), *, suspended: str | None = None
) -> StoredDecision:
    """Args:
    record: the decision.
    reports: its outcome reports in order of arrival.
    suspended: reason why its policy's guarantee is suspended, if it is.
    """
    outcome, problem, lambda_ = record.outcome, record.problem, record.policy.lambda_
    current = {report.by: report.outcome_id for report in reports}
    outcomes = [
        OutcomeBody(
            time=report.time,
            outcome=RIGHT if report.correct else WRONG,
            by=report.by,
            answer=report.answer,
            note=report.note,
            key=report.key,
            current=current[report.by] == report.outcome_id,
        )
        for report in reports
    ]
    candidates = [
        StoredCandidate(
            **candidate_body(scored, lambda_).model_dump(),
            reasoning=scored.candidate.reasoning,
            prompt_tokens=scored.candidate.prompt_tokens,
            latency_s=scored.candidate.latency_s,
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
        request=dict(record.request),
        candidates=candidates,
        outcomes=outcomes,
        **details_of(record, beliefs_about(outcome.pool, record.policy, outcome.best), suspended),
    )


class DecisionArchive:
    """Stored decisions of one folder, for concurrent callers on one event loop."""

    def __init__(self, reader: DecisionReader, claims: ClaimMonitor | None = None) -> None:
        """Args:
        reader: reader of the folder.
        claims: suspension of guarantees by outcomes. Default: outcomes are not watched.
        """
        self._reader, self._claims = reader, claims
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="raydebm-decisions")
        self._num_reads = 0

    async def page(self, query: ListQuery) -> DecisionList:
        """Raises:
        ServiceError: 503 if the folder cannot be read or too many reads wait; likewise in the other methods.
        """

        return await self._read(
            lambda: self._reader.page(
                query, sort=query.sort, descending=query.descending, offset=query.offset, limit=query.limit
            )
        )

    async def get(self, record_id: str) -> StoredDecision:
        """Raise ServiceError 404 if the decision does not exist."""

        def read() -> StoredDecision:
            record = self._record(record_id)
            history = self._reader.outcomes.history(record_id)
            suspended = None if self._claims is None else self._claims.suspended(record.policy)
            return stored_decision(record, history, suspended=suspended)

        return await self._read(read)

    def _record(self, record_id: str) -> DecisionRecord:
        record = self._reader.get(record_id)
        if record is None:
            message = f"there is no stored decision {record_id!r}; it may be too old to be kept, or not written yet"
            raise ServiceError(message, 404, "unknown_record", "record_id")
        return record

    async def _read(self, work: Callable[[], T]) -> T:
        if self._num_reads >= MAX_READS:
            raise OverloadedError(f"{MAX_READS} reads of stored decisions wait here")
        self._num_reads += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except UNREADABLE as error:
            log.warning("the stored decisions in %s cannot be read: %s", self._reader.root, error)
            message = "the stored decisions cannot be read now; the service's log says why"
            raise ServiceError(message, 503, "records_unreadable") from error
        finally:
            self._num_reads -= 1


# ---- routes ---------------------------------------------------------------------------------------------------------


def decision_routes(decisions: DecisionArchive | None) -> APIRouter:
    """Args:
    decisions: the stored decisions. None if the service stores none; every route then answers 404.
    """
    router = APIRouter(tags=["decisions"], prefix="/v1/decisions", dependencies=[Depends(may_see_decisions)])

    @router.get("", summary="List stored decisions", response_model=DecisionList, responses=NOT_ALLOWED)
    async def page(query: Annotated[ListQuery, Query()], request: Request) -> DecisionList:
        """Stored decisions that pass a filter, sorted, a page at a time."""
        return await while_connected(request, stored_here(decisions).page(query))

    @router.get("/{record_id}", summary="Show a stored decision", response_model=StoredDecision, responses=NOT_ALLOWED)
    async def one(record_id: str, request: Request) -> StoredDecision:
        """Everything about one stored decision: problem, passes with feedback, candidates, settings, versions."""
        return await while_connected(request, stored_here(decisions).get(record_id))

    return router
