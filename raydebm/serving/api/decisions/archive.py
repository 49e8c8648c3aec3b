"""Stored decisions for many callers, while the service answers requests.

Reading and deciding again block, so they run in two threads of their own, and only so many callers may wait for those.
Deciding again goes in short steps: when no one waits for the result any more, no further step is taken.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pyarrow.compute as pc

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.redecide import recorded_outcome
from raydebm.decisions.outcomes.claims import ClaimMonitor
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import DecisionRecord
from raydebm.decisions.storage.damage import UNREADABLE
from raydebm.decisions.stored_decisions import Stored, stored_decisions
from raydebm.decisions.stored_replay import Changes, Replayed, ReplayTally, groups, replay_stored
from raydebm.errors import ServiceError
from raydebm.serving.api.decisions.stored_views import (
    OVERVIEW_COLUMNS,
    changed_rows,
    decision_row,
    overview,
    redecided,
    replay_figures,
    stored_decision,
)
from raydebm.serving.api.schema.stored_bodies import (
    MAX_CHANGED,
    ChangesBody,
    DecisionList,
    ListQuery,
    Overview,
    Redecided,
    ReplayFigures,
    ReplayRequest,
    ReplayResult,
    StoredDecision,
    Where,
)
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError

log = logging.getLogger(__name__)

T = TypeVar("T")

NUM_THREADS = 2
MAX_READS = 32
"""Reads that may run or wait; the next one is refused."""
MAX_REPLAYS = 4
STEP = 128
"""Decisions of one step: a few dozen milliseconds, in which other threads get their turn."""


class DecisionArchive:
    """The stored decisions of one folder, for many callers at once. Belongs to one event loop."""

    def __init__(self, reader: DecisionReader, claims: ClaimMonitor | None = None) -> None:
        """
        Args:
            reader: of the folder.
            claims: says whether a policy's promise is suspended; None: outcomes are not watched.
        """
        self._reader = reader
        self._claims = claims
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="raydebm-decisions")
        self._num_reads = self._num_replays = 0

    async def page(self, query: ListQuery) -> DecisionList:
        """
        Raises:
            ServiceError: 503 when the folder cannot be read, or too many reads wait. So do the others.
        """
        where = query.to_filter()

        def read() -> DecisionList:
            page = self._reader.page(
                where, sort=query.sort, descending=query.descending, offset=query.offset, limit=query.limit
            )
            return DecisionList(total=page.total, offset=page.offset, data=[decision_row(row) for row in page.rows])

        return await self._read(read)

    async def overview(self, where: Where) -> Overview:
        """Figures over all decisions that pass."""
        wanted = where.to_filter()
        return await self._read(lambda: overview(self._reader.table(OVERVIEW_COLUMNS, wanted)))

    async def get(self, record_id: str) -> StoredDecision:
        """
        Raises:
            ServiceError: 404 when it is not, or no longer, there.
        """

        def read() -> StoredDecision:
            record = self._record(record_id)
            history = self._reader.outcomes.history(record_id)
            return stored_decision(record, history, suspended=self._suspended(record.policy))

        return await self._read(read)

    async def redecide(self, record_id: str, changes: ChangesBody) -> Redecided:
        """One decision, made again.

        Raises:
            ServiceError: 404 when it is not there.
            ConfigError: the changed values contradict the others of its policy.
        """

        def again() -> Redecided:
            record = self._record(record_id)
            recorded = recorded_outcome(record.outcome, record_id=record_id, policy=record.policy)
            stored = Stored(recorded=recorded, task=record.problem.task, prompt=None)
            changed = changes_of(changes)
            (replayed,) = replay_stored([stored], changed)
            policy = changed.policy_for(record.policy)
            return redecided(replayed, record, policy, suspended=self._suspended(policy))

        return await self._read(again)

    async def replay(self, request: ReplayRequest) -> AsyncGenerator[ReplayFigures, None]:
        """The figures so far, after each step; the last one is a ``ReplayResult``.

        Raises:
            ServiceError: 503 when too many replays run.
            ConfigError: the changed values contradict the others of a policy.
        """
        if self._num_replays >= MAX_REPLAYS:
            raise TooManyError(f"{MAX_REPLAYS} replays run here; try again", 503, BUSY_RETRY_S)
        self._num_replays += 1
        try:
            steps = _replay_steps(self._reader, request)
            while (figures := await self._read(lambda: next(steps, None))) is not None:
                yield figures
        finally:
            self._num_replays -= 1

    def _suspended(self, policy: Policy) -> str | None:
        """Why the policy's promise is not claimed at present; None where it is, or nothing is watched."""
        suspension = None if self._claims is None else self._claims.suspension(policy_id(policy))
        return suspension.reason if suspension is not None and suspension.suspended else None

    def _record(self, record_id: str) -> DecisionRecord:
        record = self._reader.get(record_id)
        if record is None:
            message = f"there is no stored decision {record_id!r}; it may be too old to be kept, or not written yet"
            raise ServiceError(message, 404, "unknown_record", "record_id")
        return record

    async def _read(self, work: Callable[[], T]) -> T:
        if self._num_reads >= MAX_READS:
            raise TooManyError(f"{MAX_READS} reads of stored decisions wait here; try again", 503, BUSY_RETRY_S)
        self._num_reads += 1
        try:
            with _readable(self._reader.root):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._num_reads -= 1


