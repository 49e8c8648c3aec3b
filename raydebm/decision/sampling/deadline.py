"""Time budget of one problem: end of sampling, time of the decision, and whether another pass fits.

Rules:

1. candidates are accepted during the first nine tenths of the time; the last tenth is for checking and scoring them;
2. a candidate that was not sampled, checked and scored in time fails with ``FailureKind.LATE``;
3. a further pass begins only if the time left is at least the duration of the longest pass so far.

Instants are on the running event loop's clock, so tests can use a loop with its own clock.
"""

import asyncio
from dataclasses import dataclass, replace

from raydebm.decision.sampling.checks import unchecked
from raydebm.records import Candidate, FailureKind, ScoredCandidate

JUDGING_SHARE = 0.1
"""Share of the time that is reserved for checking and scoring the last candidates."""


def now_s() -> float:
    """Time in seconds on the running event loop's clock."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Deadline of the decision about one problem."""

    total_ms: float
    at_s: float
    """Time on the event loop's clock at which the decision is due."""

    @classmethod
    def starting_now(cls, total_ms: float, *, spent_s: float = 0.0) -> "Deadline":
        """Start the time budget now.

        Args:
            total_ms: whole time budget.
            spent_s: part of the budget that has already passed.
        """
        return cls(total_ms=total_ms, at_s=now_s() + total_ms / 1000 - spent_s)

    @property
    def sample_until_s(self) -> float:
        """Time after which no candidate is accepted."""
        return self.at_s - JUDGING_SHARE * self.total_ms / 1000

    def left_s(self) -> float:
        """Seconds until the decision is due, at least 0."""
        return max(0.0, self.at_s - now_s())

    def refusal(self, longest_pass_s: float) -> str | None:
        """Reason why no further pass may begin. None if there is time for a pass as long as the longest so far."""
        left_s = self.left_s()
        if left_s > 0 and left_s >= longest_pass_s:
            return None
        return (
            f"{1000 * left_s:.0f} ms of the deadline of {self.total_ms:g} ms are left, and an earlier pass took "
            f"{1000 * longest_pass_s:.0f} ms"
        )

    def not_sampled(self) -> str:
        """Error of a candidate that its generator did not write in time."""
        until_ms = (1 - JUDGING_SHARE) * self.total_ms
        return f"it had not arrived after {until_ms:g} ms of the deadline of {self.total_ms:g} ms"

    def unjudged(self, candidate: Candidate) -> ScoredCandidate:
        """The candidate as failed, because it was written but not checked and scored in time."""
        error = f"it was not checked and scored by the deadline of {self.total_ms:g} ms"
        return ScoredCandidate(
            candidate=replace(candidate, text=None, error=error, failure=FailureKind.LATE),
            report=unchecked(candidate.candidate_id, f"no text to check: {error}"),
            energies=None,
        )


def is_late(candidate: Candidate) -> bool:
    """Whether the candidate failed for lack of time."""
    return candidate.failure is FailureKind.LATE
