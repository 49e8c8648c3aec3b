"""Activity of one request: its generation requests, its candidates, and the time of each kind of call."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from raydebm import tracing
from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.sampling.waves import Wave
from raydebm.records import Candidate, GenerationRequest, PassRecord, ScoredCandidate
from raydebm.service.core.request import RequestContext
from raydebm.service.spending import Affordable, CeilingStatus


@dataclass(frozen=True, slots=True)
class Started:
    """Work on the request begins."""

    context: RequestContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlanned:
    """A pass is about to request its candidates."""

    pass_index: int
    feedback: str | None
    """Feedback on the previous pass for the generators."""
    plan: Affordable


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateArrived:
    """One candidate arrived or failed."""

    context: RequestContext
    candidate: Candidate
    done: int
    """Number of candidates of the pass that have arrived, this one included."""
    total: int


@dataclass(frozen=True, slots=True)
class CandidateScored:
    """One candidate was checked and scored."""

    context: RequestContext
    scored: ScoredCandidate


@dataclass(frozen=True, slots=True)
class WaveEnded:
    """A wave is complete, and sampling goes on or ends."""

    wave: Wave


@dataclass(frozen=True, slots=True)
class PassDecided:
    """A pass led to a decision."""

    record: PassRecord
    reason: str


Event = Started | PassPlanned | CandidateArrived | CandidateScored | WaveEnded | PassDecided
Progress = Callable[[Event], None]


@dataclass(slots=True)
class Activity:
    """Activity of one request, for its answer and its progress events."""

    on_progress: Progress | None
    asked: list[GenerationRequest] = field(default_factory=list)
    cancelled: list[GenerationRequest] = field(default_factory=list)
    """Candidates cancelled in flight because the others settled the pass. They may have been billed."""
    over_budget: list[GenerationRequest] = field(default_factory=list)
    """Candidates not requested because ``max_usd`` might not have covered them."""
    drawn: list[Candidate] = field(default_factory=list)
    """All candidates in order of arrival, including those of an interrupted pass."""
    has_all_evidence: bool = True
    """False if the baselines that are evidence failed."""
    judged: list[ScoredCandidate] = field(default_factory=list)
    """Candidates with an answer that were checked and scored."""
    beliefs: Sequence[Belief] = ()
    """Beliefs about the answers of all passes so far, the selected one first; empty without a posterior."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    ceilings: list[CeilingStatus] = field(default_factory=list)
    """Remainder of the daily ceilings after the last pass."""

    @property
    def is_paid(self) -> bool:
        """True if any candidate or reply was billed."""
        return any(reply.cost_usd or reply.prompt_tokens or reply.completion_tokens for reply in self.drawn)

    def report(self, event: Event) -> None:
        """Send an event to the request's watcher, if it has one."""
        if self.on_progress is not None:
            self.on_progress(event)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the block's time to its stage, with a span."""
        started = time.perf_counter()
        try:
            with tracing.span(stage):
                yield
        finally:
            elapsed = 1000 * (time.perf_counter() - started)
            self.stages_ms[stage] = round(self.stages_ms.get(stage, 0.0) + elapsed, 3)


@dataclass(frozen=True, slots=True)
class ProgressObserver:
    """Report the triage loop's progress to a request's watchers (``decision.sampling.one_pass.Observer``).

    Passes and arrivals are reported by ``source.Source``.
    """

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

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        """A pass led to a decision."""
        self.activity.beliefs = beliefs
        self.activity.report(PassDecided(record, reason))
