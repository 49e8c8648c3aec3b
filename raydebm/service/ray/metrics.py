"""The service's Prometheus metrics, through ``ray.util.metrics``.

Ray exports them on every node's metrics port with the prefix ``ray_``, with or without its dashboard. Labels have few
values: tasks, generators, constraints, routes; never a problem, a key or a request.
"""

from collections.abc import Sequence
from typing import Literal

from ray.util.metrics import Counter, Gauge, Histogram

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.records import Candidate
from raydebm.service.core.triage import Meter, TriageResult

SECONDS: list[float] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
SIGMAS: list[float] = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5]


class RayMeter(Meter):
    """The meter of an ingress replica."""

    def __init__(self) -> None:
        self._requests = Counter("raydebm_requests", "HTTP requests", ("route", "status"))
        self._seconds = Histogram("raydebm_request_seconds", "Duration of HTTP requests", SECONDS, ("route",))
        self._waiting = Gauge("raydebm_requests_waiting", "Requests that wait in an ingress replica")
        self._decisions = Counter(
            "raydebm_decisions", "Decisions, by who wrote the answer", ("task", "decision", "generator")
        )
        self._failures = Counter("raydebm_failures", "Triages without a decision", ("task", "status", "code"))
        self._sigma = Histogram("raydebm_sigma", "Sigma of the selected candidate", SIGMAS, ("task",))
        self._candidates = Counter("raydebm_candidates", "Candidates sampled", ("generator", "outcome"))
        self._tokens = Counter("raydebm_tokens", "Tokens of candidates", ("generator", "kind"))
        self._cost = Counter("raydebm_cost_usd", "Cost of candidates in US dollars", ("generator",))
        self._outcomes = Counter("raydebm_outcomes", "Outcomes that were reported", ("task", "decision", "outcome"))
        self._suspended = Gauge("raydebm_claim_suspended", "1 while a promise is suspended, else 0", ("policy",))
        self._reloads = Counter("raydebm_reloads", "Changes of policy, adapters or limits", ("outcome",))

    def answered(self, *, route: str, status: int, seconds: float) -> None:
        self._requests.inc(1, {"route": route, "status": str(status)})
        self._seconds.observe(seconds, {"route": route})

    def failed(self, *, task: str, status: int, code: str) -> None:
        self._failures.inc(1, {"task": task, "status": str(status), "code": code})

    def load(self, *, num_waiting: int) -> None:
        self._waiting.set(num_waiting)

    def decided(self, result: TriageResult) -> None:
        made = result.summary
        self._decisions.inc(1, {"task": made.task, "decision": made.decision, "generator": made.generator or ""})
        if made.sigma is not None:
            self._sigma.observe(made.sigma, {"task": made.task})

    def drawn(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            outcome = "failed" if candidate.text is None else "written"
            self._candidates.inc(1, {"generator": candidate.generator, "outcome": outcome})
        for paid in candidates:
            self._count_cost(paid)

    def reported(self, *, task: str, decision: str, correct: bool) -> None:
        outcome = "right" if correct else "wrong"
        self._outcomes.inc(1, {"task": task, "decision": decision, "outcome": outcome})

    def watched(self, policy: str, watch: ErrorWatch) -> None:
        self._suspended.set(int(watch.alarmed), {"policy": policy})

    def reloaded(self, outcome: Literal["applied", "refused"]) -> None:
        """Count a change of the running service in this replica."""
        self._reloads.inc(1, {"outcome": outcome})

    def _count_cost(self, candidate: Candidate) -> None:
        name = {"generator": candidate.generator}
        for kind, count in (("prompt", candidate.prompt_tokens), ("completion", candidate.completion_tokens)):
            if count:
                self._tokens.inc(count, {**name, "kind": kind})
        if candidate.cost_usd:
            self._cost.inc(candidate.cost_usd, name)
