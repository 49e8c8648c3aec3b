"""What an ingress replica saw in the last hour, kept in its memory: for a page that shows the service at work.

Counts stand in bins of ten seconds and histograms are sparse, so that those of several replicas can be added up.
Prometheus (``ray.prometheus``) is for keeping and alarms; this needs neither it nor any file.

Does not know: Ray, HTTP. Belongs to one event loop.
"""

import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from raydebm.decision.guarantee.drift import DriftState
from raydebm.decision.guarantee.drift_monitor import DriftMonitor
from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.records import Candidate
from raydebm.serving.api.schema.live_bodies import (
    BIN_S,
    Bars,
    DriftFigures,
    GeneratorFigures,
    LiveBin,
    LiveFigures,
    RouteFigures,
    StageFigures,
    WriterFigures,
)
from raydebm.serving.core.meter import Meter, NoMeter
from raydebm.serving.core.result import TriageResult
from raydebm.serving.pages.routes import PAGES

NUM_BINS = 360
LIVE_ROUTE = "/v1/live"
UNWATCHED = frozenset({LIVE_ROUTE, "/static/{name}", *PAGES})
"""Watching must not change what is watched."""
BARS_PER_DECADE = 20
"""Durations are counted in bars that are 12 % wide."""
SIGMA_WIDTH, ENERGY_WIDTH = 0.02, 0.1
MOST_BARS = 2000
"""Values further out are counted in the last bar on their side."""


@dataclass(slots=True)
class _Bin:
    """What happened in ten seconds."""

    at: int
    running: int = 0
    waiting: int = 0
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(route, status)."""
    durations: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(route, bar)."""
    stages: Counter[tuple[str, int]] = field(default_factory=Counter)
    sigmas: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(decision, bar)."""
    energies: Counter[tuple[str, int]] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    passes: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    generators: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(generator, written | failed | prompt | completion)."""
    costs: dict[str, float] = field(default_factory=dict)
    """US dollars by generator."""


