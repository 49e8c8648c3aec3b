"""Suspension of guaranteed error rates: bets by policy on all reported outcomes.

In:   the log of outcomes, and guarantees by policy id.
Out:  ``ClaimMonitor.suspension``, which never blocks a request.
Does not know: Ray, HTTP.

Outcomes are never removed, so every replica and every restart bets on the same ones, in the order of the first report
on each problem.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from raydebm.decision.guarantee.watch import ErrorWatch, Suspension, suspension_of
from raydebm.service.store.outcome_log import OutcomeLog
from raydebm.service.store.parquet_folder import UNREADABLE

log = logging.getLogger(__name__)

REFRESH_S = 30.0
"""Seconds until outcomes received by other replicas count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The guarantee of one policy."""

    max_error: float
    """Guaranteed error rate of answered requests."""
    delta: float = 0.05
    """Probability that a false alarm is ever raised."""
    by: tuple[str, ...] | None = None
    """Reporters that count. Default: all."""


class ClaimMonitor:
    """Watch the guarantees of one service. Thread-safe."""

    def __init__(
        self,
        outcomes: OutcomeLog,
        claims: Mapping[str, Claim],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[str, ErrorWatch], None] = lambda policy, watch: None,
    ) -> None:
        """Args:
        outcomes: the log of outcomes.
        claims: guarantees by policy id (``record.policy_id``).
        clock: time in seconds, for the age of the last update.
        on_change: callback for every watch after each update.
        """
        self.outcomes, self._clock, self._on_change = outcomes, clock, on_change
        self.claims = dict(claims)
        self._watches = {
            name: ErrorWatch(alpha=claim.max_error, delta=claim.delta) for name, claim in self.claims.items()
        }
        self._looked_at: float | None = None
        self._refreshing = threading.Lock()

    def suspension(self, policy: str) -> Suspension:
        """Suspension of the policy's guarantee, from outcomes at most ``REFRESH_S`` old while requests arrive.

        Never blocks: updates run in a separate thread and count for later requests. A policy without a guarantee, or
        before its first update, is not suspended.
        """
        now = self._clock()
        if self.claims and (self._looked_at is None or not 0 <= now - self._looked_at < REFRESH_S):
            self._looked_at = now
            threading.Thread(target=self.look, name="raydebm-claims", daemon=True).start()
        return suspension_of(self._watches[policy]) if policy in self.claims else Suspension()

    def take_over(self, earlier: "ClaimMonitor | None") -> None:
        """Copy an earlier monitor's state of equal guarantees, so that suspensions survive while the outcomes cannot be
        read. Blocks during the earlier one's update."""
        if earlier is None or earlier.outcomes.root != self.outcomes.root:
            return
        with earlier._refreshing:
            self._watches |= {
                policy: earlier._watches[policy]
                for policy, claim in self.claims.items()
                if earlier.claims.get(policy) == claim
            }

    def watches(self) -> dict[str, tuple[Claim, ErrorWatch]]:
        """Guarantee and bet by policy id, as of the last update."""
        return {name: (claim, self._watches[name]) for name, claim in self.claims.items()}

    def reasons(self) -> list[str]:
        """Reasons of the suspensions; empty if there are none."""
        suspensions = {name: suspension_of(watch) for name, watch in self._watches.items()}
        return [
            f"the promise of policy {name} is suspended: {each.reason}"
            for name, each in suspensions.items()
            if each.suspended
        ]

    def refresh(self) -> None:
        """Update from the outcomes now. Blocks.

        Raises:
            OSError: they cannot be read; the state is unchanged.
        """
        with self._refreshing:
            self._looked_at = self._clock()
            if not self.claims:
                return
            lines = self.outcomes.lines()
            for policy, claim in self.claims.items():
                fresh = ErrorWatch(alpha=claim.max_error, delta=claim.delta)
                watch = fresh.after_all(errors_of(lines, policy, by=claim.by))
                if watch.alarmed and not self._watches[policy].alarmed:
                    facts = {"policy": policy, "reason": suspension_of(watch).reason}
                    log.warning("claim suspended", extra={"facts": facts})
                self._watches[policy] = watch
                self._on_change(policy, watch)

    def look(self) -> None:
        """``refresh`` that logs unreadable outcomes and keeps the state."""
        try:
            self.refresh()
        except UNREADABLE as error:
            log.warning("outcomes cannot be read, so claims stay unchanged: %s", error)


def errors_of(lines: pa.Table, policy: str, *, by: tuple[str, ...] | None = None) -> list[bool]:
    """Whether each answered problem of a policy is wrong, in the order of the first report.

    The last report on a request counts. Equal requests get equal answers, so further ones add no evidence.

    Args:
        lines: ``log.LINES`` in order of arrival.
        policy: policy id.
        by: reporters that count. Default: all.
    """
    wanted = pc.and_(pc.equal(lines["policy_id"], policy), pc.equal(lines["decision"], "accept"))
    if by is not None:
        wanted = pc.and_(wanted, pc.is_in(lines["by"], pa.array(list(by), pa.string())))
    reports = lines.filter(wanted).group_by("record_id", use_threads=False)
    counted = reports.aggregate([("correct", "last"), ("outcome_id", "first"), ("problem_key", "first")])
    rows = counted.sort_by("outcome_id_first").to_pylist()
    wrong: dict[str, bool] = {}
    for row in rows:
        wrong.setdefault(row["problem_key_first"] or row["record_id"], not row["correct_last"])
    return list(wrong.values())
