"""From stored decisions to the bodies of ``schema``. Pure."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydebm.decision.policy import Policy
from raydebm.decision.rules import beliefs_about
from raydebm.decisions.outcomes.log import RIGHT, WRONG, ReportedOutcome
from raydebm.decisions.record import DecisionRecord, record_row
from raydebm.decisions.stored_replay import Replayed, ReplayTally
from raydebm.records import Decision, ScoredCandidate
from raydebm.run.codec import Row
from raydebm.serving.api.schema.decision_bodies import MAX_ANSWERS
from raydebm.serving.api.schema.outcome_bodies import OutcomeBody
from raydebm.serving.api.schema.stored_bodies import (
    ChangedRow,
    DecisionRow,
    Histogram,
    Move,
    Overview,
    Redecided,
    ReplayFigures,
    Share,
    StoredCandidate,
    StoredDecision,
    StoredProblem,
    TimeBins,
)
from raydebm.serving.api.triage.bodies import answer_body, candidate_body, guarantee_body, pass_body
from raydebm.serving.core.result import stop_totals

OVERVIEW_COLUMNS = (
    "time",
    "task",
    "generator",
    "decision",
    "energy",
    "sigma",
    "num_candidates",
    "num_failed",
    "num_passes",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "latency_ms",
    "outcome",
)
NUM_BARS = 24
NUM_TIME_BINS = 36
MAX_SHARES = 50


def decision_row(row: Row) -> DecisionRow:
    """A row of ``reader.LISTED``."""
    return DecisionRow(**{name: _finite(row[name]) for name in DecisionRow.model_fields})


def stored_decision(
    record: DecisionRecord, reports: Sequence[ReportedOutcome] = (), *, suspended: str | None = None
) -> StoredDecision:
    """
    Args:
        record: the decision.
        reports: what was reported about it, in the order of arrival.
        suspended: why the promise of its policy is not claimed at present, where it is not.
    """
    outcome = record.outcome
    beliefs = beliefs_about(outcome.pool, record.policy, outcome.best)
    last = None if not reports else RIGHT if reports[-1].correct else WRONG
    return StoredDecision(
        **decision_row({**record_row(record), "outcome": last}).model_dump(),
        problem=StoredProblem(
            prompt=outcome.problem.prompt,
            scored_prompt=record.scored_prompt,
            data=dict(outcome.problem.data),
            difficulty=outcome.problem.difficulty,
        ),
        request=dict(record.request),
        policy=record.policy.to_json(),
        seed=record.seed,
        versions=dict(record.versions),
        stages_ms=dict(record.stages_ms),
        passes=[pass_body(pass_) for pass_ in outcome.passes],
        **stop_totals([pass_.stop for pass_ in outcome.passes]),
        candidates=[_candidate(scored, record) for scored in outcome.pool],
        answers=[answer_body(belief) for belief in beliefs[:MAX_ANSWERS]],
        guarantee=guarantee_body(record.policy, suspended),
        outcomes=outcome_bodies(reports),
    )


def outcome_bodies(reports: Sequence[ReportedOutcome]) -> list[OutcomeBody]:
    """In their order; the last one by each name is current."""
    last = {report.by: report.outcome_id for report in reports}
    return [
        OutcomeBody(
            time=report.time,
            outcome=RIGHT if report.correct else WRONG,
            by=report.by,
            answer=report.answer,
            note=report.note,
            key=report.key,
            current=last[report.by] == report.outcome_id,
        )
        for report in reports
    ]


def _candidate(scored: ScoredCandidate, record: DecisionRecord) -> StoredCandidate:
    candidate = scored.candidate
    return StoredCandidate(
        **candidate_body(scored, record.policy.lambda_).model_dump(),
        reasoning=candidate.reasoning,
        prompt_tokens=candidate.prompt_tokens,
        latency_s=candidate.latency_s,
    )


def replay_figures(tally: ReplayTally, *, num_passing: int, num_wanted: int) -> ReplayFigures:
    """The counts of a replay so far.

    Args:
        tally: of the decisions that were made again.
        num_passing: decisions that pass the filter.
        num_wanted: those of them that are to be made again.
    """
    return ReplayFigures(
        num_passing=num_passing,
        num_wanted=num_wanted,
        num_decisions=tally.num_decisions,
        num_changed=tally.num_changed,
        num_other_answer=tally.num_other_answer,
        num_unknown=tally.num_pass_missing,
        num_inexact=tally.num_inexact,
        num_promised=tally.num_promised,
        accepted_before=tally.num_accepted_before,
        accepted_at_least=tally.num_accepted_at_least,
        accepted_at_most=tally.num_accepted_at_most,
        candidates_before=tally.candidates_before,
        candidates_after=tally.candidates_after,
        moves=[
            Move(recorded=_final(old), again=new.value, decisions=count)
            for (old, new), count in sorted(tally.moves.items(), key=lambda move: (-move[1], move[0]))
        ],
    )


def changed_rows(changed: Mapping[str, Replayed], rows: Sequence[Row]) -> list[ChangedRow]:
    """In the order of ``rows``."""
    bodies = []
    for row in rows:
        replayed = changed[row["record_id"]]
        again = replayed.again
        bodies.append(
            ChangedRow(
                **decision_row(row).model_dump(),
                again=_final(again.decision),
                again_selected=again.selected,
                same_answer=replayed.same_answer,
                exact=again.exact,
            )
        )
    return bodies


def redecided(replayed: Replayed, record: DecisionRecord, policy: Policy, *, suspended: str | None = None) -> Redecided:
    """
    Args:
        replayed: the decision, made again.
        record: as it was stored.
        policy: under which it was made again.
        suspended: why this policy's promise is not claimed at present, where it is not.
    """
    recorded, again = replayed.stored.recorded, replayed.again
    best = again.best
    return Redecided(
        record_id=again.record_id,
        recorded=_final(recorded.decision),
        decision=again.decision.value,
        as_it_stands=_final(again.as_it_stands),
        changed=replayed.changed,
        same_answer=replayed.same_answer,
        exact=again.exact,
        reason=again.reason,
        selected=again.selected,
        generator=None if best is None else best.candidate.generator,
        answer=None if best is None else best.report.answer,
        energy=None if best is None else _finite(best.total_energy(policy.lambda_)),
        sigma=None if best is None or best.energies is None else best.energies.sigma,
        signal=again.signal,
        penalty=None if again.penalty is None else _finite(again.penalty),
        confidence=again.confidence,
        guarantee=guarantee_body(policy, suspended),
        num_passes=again.num_passes,
        num_candidates=again.num_candidates,
        policy=policy.to_json(),
        energies={
            scored.candidate.candidate_id: _finite(scored.total_energy(policy.lambda_))
            for scored in record.outcome.pool
        },
    )


def overview(table: pa.Table) -> Overview:
    """Figures over a table of ``OVERVIEW_COLUMNS``."""
    accepted = pc.equal(table["decision"], "accept")
    is_accepted = accepted.to_numpy(zero_copy_only=False).astype(bool)
    latencies = table["latency_ms"].to_numpy()
    halves = (
        [None, None]
        if len(latencies) == 0
        else [float(percentile) for percentile in np.percentile(latencies, (50, 95))]
    )
    times = pc.min_max(table["time"])
    return Overview(
        total=table.num_rows,
        accepted=int(is_accepted.sum()),
        candidates=_sum(table, "num_candidates"),
        failed=_sum(table, "num_failed"),
        prompt_tokens=_sum(table, "prompt_tokens"),
        completion_tokens=_sum(table, "completion_tokens"),
        cost_usd=pc.sum(table["cost_usd"]).as_py(),
        latency_p50_ms=halves[0],
        latency_p95_ms=halves[1],
        first=times["min"].as_py(),
        last=times["max"].as_py(),
        right=pc.sum(pc.equal(table["outcome"], RIGHT)).as_py() or 0,
        wrong=pc.sum(pc.equal(table["outcome"], WRONG)).as_py() or 0,
        tasks=_shares(table, "task", accepted),
        generators=_shares(table, "generator", accepted),
        passes=_shares(table, "num_passes", accepted),
        sigma=_histogram(table["sigma"], is_accepted),
        energy=_histogram(table["energy"], is_accepted),
        times=_time_bins(table["time"], is_accepted),
    )


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table[column]).as_py() or 0)


def _shares(table: pa.Table, column: str, accepted: Any) -> list[Share]:
    """Groups of a column by their size; decisions without a value are left out."""
    pairs = pa.table({"name": table[column], "accepted": accepted.cast(pa.int64())})
    groups = pairs.group_by("name").aggregate([("accepted", "sum"), ("accepted", "count")]).to_pylist()
    known = [group for group in groups if group["name"] is not None]
    known.sort(key=lambda group: (-group["accepted_count"], str(group["name"])))
    return [
        Share(name=str(group["name"]), decisions=group["accepted_count"], accepted=group["accepted_sum"])
        for group in known[:MAX_SHARES]
    ]


def _histogram(column: pa.ChunkedArray, is_accepted: np.ndarray) -> Histogram | None:
    """Bars over the middle 99 % of the values, so that one extreme value among many does not flatten all others; over
    all of up to 200."""
    values = column.to_numpy().astype(float)
    there = np.isfinite(values)
    if not there.any():
        return None
    low = np.percentile(values[there], 0.5, method="lower")
    high = np.percentile(values[there], 99.5, method="higher")
    edges = even_edges(float(low), float(high), NUM_BARS)
    accept = np.histogram(values[there & is_accepted], edges)[0]
    abstain = np.histogram(values[there & ~is_accepted], edges)[0]
    return Histogram(
        edges=edges,
        accept=accept.tolist(),
        abstain=abstain.tolist(),
        below=int((values[there] < edges[0]).sum()),
        above=int((values[there] > edges[-1]).sum()),
    )


def even_edges(low: float, high: float, most: int) -> list[float]:
    """Edges around [low, high] on multiples of 1, 2 or 5 times a power of ten, for at most ``most`` bars."""
    width = (high - low) / (most - 2) if high > low else max(1e-6, abs(high)) / 10
    power = 10.0 ** math.floor(math.log10(width))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= width * (1 - 1e-9))
    first, last = math.floor(low / step), max(math.floor(low / step) + 1, math.ceil(high / step))
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _time_bins(column: pa.ChunkedArray, is_accepted: np.ndarray) -> TimeBins | None:
    micros = column.cast(pa.int64()).to_numpy()
    if len(micros) == 0:
        return None
    edges = np.linspace(int(micros.min()), int(micros.max()) + 1, NUM_TIME_BINS + 1)
    return TimeBins(
        edges=[datetime.fromtimestamp(edge / 1e6, UTC) for edge in edges],
        accept=np.histogram(micros[is_accepted], edges)[0].tolist(),
        abstain=np.histogram(micros[~is_accepted], edges)[0].tolist(),
    )


def _final(decision: Decision) -> Literal["accept", "abstain"]:
    return "accept" if decision is Decision.ACCEPT else "abstain"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
