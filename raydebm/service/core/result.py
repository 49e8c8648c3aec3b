"""Result of one request: the decision to store, and the source of its answer, metrics, span and log line.

Seven conditions void a guarantee for one decision, because it was made differently from those of calibration: a changed
policy (``Policy.changed``), sampling that differs from calibration's, earlier turns of a chat, a ceiling that can bind,
a limit of time or money that left candidates out, evidence that failed, other adapters. A different seed does not: any
seed samples from the same distribution.

Does not know: Ray, HTTP.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.deadline import is_late
from raydebm.records import Candidate, Outcome, PassStop, ScoredCandidate
from raydebm.service.core.activity import Activity
from raydebm.service.core.request import RequestContext
from raydebm.service.logs import redact
from raydebm.service.spending import worst_of
from raydebm.service.store.record import DecisionRecord, DecisionSummary, Final, final, new_record_id


def decision_record(
    context: RequestContext, outcome: Outcome, activity: Activity, *, elapsed_ms: float
) -> DecisionRecord:
    """The stored form of a decision. Refers to the outcome without copying; rows are built later, off the request
    path."""
    now = datetime.now(UTC)
    in_pool = {scored.candidate.candidate_id for scored in outcome.pool}
    return DecisionRecord(
        record_id=new_record_id(now),
        time=now,
        request_id=context.request_id,
        outcome=outcome,
        policy=decided_under(
            context,
            outcome,
            over_budget=bool(activity.over_budget),
            has_all_evidence=activity.has_all_evidence,
        ),
        seed=context.seed,
        scored_prompt=None if context.scored_prompt == context.problem.prompt else context.scored_prompt,
        request=_request(context),
        versions=context.versions,
        latency_ms=round(elapsed_ms, 3),
        stages_ms=dict(activity.stages_ms),
        lost=tuple(candidate for candidate in activity.drawn if candidate.candidate_id not in in_pool),
    )


def _request(context: RequestContext) -> dict[str, Any]:
    asked = {
        "generators": list(context.generators),
        "num_samples": context.num_samples,
        "sampling": context.sampling.model_dump(mode="json", exclude_none=True),
        "context": [dict(message) for message in context.earlier_turns],
        "response_format": context.response_format,
    }
    return {name: value for name, value in asked.items() if value not in (None, [], {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUse:
    """Requests to one generator, and those without a candidate by reason."""

    name: str
    asked: int
    failed: int
    """Requests without a usable text, including late ones."""
    late: int
    """Requests without a candidate, or with an unscored one, at ``deadline_ms``."""
    over_budget: int
    """Candidates not requested because each might have exceeded the rest of ``max_usd``."""
    cancelled: int
    """Requests cancelled in flight because the others settled the pass."""
    error: str | None
    """First error of the failed requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """One decided request."""

    context: RequestContext
    record: DecisionRecord
    summary: DecisionSummary
    activity: Activity
    is_stored: bool = False
    """True if the record goes to the store."""
    suspended: str | None = None
    """Reason why the policy's guarantee is suspended. Default: it is in force, or does not exist."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of the loop."""
        return self.record.outcome

    @property
    def beliefs(self) -> Sequence[Belief]:
        """Beliefs about the distinct answers, the selected one first; empty without a posterior or a selection."""
        return () if self.best is None else self.activity.beliefs

    @property
    def best(self) -> ScoredCandidate | None:
        """The selected candidate, also after an abstention."""
        return self.outcome.best

    @property
    def decision(self) -> Final:
        """The decision in the API's terms."""
        return final(self.outcome.decision)

    @property
    def reason(self) -> str:
        """Reason of the decision, with the likely cause if every text was cut before its answer."""
        outcome = self.outcome
        written = [scored.candidate for scored in outcome.pool if scored.candidate.text is not None]
        if outcome.best is not None or not written or any(each.finish_reason != "length" for each in written):
            return outcome.reason
        return f"{outcome.reason}; all {len(written)} texts were cut at max_tokens, so ask for more tokens"

    @property
    def answer(self) -> str | None:
        """The accepted answer in the task's canonical text; None after an abstention."""
        best = self.best
        return None if best is None or self.decision != "accept" else best.report.answer

    @property
    def cancelled_usd(self) -> float | None:
        """Upper bound on the cost of cancelled requests; None if there are none or a price is unknown."""
        if not self.activity.cancelled:
            return None
        worst = worst_of(self.context.bundle.generator_configs())
        return finite_or_none(math.fsum(worst(request) for request in self.activity.cancelled))

    @property
    def generators(self) -> list[GeneratorUse]:
        """Use of every configured generator, in order. Candidates of an interrupted pass count as failed."""
        activity = self.activity
        asked = Counter(request.generator for request in activity.asked)
        over_budget = Counter(request.generator for request in activity.over_budget)
        cancelled = Counter(request.generator for request in activity.cancelled)
        pool = [each.candidate for each in self.outcome.pool]
        num_late = Counter(candidate.generator for candidate in pool if is_late(candidate))
        written = Counter(candidate.generator for candidate in pool if candidate.text is not None)
        errors: dict[str, str] = {}
        for candidate in [*activity.drawn, *pool]:
            if candidate.error is not None:
                errors.setdefault(candidate.generator, redact(candidate.error))
        return [
            GeneratorUse(
                name=name,
                asked=asked[name],
                failed=asked[name] - cancelled[name] - written[name],
                late=num_late[name],
                over_budget=over_budget[name],
                cancelled=cancelled[name],
                error=errors.get(name),
            )
            for name in dict.fromkeys([*asked, *over_budget])
        ]


