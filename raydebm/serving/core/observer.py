"""Reports to a request's watchers what the triage loop does (``decision.sampling.one_pass.Observer``).

``source.Source`` reports passes and arrivals itself.
"""

from dataclasses import dataclass

from raydebm.decision.sampling.waves import Wave
from raydebm.records import PassRecord, ScoredCandidate
from raydebm.serving.core.activity import Activity
from raydebm.serving.core.events import CandidateScored, PassDecided, Started, WaveEnded
from raydebm.serving.core.request import RequestContext


@dataclass(frozen=True, slots=True)
class ProgressObserver:
    """The loop's observer for one request."""

    context: RequestContext
    activity: Activity

    def begun(self) -> None:
        """Work on the request begins."""
        self.activity.report(Started(self.context))

    def scored(self, scored: ScoredCandidate) -> None:
        """A candidate was checked and scored."""
        self.activity.judged.append(scored)
        self.activity.report(CandidateScored(self.context, scored))

    def waved(self, wave: Wave) -> None:
        """A wave ended."""
        self.activity.report(WaveEnded(wave))

    def decided(self, record: PassRecord, reason: str) -> None:
        """A pass led to a decision, for this reason."""
        self.activity.report(PassDecided(record, reason))
