"""Suspension of guaranteed error rates: bets by policy, resumed as outcomes arrive.

In:   the log of outcomes, and guarantees by policy id.
Out:  ``ClaimMonitor.suspension``, which never blocks a request.
Does not know: Ray, HTTP.

Each guarantee has one small JSON file in ``claims`` next to the outcomes, so that bets and alarms outlive removed
outcomes and processes. Replicas replace each other's file as a whole: it has its writer's state, and later outcomes are
bet on again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from raydebm.decision.guarantee.watch import ErrorWatch, Suspension, suspension_of
from raydebm.decisions.outcomes.bets import Bet, ClaimBets
from raydebm.decisions.outcomes.log import OutcomeLog
from raydebm.decisions.parquet_folder import UNREADABLE
from raydebm.errors import ConfigError
from raydebm.identity import content_id
from raydebm.run.folder import Folder

log = logging.getLogger(__name__)

FOLDER = "claims"
"""Folder name inside the outcomes folder."""
REFRESH_S = 30.0
"""Seconds until outcomes received by other replicas count."""


class WatchArgs(BaseModel):
    """The ``watch`` section of the application's arguments. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_error: float | None = Field(None, gt=0, lt=1)
    """Error rate to bet against. Default: the certified one; without a certificate outcomes are only counted."""
    by: tuple[str, ...] | None = Field(None, min_length=1)
    """Reporters whose outcomes are bet on, such as an audit of random requests. Default: all."""


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
        self._bets: dict[str, ClaimBets] = {}
        self._watches = {name: self._new_watch(name) for name in self.claims}
        self._suspensions: dict[str, Suspension] = {}
        self._looked_at: float | None = None
        self._refreshing = threading.Lock()

    def _new_watch(self, policy: str) -> ErrorWatch:
        claim = self.claims[policy]
        return ErrorWatch(alpha=claim.max_error, delta=claim.delta)

    def suspension(self, policy: str) -> Suspension:
        """Suspension of the policy's guarantee, from outcomes at most ``REFRESH_S`` old while requests arrive.

        Never blocks: updates run in a separate thread and count for later requests. A policy without a guarantee, or
        before its first update, is not suspended.
        """
        now = self._clock()
        if self.claims and (self._looked_at is None or not 0 <= now - self._looked_at < REFRESH_S):
            self._looked_at = now
            threading.Thread(target=self.look, name="raydebm-claims", daemon=True).start()
        return self._suspensions.get(policy, Suspension())

    def take_over(self, earlier: "ClaimMonitor | None") -> None:
        """Copy an earlier monitor's state of equal guarantees, so that suspensions survive while the outcomes cannot be
        read. Blocks during the earlier one's update."""
        if earlier is None or earlier.outcomes.root != self.outcomes.root:
            return
        with earlier._refreshing:
            for policy in [name for name, claim in self.claims.items() if earlier.claims.get(name) == claim]:
                self._watches[policy] = earlier._watches[policy]
                if policy in earlier._bets:
                    self._bets[policy] = earlier._bets[policy]
                if policy in earlier._suspensions:
                    self._suspensions[policy] = earlier._suspensions[policy]

    def watches(self) -> dict[str, tuple[Claim, ErrorWatch]]:
        """Guarantee and bet by policy id, as of the last update."""
        return {name: (claim, self._watches[name]) for name, claim in self.claims.items()}

    def reasons(self) -> list[str]:
        """Reasons of the suspensions; empty if there are none."""
        suspensions = ((name, each.reason) for name, each in self._suspensions.items() if each.suspended)
        return [f"the promise of policy {name} is suspended: {reason}" for name, reason in suspensions]

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
                self._advance(policy, bets_of(lines, policy, by=claim.by))

    def look(self) -> None:
        """``refresh`` that logs unreadable outcomes and keeps the state."""
        try:
            self.refresh()
        except UNREADABLE as error:
            log.warning("outcomes cannot be read, so that claims stay as they were: %s", error)

    def _advance(self, policy: str, kept: list[Bet]) -> None:
        """Resume after the last update; outcomes with a replaced report are bet on again."""
        known = self._bets[policy] if policy in self._bets else self._stored(policy, kept)
        bets = known.after(kept)
        before = self._suspensions.get(policy, Suspension())
        self._bets[policy], self._watches[policy] = bets, bets.watch
        self._suspensions[policy] = suspension = suspension_of(bets.watch)
        if suspension.suspended and not before.suspended:
            log.warning("claim suspended", extra={"facts": {"policy": policy, "reason": suspension.reason}})
        if bets.to_json() != known.to_json():
            self._store(policy, bets)
        self._on_change(policy, bets.watch)

    def _stored(self, policy: str, kept: list[Bet]) -> ClaimBets:
        """Bets of an earlier process or another replica, or new ones if this guarantee has none."""
        name, begun = self._file_of(policy), ClaimBets.begun(self._new_watch(policy))
        try:
            value = Folder(self.outcomes.root).read_object(FOLDER, name, remedy="remove it")
            return begun if value is None else ClaimBets.resumed(value, kept)
        except ConfigError as error:
            log.warning("%s is left out, and bets begin with the outcomes that are kept: %s", name, error)
            return begun

    def _store(self, policy: str, bets: ClaimBets) -> None:
        try:
            Folder(self.outcomes.root).write_json(bets.to_json(), FOLDER, self._file_of(policy))
        except OSError as error:
            log.warning("the bets on policy %s cannot be written, and a restart may forget them: %s", policy, error)

    def _file_of(self, policy: str) -> str:
        """File of a guarantee; a different guarantee of the same policy has another file."""
        claim = self.claims[policy]
        return f"{content_id(policy, claim.max_error, claim.delta, claim.by)}.json"


def bets_of(lines: pa.Table, policy: str, *, by: tuple[str, ...] | None = None) -> list[Bet]:
    """Outcome of each answered problem of a policy, in the order of the first report.

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
    bets: dict[str, Bet] = {}
    for row in rows:
        problem = row["problem_key_first"] or row["record_id"]
        bets.setdefault(problem, Bet(row["outcome_id_first"], row["record_id"], not row["correct_last"], problem))
    return list(bets.values())
