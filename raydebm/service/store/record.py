"""One stored decision: all its inputs, the decision and its reasons, versions and seeds.

In:   the loop's outcome of a request.
Out:  a row of ``DECISIONS``, and back.
Does not know: Ray, HTTP, storage (``writer``, ``reader``).

Energies and penalties are stored unchanged, infinity included, so that a replay computes with the same numbers.
"""

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import pyarrow as pa
from pydantic import BaseModel, TypeAdapter

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.redecide import Recorded, recorded_outcome
from raydebm.identity import content_id
from raydebm.records import Candidate, Decision, Outcome, Problem
from raydebm.run.codec import Row
from raydebm.scorer.pairs import text_key

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
    """The value compared with the thresholds."""
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
    """Candidates paid for in an interrupted pass. They count in the figures and are not stored."""

    @property
    def problem(self) -> Problem:
        """Problem of the request."""
        return self.outcome.problem

    @property
    def recorded(self) -> Recorded:
        """The inputs of a new decision."""
        return recorded_outcome(self.outcome, record_id=self.record_id, policy=self.policy)


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
        selected=None if best is None else best.candidate.candidate_id,
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
    whole["selected"] = summary["selected"]
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
