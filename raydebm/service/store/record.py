"""One stored decision: all its inputs, the decision and its reasons, versions and seeds; and the writer of decisions.

Out:  a row of ``DECISIONS``, and back.
Independent of: Ray, HTTP.

The writer works in batches, from one thread, off the request path: ``put`` appends to a bounded queue and returns. A
thread writes the queue every few seconds, merges small files, and removes files beyond the limits. Neither can fail or
delay a request: if the disk is full or the folder cannot be written, decisions wait, and beyond the queue's bounds they
are dropped, counted and logged. A crash of the process loses the decisions since the last write (``FLUSH_S``). Files
are not synced, so a power cut may also lose the operating system's buffers.

Energies and penalties are stored unchanged, infinity included, so that a replay computes with the same numbers.
"""

import json
import logging
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, get_args

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from raydebm.decision.policy import Policy, policy_id
from raydebm.identity import content_id, text_key
from raydebm.records import Candidate, Decision, Outcome, Problem, well_formed
from raydebm.run.codec import Row
from raydebm.service.store.parquet_folder import ROW_GROUP, FolderWriter

Final = Literal["accept", "abstain"]
"""A decision in the API's terms."""


class Judged(BaseModel):
    """An answer, and how far it can be trusted."""

    answer: str | None = None
    """Answer in canonical text; null if nothing was parsed."""
    confidence: float | None = None
    """Probability that the answer is right; null without a fitted posterior."""


class DecisionFacts(Judged):
    """One decision: what its answer, its row in lists and its stored form have in common.

    Energies and penalty are those of the selected candidate; null without one. Energies: lower is better.
    """

    request_id: str
    record_id: str | None = None
    """Id of the stored decision, for reading it and for reporting its outcome; null if it is not stored."""
    task: str
    problem_id: str
    decision: Final
    reason: str
    energy: float | None
    """E = mu + lambda * E_constraint."""
    mu: float | None
    sigma: float | None
    """Population standard deviation over the adapters (ddof=0)."""
    penalty: float | None
    """E_constraint."""
    num_passes: int
    cost_usd: float | None
    """Null when no generator reports cost."""
    latency_ms: float


class DecisionSummary(DecisionFacts):
    """One decision in a list: columns of the Parquet files, and a row of ``GET /v1/decisions``."""

    record_id: str
    time: datetime
    problem_key: str
    """Equal for repeated problems, regardless of their ids."""
    title: str
    """The beginning of the problem."""
    selected: str | None
    generator: str | None
    signal: float | None
    """The policy's ``signal``, which the paper's rule compares with its thresholds."""
    num_candidates: int
    num_failed: int
    prompt_tokens: int
    completion_tokens: int
    policy_id: str
    """Id of the policy that decided."""
    outcome: Literal["right", "wrong"] | None = None
    """Latest report on the selected candidate. Not in a decision's file, but in the log of outcomes."""


_TYPES = {int: pa.int64(), float: pa.float64(), datetime: pa.timestamp("us", tz="UTC")}


def _type(annotation: Any) -> pa.DataType:
    """Column type of a field; texts by default."""
    return next((_TYPES[kind] for kind in (annotation, *get_args(annotation)) if kind in _TYPES), pa.string())


LISTED = pa.schema([(name, _type(field.annotation)) for name, field in DecisionSummary.model_fields.items()])
"""Columns of ``DecisionSummary``."""
SUMMARY = pa.schema([column for column in LISTED if column.name != "outcome"])
DECISIONS = pa.schema([*SUMMARY, ("record_json", pa.string())])
"""Columns of the files; ``record_json`` is the whole ``DecisionRecord``."""

