"""Metrics of the service. ``ray.prometheus`` exports them through Ray, tests keep them in lists.

Does not know: Ray, HTTP.
"""

from collections.abc import Sequence

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.records import Candidate
from raydebm.serving.core.result import TriageResult


class Meter:
    """Base class that counts nothing."""

    def answered(self, *, route: str, status: int, seconds: float) -> None:
        """One HTTP request ended. ``route`` is the path's template, to bound the number of labels."""

    def failed(self, *, task: str, status: int, code: str) -> None:
        """One triage failed. The HTTP status of a batch item or stream may still be 200."""

    def load(self, *, num_waiting: int) -> None:
        """Number of requests waiting in this process."""

    def decided(self, result: TriageResult) -> None:
        """One decision was made."""

    def drawn(self, candidates: Sequence[Candidate]) -> None:
        """Candidates of one request over all its passes, with or without a decision."""

    def reported(self, *, task: str, decision: str, correct: bool) -> None:
        """A client reported an outcome for the first time, or changed it."""

    def watched(self, policy: str, watch: ErrorWatch) -> None:
        """A policy's guarantee was compared with the outcomes."""