def finite_or_none(value: float) -> float | None:
    """The value, or None if it is infinite, which JSON cannot express."""
    return value if math.isfinite(value) else None


def stop_totals(stops: Iterable[PassStop | None]) -> dict[str, Any]:
    """Sum of the early stops of all passes and their savings; empty without waves."""
    known = [stop for stop in stops if stop is not None]
    if not known:
        return {}
    tokens = [stop.tokens_saved for stop in known if stop.tokens_saved is not None]
    num_planned = sum(stop.num_planned for stop in known)
    return {
        "stop_reason": known[-1].reason,
        "stop_words": known[-1].words,
        "num_planned": num_planned,
        "num_samples": sum(stop.num_samples for stop in known),
        "num_cancelled": sum(stop.num_cancelled for stop in known),
        "tokens_saved": sum(tokens) if tokens else None,
        "saved_frac": sum(stop.num_saved for stop in known) / num_planned if num_planned else 0.0,
    }


def decision_facts(result: TriageResult) -> dict[str, Any]:
    """Log facts of a decision: numbers and names, without the problem or the answer."""
    stops = stop_totals([each.stop for each in result.outcome.passes])
    uses = result.generators
    numbers = {"num_passes", "energy", "sigma", "penalty", "cost_usd", "latency_ms", "confidence"}
    return {
        **result.summary.model_dump(include={"task", "problem_id", "decision", *numbers}),
        **{name: stops.get(name) for name in ("stop_reason", "num_cancelled", "tokens_saved")},
        "stages_ms": result.activity.stages_ms,
        "candidates": sum(use.asked for use in uses),
        "failed": sum(use.failed for use in uses),
        "late": sum(use.late for use in uses),
        "over_budget": sum(use.over_budget for use in uses),
        "policy": result.record.versions.get("policy"),
    }


def decision_attributes(result: TriageResult) -> dict[str, Any]:
    """Attributes of the span ``triage``, without the problem or the answer."""
    facts = decision_facts(result)
    names = ("decision", "num_passes", "energy", "sigma", "penalty", "cost_usd", "policy")
    return {
        **{f"raydebm.{name}": facts[name] for name in names},
        "raydebm.num_candidates": facts["candidates"],
        "raydebm.num_failed": facts["failed"],
        "raydebm.checkpoint": result.record.versions.get("checkpoint"),
    }


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


def asked_otherwise(context: RequestContext) -> str | None:
    """The request's change to the sampling of pass 1, or None."""
    if context.earlier_turns:
        return "the generators saw earlier turns of the chat"
    changed = [
        *(["generators"] if context.generators != context.bundle.generators else []),
        *(["num_samples"] if context.num_samples is not None else []),
        *(["response_format"] if context.response_format is not None else []),
        *sorted(context.sampling.model_dump(exclude_none=True)),
    ]
    return f"the request changed {', '.join(changed)}" if changed else None


def decided_under(context: RequestContext, outcome: Outcome, *, over_budget: bool, has_all_evidence: bool) -> Policy:
    """The request's policy, with its guarantee void if it does not cover this decision.

    Args:
        context: the request.
        outcome: outcome of the loop.
        over_budget: a limit of money left candidates out.
        has_all_evidence: the baselines that are evidence worked, if there are any.
    """
    policy = context.policy
    if policy.guarantee is None or not policy.guarantee["certified"]:
        return policy
    reason = (
        asked_otherwise(context)
        or _served_otherwise(context)
        or _limited(outcome, over_budget=over_budget)
        or (None if has_all_evidence else "baselines that are evidence did not work")
    )
    return policy if reason is None else policy.without_promise(reason)


def _served_otherwise(context: RequestContext) -> str | None:
    """The operator's setting that differs from calibration, or None."""
    posterior, checkpoint = context.policy.posterior, context.bundle.versions["checkpoint"]
    if posterior is not None and posterior.checkpoint not in ("", checkpoint):
        return f"checkpoint {checkpoint} scores, and the policy was calibrated with {posterior.checkpoint}"
    calibrated = [config.name for config in context.bundle.recipe.generators]
    if absent := [name for name in calibrated if name not in context.generators]:
        return f"the service does not ask {', '.join(absent)}, which calibration did"
    return ceiling_on_candidates(context, calibrated=context.bundle.policies[context.problem.task])


def ceiling_on_candidates(context: RequestContext, *, calibrated: Policy) -> str | None:
    """The ceiling that allows fewer candidates than the calibration problems had, or None.

    Args:
        context: the request.
        calibrated: the calibrated policy, with its budget.
    """
    policy = context.policy
    if policy.budget is None or policy.budget == calibrated.budget:
        return None
    most = len(context.requests(1, None)) + (policy.max_passes - 1) * policy.num_regenerate
    if policy.budget >= most:
        return None
    return f"a ceiling of the service allows {policy.budget} candidates, and all passes may sample {most}"


def _limited(outcome: Outcome, *, over_budget: bool) -> str | None:
    """The limit that cut this decision's candidates, or None."""
    if over_budget:
        return "a limit of money left candidates out"
    if any(is_late(scored.candidate) for scored in outcome.pool):
        return "the deadline left candidates out"
    if any(record.pass_index > 1 and record.num_requested == 0 for record in outcome.passes):
        return "a limit kept a further pass from being sampled"
    return None