TITLE_CHARS = 120
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One decision of the service."""

    record_id: str
    """Unique; begins with the time, so that ids sort by it."""
    time: datetime
    """Time of the decision, UTC, whole microseconds."""
    request_id: str
    """Request id as in the response and the log. A client may choose it, so it need not be unique."""
    outcome: Outcome
    policy: Policy
    seed: int
    scored_prompt: str | None = None
    """Problem text as scored, if it differs from the prompt (earlier turns of a chat)."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Request settings other than the problem and the policy, as JSON values."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions in the response: raydebm, the recipe, the checkpoint, the policy."""
    latency_ms: float = 0.0
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    lost: tuple[Candidate, ...] = ()
    """Candidates paid for in an interrupted pass. Summaries count them, but they are not stored."""

    @property
    def problem(self) -> Problem:
        """Problem of the request."""
        return self.outcome.problem

    @property
    def selected(self) -> str | None:
        """Id of the selected candidate. None if nothing could be selected."""
        return None if self.outcome.best is None else self.outcome.best.candidate.candidate_id


def new_record_id(time: datetime) -> str:
    """16 hexadecimal digits of microseconds since 1970, then 8 random ones."""
    return f"{microseconds(time):016x}{uuid.uuid4().hex[:8]}"


def time_of_id(record_id: str) -> datetime | None:
    """Time of a record id; None for an invalid id."""
    try:
        return EPOCH + timedelta(microseconds=int(record_id[:16], 16)) if len(record_id) == 24 else None
    except (ValueError, OverflowError):
        return None


def microseconds(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def problem_key(problem: Problem, scored_prompt: str | None) -> str:
    """Id of a problem: task, data, and the scored text, ignoring its case and white space."""
    return content_id(problem.task, text_key(scored_prompt or problem.prompt), dict(problem.data))


def summary_of(record: DecisionRecord, *, outcome: Literal["right", "wrong"] | None = None) -> DecisionSummary:
    """The decision as a row of a list, with its reported outcome."""
    made, problem, best = record.outcome, record.problem, record.outcome.best
    written = [scored.candidate for scored in made.pool]
    energies = None if best is None else best.energies
    drawn = [*written, *record.lost]
    costs = [candidate.cost_usd for candidate in drawn if candidate.cost_usd is not None]
    return DecisionSummary(
        record_id=record.record_id,
        time=record.time,
        request_id=record.request_id,
        task=problem.task,
        problem_id=problem.problem_id,
        problem_key=problem_key(problem, record.scored_prompt),
        title=" ".join(problem.prompt[: 4 * TITLE_CHARS].split())[:TITLE_CHARS],
        decision=final(made.decision),
        reason=made.reason,
        selected=record.selected,
        generator=None if best is None else best.candidate.generator,
        answer=None if best is None else best.report.answer,
        confidence=made.confidence,
        energy=None if best is None else best.total_energy(record.policy.lambda_),
        mu=None if energies is None else energies.mu,
        sigma=None if energies is None else energies.sigma,
        signal=made.passes[-1].sigma if made.passes else None,
        penalty=None if best is None else best.report.penalty,
        num_candidates=len(drawn),
        num_failed=sum(candidate.text is None for candidate in written) + len(record.lost),
        num_passes=len(made.passes),
        prompt_tokens=sum(candidate.prompt_tokens or 0 for candidate in drawn),
        completion_tokens=sum(candidate.completion_tokens or 0 for candidate in drawn),
        cost_usd=math.fsum(costs) if costs else None,
        latency_ms=record.latency_ms,
        policy_id=policy_id(record.policy),
        outcome=outcome,
    )


def record_row(record: DecisionRecord) -> Row:
    """A row of DECISIONS."""
    summary = summary_of(record).model_dump(exclude={"outcome"})
    whole = {each.name: getattr(record, each.name) for each in fields(record) if each.name != "lost"}
    whole["time"], whole["policy"] = record.time.isoformat(), record.policy.to_json()
    whole["outcome"] = _OUTCOME.dump_python(replace(record.outcome, best=None))
    whole["selected"] = record.selected
    return {**summary, "record_json": json.dumps(whole, ensure_ascii=False, separators=(",", ":"))}


def record_of(row: Row) -> DecisionRecord:
    """Inverse of ``record_row``. Raises ValueError, KeyError or TypeError for a damaged row."""
    whole = json.loads(row["record_json"])
    selected = whole["selected"]
    record = _RECORD.validate_python(whole)
    pool = tuple(record.outcome.pool)
    best = None if selected is None else {each.candidate.candidate_id: each for each in pool}[selected]
    return replace(record, outcome=replace(record.outcome, pool=pool, best=best))


def final(decision: Decision) -> Final:
    """A decision in the API's terms."""
    return "accept" if decision is Decision.ACCEPT else "abstain"


_RECORD, _OUTCOME = TypeAdapter(DecisionRecord), TypeAdapter(Outcome)


log = logging.getLogger(__name__)

FLUSH_S = 5.0
"""Seconds between writes of the queue. A crash may lose the decisions of this time."""
MAX_WAITING = 2000
"""Limit on queued decisions; further ones are dropped."""
MAX_WAITING_CHARS = 64_000_000
"""Limit on the queue's text, in characters."""


