"""What the service counts: ``ray.prometheus`` sends it on through Ray, tests keep it in lists.

Does not know: Ray, HTTP.
"""

from collections.abc import Sequence

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.records import Candidate
from raydebm.serving.core.result import TriageResult


class Meter:
    """Counts nothing."""

    def answered(self, *, route: str, status: int, seconds: float) -> None:
        """One HTTP request is over. ``route`` is the path's template, so that there are few of them."""

    def failed(self, *, task: str, status: int, code: str) -> None:
        """One triage led to no decision: of a request, or a stream, whose HTTP status is 200."""

    def load(self, *, num_waiting: int) -> None:
        """So many requests wait in this process."""

    def decided(self, result: TriageResult) -> None:
        """One decision was made."""

    def drawn(self, candidates: Sequence[Candidate]) -> None:
        """One request sampled these in all its passes, whether or not they led to a decision."""

    def reported(self, *, task: str, decision: str, correct: bool) -> None:
        """A client reported an outcome that is new, or another one than before."""

    def watched(self, policy: str, watch: ErrorWatch) -> None:
        """The promise about a policy was held against the outcomes."""
