"""What a request reports of itself while it runs, as records; ``docs/service.md`` lists what clients see of them.

Does not know: how events travel, and in which form.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raydebm.decision.sampling.waves import Wave
from raydebm.records import Candidate, PassRecord, ScoredCandidate
from raydebm.serving.core.request import RequestContext
from raydebm.serving.spending.affordability import Affordable


@dataclass(frozen=True, slots=True)
class Started:
    """Work on the request begins."""

    context: RequestContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlanned:
    """Candidates are about to be asked for."""

    pass_index: int
    feedback: str | None
    """What generators are told about the pass before."""
    plan: Affordable


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateArrived:
    """One candidate came, or failed."""

    context: RequestContext
    candidate: Candidate
    done: int
    """Candidates of the pass that have come, this one included."""
    total: int


@dataclass(frozen=True, slots=True)
class CandidateScored:
    """One candidate was checked and scored."""

    context: RequestContext
    scored: ScoredCandidate


@dataclass(frozen=True, slots=True)
class WaveEnded:
    """A wave of a pass is there, and sampling goes on or ends."""

    wave: Wave


@dataclass(frozen=True, slots=True)
class PassDecided:
    """A pass led to a decision."""

    record: PassRecord
    reason: str


Event = Started | PassPlanned | CandidateArrived | CandidateScored | WaveEnded | PassDecided
Progress = Callable[[Event], None]
