"""A time budget for one problem: until when candidates are taken, when the decision is due, which pass still fits.

The rules:

1. candidates are taken during the first nine tenths of the time; the last tenth is for checking and scoring them;
2. what is not drawn, checked and scored by then is left out, as a candidate that failed as ``FailureKind.LATE``;
3. a further pass begins only while at least as much time is left as the longest pass before it took.

Instants are of the running event loop's clock, so that a loop with a clock of its own can test this.
"""

import asyncio
from dataclasses import dataclass, replace

from raydebm.decision.sampling.checks import unchecked
from raydebm.records import Candidate, FailureKind, ScoredCandidate

JUDGING_SHARE = 0.1
"""Share of the time that is kept for checking and scoring the last candidates."""


def now_s() -> float:
    """Seconds of the running event loop's clock."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When one problem must be decided."""

    total_ms: float
    at_s: float
    """Instant at which the decision is due."""

    @classmethod
    def starting_now(cls, total_ms: float, *, spent_s: float = 0.0) -> "Deadline":
        """Args:
        total_ms: the whole time.
        spent_s: how much of it has passed already.
        """
        return cls(total_ms=total_ms, at_s=now_s() + total_ms / 1000 - spent_s)

    @property
    def draw_until_s(self) -> float:
        """Instant after which no candidate is taken."""
        return self.at_s - JUDGING_SHARE * self.total_ms / 1000

    def left_s(self) -> float:
        """Seconds until the decision is due, >= 0."""
        return max(0.0, self.at_s - now_s())

    def refusal(self, longest_pass_s: float) -> str | None:
        """Why no further pass may begin; None while there is time for one that takes as long as the longest so far."""
        left_s = self.left_s()
        if left_s > 0 and left_s >= longest_pass_s:
            return None
        return (
            f"{1000 * left_s:.0f} ms of the deadline of {self.total_ms:g} ms are left, and a pass before it took "
            f"{1000 * longest_pass_s:.0f} ms"
        )

    def not_drawn(self) -> str:
        """The error of a candidate that its generator did not write in time."""
        until_ms = (1 - JUDGING_SHARE) * self.total_ms
        return f"it was not there after {until_ms:g} ms of the deadline of {self.total_ms:g} ms"

    def unjudged(self, candidate: Candidate) -> ScoredCandidate:
        """A candidate that was written, and not checked and scored in time: it counts as failed."""
        error = f"it was not checked and scored by the deadline of {self.total_ms:g} ms"
        return ScoredCandidate(
            candidate=replace(candidate, text=None, error=error, failure=FailureKind.LATE),
            report=unchecked(candidate.candidate_id, f"no text to check: {error}"),
            energies=None,
        )


def is_late(candidate: Candidate) -> bool:
    """Whether the candidate was left out because it took too long."""
    return candidate.failure is FailureKind.LATE
