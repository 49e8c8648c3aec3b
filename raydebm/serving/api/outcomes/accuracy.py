"""Coverage and live accuracy by policy, from tables. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import betaincinv

from raydebm.decision.guarantee.watch import ErrorWatch, suspension_of
from raydebm.decisions.outcomes.claims import Claim
from raydebm.decisions.outcomes.log import RIGHT
from raydebm.serving.api.schema.outcome_bodies import ClaimBody, OutcomeFigures, PolicyOutcomes

DECISION_COLUMNS = ("time", "policy_id", "decision")
MAX_POLICIES = 50
LEVEL = 0.95
_LN10 = 2.302585092994046


def outcome_figures(
    decisions: pa.Table,
    lines: pa.Table,
    verdicts: pa.Table,
    *,
    served: Collection[str],
    watches: Mapping[str, tuple[Claim, ErrorWatch]],
) -> OutcomeFigures:
    """
    Args:
        decisions: ``DECISION_COLUMNS`` of every stored decision.
        lines: every report (``outcomes.log.LINES``).
        verdicts: what counts by decision (``outcomes.log.verdicts_of``).
        served: ids of the policies that are served now.
        watches: promise and bet by policy id.
    """
    accepted = pc.equal(decisions["decision"], "accept").cast(pa.int64())
    by_policy = (
        decisions.append_column("accepted", accepted)
        .group_by("policy_id")
        .aggregate([("time", "max"), ("time", "count"), ("accepted", "sum")])
        .sort_by([("time_max", "descending")])
        .to_pylist()
    )
    counts = _counts(lines, verdicts)
    known = [row["policy_id"] for row in by_policy]
    rows = [*by_policy, *({"policy_id": name} for name in counts if name not in known)]
    return OutcomeFigures(
        decisions=decisions.num_rows,
        with_outcome=verdicts.num_rows,
        disputed=pc.sum(verdicts["disputed"]).as_py() or 0,
        policies=[
            _policy(
                row, counts.get(row["policy_id"], {}), row["policy_id"] in served, watches.get(row["policy_id"] or "")
            )
            for row in rows[:MAX_POLICIES]
        ],
    )


def _counts(lines: pa.Table, verdicts: pa.Table) -> dict[str | None, dict[tuple[str, str], int]]:
    """Policy -> (decision, outcome) -> decisions."""
    firsts = lines.group_by("record_id", use_threads=False).aggregate([("policy_id", "first"), ("decision", "first")])
    joined = firsts.sort_by("record_id").append_column("outcome", verdicts["outcome"])  # which are sorted as well
    counts: dict[str | None, dict[tuple[str, str], int]] = {}
    keys = ["policy_id_first", "decision_first", "outcome"]
    for row in joined.group_by(keys).aggregate([("record_id", "count")]).to_pylist():
        by_kind = counts.setdefault(row["policy_id_first"], {})
        by_kind[row["decision_first"], row["outcome"]] = row["record_id_count"]
    return counts


def _policy(
    row: Mapping[str, Any],
    counts: Mapping[tuple[str, str], int],
    served: bool,
    watched: tuple[Claim, ErrorWatch] | None,
) -> PolicyOutcomes:
    decisions, accepted = row.get("time_count", 0), row.get("accepted_sum", 0)
    right, wrong = counts.get(("accept", RIGHT), 0), counts.get(("accept", "wrong"), 0)
    low, high = exact_interval(right, right + wrong)
    return PolicyOutcomes(
        policy_id=row["policy_id"],
        served=served,
        decisions=decisions,
        accepted=accepted,
        coverage=accepted / decisions if decisions else None,
        right=right,
        wrong=wrong,
        accuracy=right / (right + wrong) if right + wrong else None,
        accuracy_low=low,
        accuracy_high=high,
        refused_right=counts.get(("abstain", RIGHT), 0),
        refused_wrong=counts.get(("abstain", "wrong"), 0),
        claim=None if watched is None else claim_body(*watched),
    )


def exact_interval(successes: int, trials: int) -> tuple[float | None, float | None]:
    """The exact 95 % interval of a share (Clopper and Pearson 1934); (None, None) without trials."""
    if trials == 0:
        return None, None
    tail, failures = (1 - LEVEL) / 2, trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def claim_body(claim: Claim, watch: ErrorWatch) -> ClaimBody:
    """A promise with the bet against it."""
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
