"""The service's Prometheus metrics, through ``ray.util.metrics``.

Ray exports them on every node's metrics port with the prefix ``ray_``, with or without its dashboard. Labels have few
values: tasks, generators, constraints, routes; never a problem, a key or a request.
"""

import math
from collections.abc import Sequence
from typing import Literal

from ray.util.metrics import Counter, Gauge, Histogram

from raydebm.decision.guarantee.drift import DriftState
from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.records import Candidate, PassStop
from raydebm.serving.core.result import TriageResult

SECONDS: list[float] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
ENERGY_OFFSET = 100.0
"""Ray's histograms take positive edges only, and energies are often negative; dashboards subtract it again."""
ENERGIES: list[float] = [ENERGY_OFFSET + edge for edge in (-20, -10, -5, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 5, 10, 20)]
SIGMAS: list[float] = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5]
SIZES: list[float] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


class RayMeter:
    """meter.Meter for an ingress replica."""

    def __init__(self) -> None:
        self._requests = Counter("raydebm_requests", "HTTP requests", ("route", "status"))
        self._failures = Counter("raydebm_failures", "Triages without a decision", ("task", "status", "code"))
        self._seconds = Histogram("raydebm_request_seconds", "Duration of HTTP requests", SECONDS, ("route",))
        self._running = Gauge("raydebm_requests_running", "Requests that an ingress replica works on")
        self._waiting = Gauge("raydebm_requests_waiting", "Requests that wait in an ingress replica")
        self._decisions = Counter("raydebm_decisions", "Decisions", ("task", "decision", "passes"))
        self._stages = Histogram("raydebm_stage_seconds", "Time per stage and request", SECONDS, ("task", "stage"))
        self._energy = Histogram(
            "raydebm_energy_plus_100", "Energy of the selected candidate + 100", ENERGIES, ("task",)
        )
        self._sigma = Histogram("raydebm_sigma", "Sigma of the selected candidate", SIGMAS, ("task",))
        self._violations = Counter("raydebm_violations", "Violations of selected candidates", ("task", "constraint"))
        self._candidates = Counter("raydebm_candidates", "Candidates drawn", ("generator", "outcome"))
        self._tokens = Counter("raydebm_tokens", "Tokens of candidates", ("generator", "kind"))
        self._saved = Counter(
            "raydebm_saved_samples", "Samples that waves left out, never asked for", ("task", "reason")
        )
        self._saved_tokens = Counter(
            "raydebm_saved_tokens", "Tokens of samples that waves left out, estimated", ("task", "reason")
        )
        self._cost = Counter("raydebm_cost_usd", "Cost of candidates in US dollars", ("generator",))
        self._outcomes = Counter("raydebm_outcomes", "Outcomes that were reported", ("task", "decision", "outcome"))
        self._suspended = Gauge("raydebm_claim_suspended", "1 while a promise is suspended, else 0", ("policy",))
        self._evidence = Gauge("raydebm_claim_evidence", "log10 of the bet against a promise", ("policy",))
        compared = ("task", "generator", "figure")
        self._drift = Gauge(
            "raydebm_generator_drift", "1 after an alarm that a generator has changed, else 0", compared
        )
        self._drift_evidence = Gauge(
            "raydebm_generator_drift_evidence", "log10 of the bet that a generator has changed", compared
        )
        self._reloads = Counter("raydebm_reloads", "Changes of policy, adapters or limits", ("outcome",))

    def answered(self, *, route: str, status: int, seconds: float) -> None:
        """See ``Meter``."""
        self._requests.inc(1, {"route": route, "status": str(status)})
        self._seconds.observe(seconds, {"route": route})

    def failed(self, *, task: str, status: int, code: str) -> None:
        """See ``Meter``."""
        self._failures.inc(1, {"task": task, "status": str(status), "code": code})

    def load(self, *, num_running: int, num_waiting: int) -> None:
        """See ``Meter``."""
        self._running.set(num_running)
        self._waiting.set(num_waiting)

    def decided(self, result: TriageResult) -> None:
        """See ``Meter``."""
        task = {"task": result.task}
        self._decisions.inc(1, {**task, "decision": result.decision, "passes": str(result.num_passes)})
        for stage, elapsed_ms in result.stages_ms.items():
            self._stages.observe(elapsed_ms / 1000, {**task, "stage": stage})
        if result.energy is not None:
            self._energy.observe(result.energy + ENERGY_OFFSET, task)
        if result.sigma is not None:
            self._sigma.observe(result.sigma, task)
        for record in result.passes:
            if record.stop is not None:
                self._stopped(result.task, record.stop)
        for violation in result.violations:
            self._violations.inc(1, {**task, "constraint": violation.constraint})

    def _stopped(self, task: str, stop: PassStop) -> None:
        labels = {"task": task, "reason": stop.reason or ""}
        if stop.num_saved:
            self._saved.inc(stop.num_saved, labels)
        if stop.tokens_saved:
            self._saved_tokens.inc(stop.tokens_saved, labels)

    def drawn(self, candidates: Sequence[Candidate]) -> None:
        """See ``Meter``."""
        for candidate in candidates:
            outcome = "failed" if candidate.text is None else "written"
            self._candidates.inc(1, {"generator": candidate.generator, "outcome": outcome})
        for paid in candidates:
            self._count_cost(paid)

    def reported(self, *, task: str, decision: str, correct: bool) -> None:
        """See ``Meter``."""
        outcome = "right" if correct else "wrong"
        self._outcomes.inc(1, {"task": task, "decision": decision, "outcome": outcome})

    def watched(self, policy: str, watch: ErrorWatch) -> None:
        """See ``Meter``."""
        self._suspended.set(int(watch.alarmed), {"policy": policy})
        self._evidence.set(watch.log_wealth / math.log(10), {"policy": policy})

    def compared(self, task: str, states: Sequence[DriftState]) -> None:
        """See ``Meter``."""
        for state in states:
            labels = {"task": task, "generator": state.generator, "figure": state.figure}
            self._drift.set(int(state.alarmed_at is not None), labels)
            self._drift_evidence.set(state.evidence, labels)

    def reloaded(self, outcome: Literal["applied", "refused"]) -> None:
        """A change of the running service, in this replica."""
        self._reloads.inc(1, {"outcome": outcome})

    def _count_cost(self, candidate: Candidate) -> None:
        name = {"generator": candidate.generator}
        for kind, count in (("prompt", candidate.prompt_tokens), ("completion", candidate.completion_tokens)):
            if count:
                self._tokens.inc(count, {**name, "kind": kind})
        if candidate.cost_usd:
            self._cost.inc(candidate.cost_usd, name)


class BatchMeter:
    """For a scorer replica: how well requests share passes of the ensemble."""

    def __init__(self) -> None:
        self._requests = Histogram("raydebm_batch_requests", "Requests scored in one batch", SIZES)
        self._texts = Histogram("raydebm_batch_texts", "Texts scored in one batch", SIZES)
        self._seconds = Histogram("raydebm_batch_seconds", "Time to score one batch", SECONDS)
        self._lookups = Counter("raydebm_energy_cache", "Texts looked up in the cache of energies", ("outcome",))

    def scored(self, *, num_requests: int, num_texts: int, seconds: float) -> None:
        """One batch is done."""
        self._requests.observe(num_requests)
        self._texts.observe(num_texts)
        self._seconds.observe(seconds)

    def looked_up(self, *, num_hits: int, num_misses: int) -> None:
        """Texts of one call whose energies were known, and those that are to be scored."""
        for outcome, count in (("hit", num_hits), ("miss", num_misses)):
            if count:
                self._lookups.inc(count, {"outcome": outcome})