class RecordsArgs(BaseModel):
    """The ``records`` section of the application's arguments. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str | None = None
    """A local path that this node can write, or a filesystem URL. Default: ``records`` in the run directory."""
    max_mb: float = Field(2048, gt=0)
    """Total size beyond which the oldest files are removed."""
    max_days: float | None = Field(30, gt=0)
    """Age in days of a file's last decision at which the file is removed. Null for no limit."""


class DecisionWriter:
    """Write one folder. Several writers (replicas) may share it, with distinct file names."""

    def __init__(
        self,
        root: str,
        args: RecordsArgs | None = None,
        *,
        flush_s: float = FLUSH_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = root
        args, self._flush_s = args or RecordsArgs(), flush_s
        self._folder = FolderWriter(root, max_mb=args.max_mb, max_days=args.max_days, clock=clock)
        self._waiting: deque[tuple[DecisionRecord, int]] = deque()
        self._waiting_chars = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._writing = threading.Lock()
        self.num_written = 0
        self.num_dropped = 0
        self.last_error: str | None = None
        """Error of the last write; None if it succeeded."""

    def put(self, record: DecisionRecord) -> bool:
        """Queue a decision. Never raises and never waits for a disk. Returns False if it was dropped and counted."""
        size = _num_chars(record)
        with self._wake:
            is_full = len(self._waiting) >= MAX_WAITING or self._waiting_chars + size > MAX_WAITING_CHARS
            if is_full or self._closing:
                self.num_dropped += 1
                return False
            self._waiting.append((record, size))
            self._waiting_chars += size
            self._start()
            if len(self._waiting) >= MAX_WAITING // 4:
                self._wake.notify()
        return True

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="raydebm-records", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads on this machine: the next decision tries again
            self.last_error = str(error)
            return
        self._thread = thread

    @property
    def num_waiting(self) -> int:
        """Number of queued decisions."""
        return len(self._waiting)

    def close(self) -> None:
        """Write the queue and end the thread. Later decisions are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=30)
        self.flush()

    def _run(self) -> None:
        while not self._closing:
            with self._wake:
                if not self._closing:
                    self._wake.wait(timeout=self._flush_s)
            self.flush()
            if self.last_error is not None and not self._closing:
                time.sleep(min(self._flush_s, 1.0))  # do not occupy a core while the folder cannot be written

    def flush(self) -> bool:
        """Write the queue now. Returns False on failure, which leaves the queue as it was."""
        with self._writing:
            try:
                while self._waiting:
                    self._write_batch()
                self._folder.merge()
                self._folder.tidy()
            except Exception as error:  # noqa: BLE001 - no storage error may end the thread or reach a request
                if self.last_error is None:
                    log.error("decisions cannot be written to %s: %s", self.root, error)
                self.last_error = str(error)
                return False
            if self.last_error is not None:
                log.warning("decisions are written again; %d were dropped since the start", self.num_dropped)
            self.last_error = None
            return True

    def _write_batch(self) -> None:
        with self._wake:
            records = [record for record, _ in islice(self._waiting, ROW_GROUP)]
        table = _table(records)
        if table.num_rows:
            times = [microseconds(record.time) for record in records]
            self._folder.append(table, min(times), max(times))
        with self._wake:
            for _ in records:
                self._waiting_chars -= self._waiting.popleft()[1]
        self.num_written += table.num_rows
        self.num_dropped += len(records) - table.num_rows


def _num_chars(record: DecisionRecord) -> int:
    """Approximate size of the record in memory: all texts that a client or a model can make long."""
    outcome, problem = record.outcome, record.problem
    texts = [problem.prompt, record.scored_prompt, *(pass_.feedback for pass_ in outcome.passes)]
    for scored in outcome.pool:
        texts += [scored.candidate.text, scored.candidate.reasoning, scored.report.answer]
        texts += [violation.message for violation in scored.report.violations]
    return 2000 + sum(len(text) for text in texts if text) + len(str(problem.data)) + len(str(record.request))


def _table(records: Sequence[DecisionRecord]) -> pa.Table:
    """Convert one record at a time: pyarrow holds the interpreter's lock while converting, and requests run meanwhile.
    Records that cannot be stored (a problem's data may be anything) are left out."""
    tables = [DECISIONS.empty_table()]
    for record in records:
        try:
            row = record_row(record)
            try:
                tables.append(pa.Table.from_pylist([row], schema=DECISIONS))
            except UnicodeEncodeError:
                row = {name: well_formed(value) if isinstance(value, str) else value for name, value in row.items()}
                tables.append(pa.Table.from_pylist([row], schema=DECISIONS))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            log.warning("the decision on request %s cannot be stored: %s", record.request_id, error)
    return pa.concat_tables(tables)