class LiveMeter:
    """A meter that remembers, and hands everything on to another one."""

    def __init__(self, to: Meter | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            to: gets every call too.
            clock: seconds since 1970.
        """
        self._to, self._clock = to or NoMeter(), clock
        self._bins: deque[_Bin] = deque(maxlen=NUM_BINS)
        self._replica = uuid.uuid4().hex[:8]
        self._started = clock()
        self._running = self._waiting = 0

    def answered(self, *, route: str, status: int, seconds: float) -> None:
        """See ``Meter``; routes that watch are left out here."""
        self._to.answered(route=route, status=status, seconds=seconds)
        if route not in UNWATCHED:
            bin_ = self._bin()
            bin_.requests[route, status] += 1
            bin_.durations[route, duration_bar(1000 * seconds)] += 1

    def failed(self, *, task: str, status: int, code: str) -> None:
        """See ``Meter``."""
        self._to.failed(task=task, status=status, code=code)
        self._bin().undecided += status >= 500

    def load(self, *, num_running: int, num_waiting: int) -> None:
        """See ``Meter``."""
        self._to.load(num_running=num_running, num_waiting=num_waiting)
        self._running, self._waiting = num_running, num_waiting
        bin_ = self._bin()
        bin_.running, bin_.waiting = max(bin_.running, num_running), max(bin_.waiting, num_waiting)

    def decided(self, result: TriageResult) -> None:
        """See ``Meter``."""
        self._to.decided(result)
        bin_, decision = self._bin(), result.decision
        bin_.decisions[decision] += 1
        bin_.passes[str(result.num_passes)] += 1
        for stage, elapsed_ms in {**result.stages_ms, "total": result.latency_ms}.items():
            bin_.stages[stage, duration_bar(elapsed_ms)] += 1
        if result.sigma is not None:
            bin_.sigmas[decision, even_bar(result.sigma, SIGMA_WIDTH)] += 1
        if result.energy is not None:
            bin_.energies[decision, even_bar(result.energy, ENERGY_WIDTH)] += 1
        bin_.violations.update(violation.constraint for violation in result.violations)

    def drawn(self, candidates: Sequence[Candidate]) -> None:
        """See ``Meter``."""
        self._to.drawn(candidates)
        bin_ = self._bin()
        for candidate in candidates:
            bin_.generators[candidate.generator, "failed" if candidate.text is None else "written"] += 1
        for paid in candidates:
            _count_cost(bin_, paid)

    def reported(self, *, task: str, decision: str, correct: bool) -> None:
        """See ``Meter``; nothing of it is kept here."""
        self._to.reported(task=task, decision=decision, correct=correct)

    def watched(self, policy: str, watch: ErrorWatch) -> None:
        """See ``Meter``; nothing of it is kept here."""
        self._to.watched(policy, watch)

    def compared(self, task: str, states: Sequence[DriftState]) -> None:
        """See ``Meter``; nothing of it is kept here, for the monitors have it."""
        self._to.compared(task, states)

    def figures(
        self,
        window_s: int,
        *,
        writer: WriterFigures | None = None,
        monitors: Mapping[str, DriftMonitor] = MappingProxyType({}),
    ) -> LiveFigures:
        """
        Args:
            window_s: at most an hour; whole bins.
            writer: goes along.
            monitors: by task, what compares generators with their calibration.
        """
        now = self._clock()
        bins = [bin_ for bin_ in self._bins if bin_.at > now - window_s - BIN_S]
        return LiveFigures(
            replica=self._replica,
            started=datetime.fromtimestamp(self._started, UTC),
            now=datetime.fromtimestamp(now, UTC),
            window_s=window_s,
            running=self._running,
            waiting=self._waiting,
            bins=[_live_bin(bin_) for bin_ in bins],
            routes=_routes(bins),
            stages=_stages(bins),
            sigma_accept=_of_decision(bins, "sigmas", "accept", SIGMA_WIDTH),
            sigma_abstain=_of_decision(bins, "sigmas", "abstain", SIGMA_WIDTH),
            energy_accept=_of_decision(bins, "energies", "accept", ENERGY_WIDTH),
            energy_abstain=_of_decision(bins, "energies", "abstain", ENERGY_WIDTH),
            passes=dict(sorted(_sum(bin_.passes for bin_ in bins).items())),
            violations=dict(_sum(bin_.violations for bin_ in bins).most_common()),
            generators=_generators(bins),
            drift=_drift(monitors),
            writer=writer,
        )

    def _bin(self) -> _Bin:
        at = int(self._clock()) // BIN_S * BIN_S
        if not self._bins or self._bins[-1].at < at:
            self._bins.append(_Bin(at))
        return self._bins[-1]  # also when the clock was set back: time goes on from the newest bin


def _drift(monitors: Mapping[str, DriftMonitor]) -> list[DriftFigures]:
    """The strongest evidence first, of all tasks."""
    figures = [
        DriftFigures(task=task, **asdict(state)) for task, monitor in monitors.items() for state in monitor.states()
    ]
    return sorted(figures, key=lambda each: -each.evidence)


def duration_bar(milliseconds: float) -> int:
    """Bar 0 holds 1 to 1.12 ms; below a microsecond all are the same."""
    return math.floor(BARS_PER_DECADE * math.log10(max(milliseconds, 1e-3)))


def even_bar(value: float, width: float) -> int:
    """The bar of a value among bars of one width; far values share the last bar on their side."""
    return max(-MOST_BARS, min(MOST_BARS, math.floor(value / width)))


def percentile_ms(counts: Mapping[int, int], share: float) -> float | None:
    """The geometric middle of the bar that the value lies in; None without values."""
    wanted, seen = share * sum(counts.values()), 0
    for bar, count in sorted(counts.items()):
        seen += count
        if seen >= wanted:
            return round(10 ** ((bar + 0.5) / BARS_PER_DECADE), 3)
    return None


def _count_cost(bin_: _Bin, candidate: Candidate) -> None:
    name = candidate.generator
    bin_.generators[name, "prompt"] += candidate.prompt_tokens or 0
    bin_.generators[name, "completion"] += candidate.completion_tokens or 0
    bin_.costs[name] = bin_.costs.get(name, 0.0) + (candidate.cost_usd or 0.0)


def _live_bin(bin_: _Bin) -> LiveBin:
    def answers(first: int, last: int) -> int:
        return sum(count for (_, status), count in bin_.requests.items() if first <= status <= last)

    def tokens(kind: str) -> int:
        return sum(count for (_, what), count in bin_.generators.items() if what == kind)

    return LiveBin(
        at=bin_.at,
        requests=bin_.requests.total(),
        server_errors=answers(500, 599),
        refused=answers(400, 498),
        undecided=bin_.undecided,
        accepted=bin_.decisions["accept"],
        abstained=bin_.decisions["abstain"],
        prompt_tokens=tokens("prompt"),
        completion_tokens=tokens("completion"),
        cost_usd=math.fsum(bin_.costs.values()),
        running=bin_.running,
        waiting=bin_.waiting,
    )


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _by_name(counters: Iterable[Counter[tuple[str, int]]]) -> dict[str, dict[int, int]]:
    """(name, bar) -> count, as one histogram per name."""
    histograms: dict[str, dict[int, int]] = {}
    for (name, bar), count in sorted(_sum(counters).items()):
        histograms.setdefault(name, {})[bar] = count
    return histograms


def _routes(bins: Sequence[_Bin]) -> list[RouteFigures]:
    statuses: dict[str, dict[str, int]] = {}
    for (route, status), count in sorted(_sum(bin_.requests for bin_ in bins).items()):
        statuses.setdefault(route, {})[str(status)] = count
    return [
        RouteFigures(
            route=route,
            statuses=statuses[route],
            milliseconds=Bars(width=None, counts=counts),
            p50_ms=percentile_ms(counts, 0.5),
            p95_ms=percentile_ms(counts, 0.95),
        )
        for route, counts in _by_name(bin_.durations for bin_ in bins).items()
    ]


def _stages(bins: Sequence[_Bin]) -> list[StageFigures]:
    return [
        StageFigures(
            stage=stage,
            requests=sum(counts.values()),
            milliseconds=Bars(width=None, counts=counts),
            p50_ms=percentile_ms(counts, 0.5),
            p95_ms=percentile_ms(counts, 0.95),
        )
        for stage, counts in _by_name(bin_.stages for bin_ in bins).items()
    ]


def _of_decision(bins: Sequence[_Bin], what: str, decision: str, width: float) -> Bars:
    counts = _by_name(getattr(bin_, what) for bin_ in bins)
    return Bars(width=width, counts=counts.get(decision, {}))


def _generators(bins: Sequence[_Bin]) -> list[GeneratorFigures]:
    counts = _sum(bin_.generators for bin_ in bins)
    return [
        GeneratorFigures(
            generator=name,
            written=counts[name, "written"],
            failed=counts[name, "failed"],
            prompt_tokens=counts[name, "prompt"],
            completion_tokens=counts[name, "completion"],
            cost_usd=math.fsum(bin_.costs.get(name, 0.0) for bin_ in bins),
        )
        for name in sorted({name for name, _ in counts})
    ]
