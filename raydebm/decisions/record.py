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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from raydebm.decision.policy import Policy, policy_id
from raydebm.identity import canonical_json, content_id
from raydebm.pairs import text_key
from raydebm.records import (
    Candidate,
    Decision,
    Energies,
    Outcome,
    PassRecord,
    PassStop,
    Problem,
    ScoredCandidate,
)
from raydebm.run.codec import Row
from raydebm.run.tables import CANDIDATES, REPORTS

_OF_PROBLEM = ("task", "problem_id")
"""Columns of CANDIDATES that are constant over the record, and stored once."""

CANDIDATE = pa.struct(
    [
        *(column for column in CANDIDATES.schema if column.name not in _OF_PROBLEM),
        pa.field("answer", pa.string()),
        pa.field("vote_key", pa.string()),
        pa.field("penalty", pa.float64()),
        pa.field("violations_json", pa.string()),
        pa.field("check_error", pa.string()),
        pa.field("proof", pa.bool_()),
        pa.field("note", pa.string()),
        pa.field("members", pa.list_(pa.float64())),
        pa.field("num_tokens", pa.int32()),
        pa.field("num_truncated", pa.int32()),
        pa.field("scores_json", pa.string()),
    ]
)
STOP = pa.struct(
    [
        ("reason", pa.string()),
        ("words", pa.string()),
        ("num_planned", pa.int32()),
        ("num_samples", pa.int32()),
        ("num_cancelled", pa.int32()),
        ("tokens_saved", pa.int64()),
    ]
)
"""Stop of a pass sampled in waves; null for other passes."""
PASS = pa.struct(
    [
        ("pass_index", pa.int32()),
        ("num_requested", pa.int32()),
        ("num_failed", pa.int32()),
        ("selected", pa.string()),
        ("sigma", pa.float64()),
        ("penalty", pa.float64()),
        ("decision", pa.string()),
        ("feedback", pa.string()),
        ("confidence", pa.float64()),
        ("stop", STOP),
    ]
)
SUMMARY = pa.schema(
    [
        ("record_id", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("request_id", pa.string()),
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("problem_key", pa.string()),
        ("title", pa.string()),
        ("decision", pa.string()),
        ("reason", pa.string()),
        ("selected", pa.string()),
        ("generator", pa.string()),
        ("answer", pa.string()),
        ("confidence", pa.float64()),
        ("energy", pa.float64()),
        ("mu", pa.float64()),
        ("sigma", pa.float64()),
        ("signal", pa.float64()),
        ("penalty", pa.float64()),
        ("num_candidates", pa.int32()),
        ("num_failed", pa.int32()),
        ("num_passes", pa.int32()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("latency_ms", pa.float64()),
        ("policy_id", pa.string()),
    ]
)
"""Columns of lists. ``problem_key`` is equal for repeated problems, regardless of their ids. ``generator``, ``sigma``,
``mu``, ``energy`` and ``penalty`` are the selected candidate's. ``policy_id`` is the id of the deciding policy."""
DECISIONS = pa.schema(
    [
        *SUMMARY,
        ("prompt", pa.string()),
        ("scored_prompt", pa.string()),
        ("data_json", pa.string()),
        ("difficulty", pa.string()),
        ("request_json", pa.string()),
        ("seed", pa.int64()),
        ("policy_json", pa.string()),
        ("versions_json", pa.string()),
        ("stages_json", pa.string()),
        ("passes", pa.list_(PASS)),
        ("candidates", pa.list_(CANDIDATE)),
    ]
)

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


class RecordSink(Protocol):
    """Destination of the service's decisions; ``writer.DecisionWriter``."""

    def put(self, record: DecisionRecord) -> bool:
        """Store a decision. Never raises and never waits for a disk. Returns False if it was dropped."""
        ...


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


def record_row(record: DecisionRecord) -> Row:
    """A row of DECISIONS."""
    outcome, problem = record.outcome, record.problem
    best, written = outcome.best, [scored.candidate for scored in outcome.pool]
    energies = None if best is None else best.energies
    drawn = [*written, *record.lost]
    costs = [candidate.cost_usd for candidate in drawn if candidate.cost_usd is not None]
    return {
        "record_id": record.record_id,
        "time": record.time,
        "request_id": record.request_id,
        "task": problem.task,
        "problem_id": problem.problem_id,
        "problem_key": problem_key(problem, record.scored_prompt),
        "title": " ".join(problem.prompt[: 4 * TITLE_CHARS].split())[:TITLE_CHARS],
        "decision": str(outcome.decision),
        "reason": outcome.reason,
        "selected": None if best is None else best.candidate.candidate_id,
        "generator": None if best is None else best.candidate.generator,
        "answer": None if best is None else best.report.answer,
        "confidence": outcome.confidence,
        "energy": None if best is None else best.total_energy(record.policy.lambda_),
        "mu": None if energies is None else energies.mu,
        "sigma": None if energies is None else energies.sigma,
        "signal": outcome.passes[-1].sigma if outcome.passes else None,
        "penalty": None if best is None else best.report.penalty,
        "num_candidates": len(drawn),
        "num_failed": sum(candidate.text is None for candidate in written) + len(record.lost),
        "num_passes": len(outcome.passes),
        "prompt_tokens": sum(candidate.prompt_tokens or 0 for candidate in drawn),
        "completion_tokens": sum(candidate.completion_tokens or 0 for candidate in drawn),
        "cost_usd": math.fsum(costs) if costs else None,
        "latency_ms": record.latency_ms,
        "policy_id": policy_id(record.policy),
        "prompt": problem.prompt,
        "scored_prompt": record.scored_prompt,
        "data_json": canonical_json(dict(problem.data)),
        "difficulty": problem.difficulty,
        "request_json": canonical_json(dict(record.request)),
        "seed": record.seed,
        "policy_json": canonical_json(record.policy.to_json()),
        "versions_json": canonical_json(dict(record.versions)),
        "stages_json": canonical_json(dict(record.stages_ms)),
        "passes": [_pass_row(pass_) for pass_ in outcome.passes],
        "candidates": [_candidate_row(scored) for scored in outcome.pool],
    }


def record_of(row: Row) -> DecisionRecord:
    """Inverse of ``record_row``."""
    problem = Problem(
        task=row["task"],
        problem_id=row["problem_id"],
        prompt=row["prompt"],
        data=json.loads(row["data_json"]),
        difficulty=row["difficulty"],
    )
    pool = tuple(_scored_of(candidate_row, problem) for candidate_row in row["candidates"])
    by_id = {scored.candidate.candidate_id: scored for scored in pool}
    outcome = Outcome(
        problem=problem,
        decision=Decision(row["decision"]),
        best=None if row["selected"] is None else by_id[row["selected"]],
        passes=tuple(map(_pass_of, row["passes"])),
        pool=pool,
        reason=row["reason"],
    )
    return DecisionRecord(
        record_id=row["record_id"],
        time=row["time"],
        request_id=row["request_id"],
        outcome=outcome,
        policy=Policy.from_json(json.loads(row["policy_json"])),
        seed=row["seed"],
        scored_prompt=row["scored_prompt"],
        request=json.loads(row["request_json"]),
        versions=json.loads(row["versions_json"]),
        latency_ms=row["latency_ms"],
        stages_ms=json.loads(row["stages_json"]),
    )


def _pass_row(pass_: PassRecord) -> Row:
    row = {name: getattr(pass_, name) for name in (member.name for member in PASS)}
    stop = None if pass_.stop is None else asdict(pass_.stop)
    return {**row, "decision": str(pass_.decision), "stop": stop}


def _pass_of(row: Row) -> PassRecord:
    stop = None if row.get("stop") is None else PassStop(**row["stop"])
    return PassRecord(**{**row, "decision": Decision(row["decision"]), "stop": stop})


def _candidate_row(scored: ScoredCandidate) -> Row:
    report, energies = REPORTS.row(scored.report), scored.energies
    return {
        **CANDIDATES.row(scored.candidate),
        **{name: report[name] for name in ("answer", "vote_key", "penalty", "violations_json", "proof", "note")},
        "check_error": report["error"],
        "members": None if energies is None else list(energies.members),
        "num_tokens": None if energies is None else energies.num_tokens,
        "num_truncated": None if energies is None else energies.num_truncated,
        "scores_json": canonical_json(dict(scored.scores)) if scored.scores else None,
    }


def _scored_of(row: Row, problem: Problem) -> ScoredCandidate:
    candidate: Candidate = CANDIDATES.record({**row, "task": problem.task, "problem_id": problem.problem_id})
    energies = None
    if row["members"] is not None:
        energies = Energies(
            candidate_id=candidate.candidate_id,
            members=tuple(row["members"]),
            num_tokens=row["num_tokens"],
            num_truncated=row["num_truncated"],
        )
    report = REPORTS.record({**row, "error": row["check_error"]})
    return ScoredCandidate(
        candidate=candidate, report=report, energies=energies, scores=scores_of(row.get("scores_json"))
    )


def scores_of(text: str | None) -> dict[str, float]:
    """Scores of the baselines that are evidence; empty for records without any."""
    return {} if text is None else json.loads(text)
