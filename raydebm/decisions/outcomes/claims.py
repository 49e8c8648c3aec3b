"""Whether promised error rates are still claimed: bets by policy, resumed as outcomes arrive.

In:   the log of outcomes, and what is promised by policy id.
Out:  ``ClaimMonitor.suspension``, which requests ask and which never waits.
Does not know: Ray, HTTP.

Each promise has one small JSON file in ``claims`` next to the outcomes, so that bets and alarms outlive outcomes that
are removed and processes that end. Replicas replace each other's file as a whole: it says what its writer had seen, and
what came later is bet on again from the outcomes.
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
"""Below the folder of the outcomes."""
REFRESH_S = 30.0
"""Outcomes that other replicas received count after so many seconds."""


class WatchArgs(BaseModel):
    """The ``watch`` section of the application's arguments. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_error: float | None = Field(None, gt=0, lt=1)
    """Error rate of answered requests that reported outcomes are held against; None: what calibration certified, and
    without a certificate they are counted and not bet on."""
    by: tuple[str, ...] | None = Field(None, min_length=1)
    """Only reports by these names are bet on, such as those of an audit of random requests; None: everybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is promised about one policy."""

    max_error: float
    """Error rate of answered requests."""
    delta: float = 0.05
    """Probability of a false alarm, ever."""
    by: tuple[str, ...] | None = None
    """Whose reports count; None: everybody's."""


class ClaimMonitor:
    """Watches the promises of one service. Threads may share it."""

    def __init__(
        self,
        outcomes: OutcomeLog,
        claims: Mapping[str, Claim],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[str, ErrorWatch], None] = lambda policy, watch: None,
    ) -> None:
        """
        Args:
            outcomes: what was reported.
            claims: by policy id (``record.policy_id``).
            clock: seconds, for how old the last look is.
            on_change: called with every watch after each look.
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
        """Whether the policy's claim is suspended, by outcomes that are ``REFRESH_S`` old at most while requests come.

        Never waits: a new look at the outcomes goes on in a thread of its own, and counts for later requests. A policy
        without a claim, and one whose outcomes were not looked at yet, is not suspended.
        """
        now = self._clock()
        if self.claims and (self._looked_at is None or not 0 <= now - self._looked_at < REFRESH_S):
            self._looked_at = now
            threading.Thread(target=self.look, name="raydebm-claims", daemon=True).start()
        return self._suspensions.get(policy, Suspension())

    def take_over(self, earlier: "ClaimMonitor | None") -> None:
        """Begin with what an earlier monitor knows of equal claims, so that a suspended one stays suspended though the
        outcomes cannot be read now. Blocks while that one looks at them."""
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
        """Promise and bet by policy id, as of the last look."""
        return {name: (claim, self._watches[name]) for name, claim in self.claims.items()}

    def reasons(self) -> list[str]:
        """Why claims are suspended, in words; empty while none is."""
        suspensions = ((name, each.reason) for name, each in self._suspensions.items() if each.suspended)
        return [f"the promise of policy {name} is suspended: {reason}" for name, reason in suspensions]

    def refresh(self) -> None:
        """Look at the outcomes now. Blocks.

        Raises:
            OSError: they cannot be read; what was known stays.
        """
        with self._refreshing:
            self._looked_at = self._clock()
            if not self.claims:
                return
            lines = self.outcomes.lines()
            for policy, claim in self.claims.items():
                self._advance(policy, bets_of(lines, policy, by=claim.by))

    def look(self) -> None:
        """``refresh``, where outcomes that cannot be read leave what was known, with a line in the log."""
        try:
            self.refresh()
        except UNREADABLE as error:
            log.warning("outcomes cannot be read, so that claims stay as they were: %s", error)

    def _advance(self, policy: str, kept: list[Bet]) -> None:
        """Resume where the last look ended; outcomes of which a report was replaced are bet on again."""
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
        """The bets of an earlier process, or of another replica; new ones where there are none for this promise."""
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
        """Another promise about a policy is another bet, and has a file of its own."""
        claim = self.claims[policy]
        return f"{content_id(policy, claim.max_error, claim.delta, claim.by)}.json"


def bets_of(lines: pa.Table, policy: str, *, by: tuple[str, ...] | None = None) -> list[Bet]:
    """Each problem that a policy answered and that was reported on, in the order of the first report; the last report
    about the same request counts. Equal requests get equal answers, so further ones are no further evidence.

    Args:
        lines: ``log.LINES`` in the order of arrival.
        policy: its id.
        by: whose reports count; None: everybody's.
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