@contextmanager
def _readable(root: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        log.warning("the stored decisions in %s cannot be read: %s", root, error)
        message = "the stored decisions cannot be read now; the service's log says why"
        raise ServiceError(message, 503, "records_unreadable") from error


def changes_of(body: ChangesBody) -> Changes:
    """The changes that a body asks for."""
    values = body.policy_changes()
    return Changes(budget=values.pop("budget", None), values=values, costs=body.costs)


def _replay_steps(reader: DecisionReader, request: ReplayRequest) -> Iterator[ReplayFigures]:
    """Blocks in each step."""
    started = time.perf_counter()
    where, num_passing, num_wanted = newest(reader, request.where.to_filter(), request.max_decisions)
    tally, changed = ReplayTally(), deque[Replayed](maxlen=MAX_CHANGED)
    yield replay_figures(tally, num_passing=num_passing, num_wanted=num_wanted)
    stored = stored_decisions(reader, where, batch_size=STEP)
    for group in groups(replay_stored(stored, changes_of(request)), STEP):
        for replayed in group:
            tally.add(replayed, {})
            if replayed.changed:
                changed.append(replayed)
        yield replay_figures(tally, num_passing=num_passing, num_wanted=num_wanted)
    by_id = {replayed.stored.recorded.record_id: replayed for replayed in changed}
    rows = changed_rows(by_id, reader.summaries(sorted(by_id, reverse=True)))
    figures = replay_figures(tally, num_passing=num_passing, num_wanted=num_wanted)
    yield ReplayResult(**figures.model_dump(), changed=rows, seconds=time.perf_counter() - started)


def newest(reader: DecisionReader, where: Filter, most: int) -> tuple[Filter, int, int]:
    """A filter that only the newest ``most`` decisions pass (and others of the very same microsecond as the oldest of
    them), also when new ones are stored meanwhile; how many pass ``where``; and how many pass the new one."""
    times = reader.table(["time"], where)["time"]
    if len(times) == 0:
        return where, 0, 0
    first = pc.array_sort_indices(times.combine_chunks(), order="descending")[: min(most, len(times))]
    newest_times = times.take(first)
    oldest, latest = newest_times[len(newest_times) - 1], newest_times[0]
    num_kept = pc.sum(pc.greater_equal(times, oldest)).as_py()
    until = latest.as_py() + timedelta(microseconds=1)
    return replace(where, since=oldest.as_py(), until=until), len(times), num_kept
