"""From records to response bodies. Pure; an infinite energy or penalty becomes null, because JSON has no infinity."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.policy import LIMITS, Policy
from raydebm.decision.rules import beliefs_about
from raydebm.decision.sampling.deadline import is_late
from raydebm.records import Candidate, Decision, Energies, Outcome, PassRecord, PassStop, ScoredCandidate, Violation
from raydebm.serving.asking import Ask
from raydebm.serving.choices import best_answers
from raydebm.serving.logs import redact
from raydebm.serving.parts import NO_ENERGY, Watch
from raydebm.serving.pass_schema import GeneratorBody, PassBody
from raydebm.serving.schema import (
    MAX_ANSWERS,
    AnswerBody,
    CandidateBody,
    GuaranteeBody,
    TriageResponse,
    Usage,
    ViolationBody,
)
from raydebm.serving.score_schema import ScoreItem
from raydebm.serving.spending import worst_of

NO_ANSWER = "no answer in the requested output format was found in the text"


def response_body(
    ask: Ask,
    outcome: Outcome,
    watch: Watch,
    elapsed_ms: float,
    versions: Mapping[str, str],
    *,
    suspended: str | None = None,
) -> TriageResponse:
    """The answer to a request; ``suspended`` says why its promise is not claimed at present, where it is not."""
    best, accepted = outcome.best, outcome.decision is Decision.ACCEPT
    report = None if best is None else best.report
    body = None if best is None else candidate_body(best, ask.policy.lambda_)
    costs = [candidate.cost_usd for candidate in watch.drawn if candidate.cost_usd is not None]
    return TriageResponse(
        request_id=ask.request_id,
        task=ask.problem.task,
        problem_id=ask.problem.problem_id,
        decision=final_decision(outcome.decision),
        reason=_reason(outcome),
        confidence=outcome.confidence,
        answers=[answer_body(belief) for belief in beliefs_about(outcome.pool, ask.policy, best)[:MAX_ANSWERS]],
        guarantee=guarantee_body(ask.policy, suspended),
        answer=report.answer if accepted and report is not None else None,
        text=outcome.answer,
        candidate=body,
        energy=None if body is None else body.energy,
        mu=None if body is None else body.mu,
        sigma=None if body is None else body.sigma,
        members=None if body is None else body.members,
        penalty=None if body is None else body.penalty,
        constraints={} if report is None else _by_constraint(report.violations),
        violations=[] if body is None else body.violations,
        num_passes=len(outcome.passes),
        passes=[pass_body(record) for record in outcome.passes],
        feedback=[record.feedback for record in outcome.passes if record.feedback is not None],
        generators=_generators(watch, outcome),
        usage=_usage(watch.drawn),
        cost_usd=math.fsum(costs) if costs else None,  # the same in whatever order they came
        cancelled_usd=_cancelled_usd(ask, watch),
        **stop_fields([record.stop for record in outcome.passes]),
        latency_ms=round(elapsed_ms, 3),
        stages_ms=watch.stages_ms,
        ceilings=watch.ceilings,
        policy=_settings(ask),
        seed=ask.seed,
        versions=dict(versions),
        ignored_messages=ask.ignored_messages,
        choices=None if ask.num_choices is None else best_answers(outcome, ask.policy, ask.num_choices),
        candidates=[candidate_body(scored, ask.policy.lambda_) for scored in outcome.pool]
        if ask.return_candidates
        else None,
    )


def _settings(ask: Ask) -> dict[str, Any]:
    """What counted: of a chat that was passed through, its limits alone."""
    settings = ask.policy.settings()
    return {name: settings[name] for name in LIMITS if name in settings} if ask.passthrough else settings


def answer_body(belief: Belief) -> AnswerBody:
    """One distinct answer with its evidence."""
    return AnswerBody(
        answer=belief.best.report.answer,
        probability=belief.probability,
        evidence=dict(belief.contributions),
        proof=belief.cluster.proof,
        num_candidates=len(belief.candidates),
        authors=sorted({scored.candidate.generator for scored in belief.candidates}),
        candidate_ids=[scored.candidate.candidate_id for scored in belief.candidates],
    )


def guarantee_body(policy: Policy, suspended: str | None) -> GuaranteeBody | None:
    """What the policy promises; None where it promises nothing."""
    if policy.guarantee is None:
        return None
    fields = {name: policy.guarantee[name] for name in ("max_error", "confidence", "certified", "problems")}
    reason = policy.guarantee.get("reason") if suspended is None else suspended
    return GuaranteeBody(
        **fields, suspended=suspended is not None, reason=reason, outcomes=policy.guarantee.get("outcomes")
    )


def _reason(outcome: Outcome) -> str:
    """With the likely cause, where no text has an answer because all of them were cut."""
    written = [scored.candidate for scored in outcome.pool if scored.candidate.text is not None]
    if outcome.best is not None or not written or any(found.finish_reason != "length" for found in written):
        return outcome.reason
    return f"{outcome.reason}; all {len(written)} texts were cut at max_tokens, so ask for more tokens"


def decision_facts(answer: TriageResponse) -> dict[str, Any]:
    """What a log line says about a decision: numbers and names, nothing of the problem or the answer."""
    facts = {
        "task",
        "problem_id",
        "decision",
        "num_passes",
        "energy",
        "sigma",
        "penalty",
        "cost_usd",
        "latency_ms",
        "confidence",
        "stop_reason",
        "num_cancelled",
        "tokens_saved",
    }
    return {
        **answer.model_dump(include=facts),
        "stages_ms": answer.stages_ms,
        "candidates": sum(found.asked for found in answer.generators),
        "failed": sum(found.failed for found in answer.generators),
        "late": sum(found.late for found in answer.generators),
        "over_budget": sum(found.over_budget for found in answer.generators),
        "policy": answer.versions.get("policy"),
    }


def final_decision(decision: Decision) -> Literal["accept", "abstain", "passthrough"]:
    """As answers and lists say it."""
    if decision is Decision.PASSTHROUGH:
        return "passthrough"
    return "accept" if decision is Decision.ACCEPT else "abstain"


def candidate_body(scored: ScoredCandidate, lambda_: float) -> CandidateBody:
    """A candidate for JSON: an infinite energy or penalty becomes null."""
    candidate, report, energies = scored.candidate, scored.report, scored.energies
    return CandidateBody(
        candidate_id=candidate.candidate_id,
        generator=candidate.generator,
        pass_index=candidate.pass_index,
        sample_index=candidate.sample_index,
        text=candidate.text,
        error=_why(scored),
        answer=report.answer,
        energy=_finite(scored.total_energy(lambda_)),
        mu=None if energies is None else energies.mu,
        sigma=None if energies is None else energies.sigma,
        members=None if energies is None else list(energies.members),
        penalty=_finite(report.penalty),
        violations=[_violation_body(violation) for violation in report.violations],
        num_tokens=None if energies is None else energies.num_tokens,
        num_truncated=None if energies is None else energies.num_truncated,
        completion_tokens=candidate.completion_tokens,
        finish_reason=candidate.finish_reason,
        cost_usd=candidate.cost_usd,
    )


def _why(scored: ScoredCandidate) -> str | None:
    if scored.candidate.error is not None:
        return redact(scored.candidate.error)
    if scored.report.error is not None:
        return scored.report.error
    if not scored.report.parsed:
        return NO_ANSWER
    return NO_ENERGY if scored.energies is None else None


def checked_item(index: int, scored: ScoredCandidate, lambda_: float, *, confidence: float | None = None) -> ScoreItem:
    """A candidate that was checked and scored; ``confidence`` is the probability that its answer is right."""
    body = candidate_body(scored, lambda_)
    return ScoreItem(
        index=index,
        confidence=confidence,
        score=None if body.energy is None else -body.energy,
        energy=body.energy,
        mu=body.mu,
        sigma=body.sigma,
        members=body.members,
        num_tokens=body.num_tokens,
        num_truncated=body.num_truncated,
        answer=body.answer,
        penalty=body.penalty,
        violations=body.violations,
        error=body.error,
    )


def score_item(index: int, energies: Energies | None, *, error: str = NO_ENERGY) -> ScoreItem:
    """Without a task there is no constraint, so E = mu.

    Args:
        index: of the text in the request.
        energies: what the ensemble gave.
        error: why there are none, where there are none.
    """
    mu = None if energies is None else energies.mu
    return ScoreItem(
        index=index,
        score=None if mu is None else -mu,
        energy=mu,
        mu=mu,
        sigma=None if energies is None else energies.sigma,
        members=None if energies is None else list(energies.members),
        num_tokens=None if energies is None else energies.num_tokens,
        num_truncated=None if energies is None else energies.num_truncated,
        error=error if energies is None else None,
    )


def _violation_body(violation: Violation) -> ViolationBody:
    return ViolationBody(
        constraint=violation.constraint, penalty=violation.penalty, weight=violation.weight, message=violation.message
    )


def _by_constraint(violations: Iterable[Violation]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for violation in violations:
        totals[violation.constraint] = totals.get(violation.constraint, 0.0) + violation.weight * violation.penalty
    return totals


def pass_body(record: PassRecord) -> PassBody:
    return PassBody(
        pass_index=record.pass_index,
        num_requested=record.num_requested,
        num_failed=record.num_failed,
        selected=record.selected,
        signal=record.sigma,
        penalty=record.penalty,
        decision=str(record.decision),
        confidence=record.confidence,
        feedback=record.feedback,
        **stop_fields([record.stop]),
    )


def stop_fields(stops: Iterable[PassStop | None]) -> dict[str, Any]:
    """The fields of ``schema.StopFields`` of some passes together; nothing where none was sampled in waves."""
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


def _cancelled_usd(ask: Ask, watch: Watch) -> float | None:
    if not watch.cancelled:
        return None
    worst = worst_of(ask.bundle.generator_configs())
    return _finite(math.fsum(worst(request) for request in watch.cancelled))


def _generators(watch: Watch, outcome: Outcome) -> list[GeneratorBody]:
    """Every generator that was asked or would have been, in that order. Candidates of a pass that was lost count as
    failed."""
    asked = Counter(request.generator for request in watch.asked)
    over_budget = Counter(request.generator for request in watch.over_budget)
    cancelled = Counter(request.generator for request in watch.cancelled)
    pool = [scored.candidate for scored in outcome.pool]
    num_late = Counter(candidate.generator for candidate in pool if is_late(candidate))
    written = Counter(candidate.generator for candidate in pool if candidate.text is not None)
    errors: dict[str, str] = {}
    for candidate in [*watch.drawn, *pool]:
        if candidate.error is not None:
            errors.setdefault(candidate.generator, redact(candidate.error))
    return [
        GeneratorBody(
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


def _usage(candidates: Iterable[Candidate]) -> Usage:
    found = list(candidates)
    prompt = sum(candidate.prompt_tokens or 0 for candidate in found)
    completion = sum(candidate.completion_tokens or 0 for candidate in found)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
