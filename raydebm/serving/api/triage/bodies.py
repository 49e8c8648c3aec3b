"""From records to response bodies. Pure; an infinite energy or penalty becomes null, because JSON has no infinity."""

from collections.abc import Iterable

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.policy import Policy
from raydebm.records import Candidate, PassRecord, ScoredCandidate, Violation
from raydebm.serving.api.schema.candidate_bodies import CandidateBody, Usage, ViolationBody
from raydebm.serving.api.schema.decision_bodies import (
    MAX_ANSWERS,
    AnswerBody,
    CeilingBody,
    GuaranteeBody,
    TriageResponse,
)
from raydebm.serving.api.schema.pass_bodies import GeneratorBody, PassBody
from raydebm.serving.api.triage.choices import best_answers
from raydebm.serving.core.faults import NO_ANSWER, NO_ENERGY
from raydebm.serving.core.request import RequestContext
from raydebm.serving.core.result import TriageResult, finite_or_none, stop_totals
from raydebm.serving.logs import redact


def triage_body(result: TriageResult) -> TriageResponse:
    """The full record of one decision, as ``/v1/triage`` answers it."""
    context, outcome = result.context, result.outcome
    best, policy = outcome.best, context.policy
    body = None if best is None else candidate_body(best, policy.lambda_)
    return TriageResponse(
        request_id=context.request_id,
        record_id=result.record.record_id if result.is_stored else None,
        task=result.task,
        problem_id=context.problem.problem_id,
        decision=result.decision,
        reason=result.reason,
        confidence=outcome.confidence,
        answers=[answer_body(belief) for belief in result.beliefs[:MAX_ANSWERS]],
        guarantee=guarantee_body(result.record.policy, result.suspended),
        answer=result.answer,
        text=result.text,
        candidate=body,
        energy=result.energy,
        mu=None if body is None else body.mu,
        sigma=result.sigma,
        members=None if body is None else body.members,
        penalty=result.penalty,
        constraints=_by_constraint(result.violations),
        violations=[] if body is None else body.violations,
        checks=_checks(context, best),
        num_passes=result.num_passes,
        passes=[pass_body(record) for record in outcome.passes],
        feedback=[record.feedback for record in outcome.passes if record.feedback is not None],
        generators=[GeneratorBody.model_validate(use, from_attributes=True) for use in result.generators],
        usage=_usage(result.activity.drawn),
        cost_usd=result.cost_usd,
        cancelled_usd=result.cancelled_usd,
        **stop_totals([record.stop for record in outcome.passes]),
        latency_ms=result.latency_ms,
        stages_ms=dict(result.stages_ms),
        ceilings=[CeilingBody.model_validate(ceiling) for ceiling in result.activity.ceilings],
        policy=context.policy.settings(),
        seed=context.seed,
        versions=dict(result.record.versions),
        ignored_messages=context.ignored_messages,
        choices=None if context.num_choices is None else best_answers(result, context.num_choices),
        candidates=[candidate_body(scored, policy.lambda_) for scored in outcome.pool]
        if context.return_candidates
        else None,
    )


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
        energy=finite_or_none(scored.total_energy(lambda_)),
        mu=None if energies is None else energies.mu,
        sigma=None if energies is None else energies.sigma,
        members=None if energies is None else list(energies.members),
        penalty=finite_or_none(report.penalty),
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


def _violation_body(violation: Violation) -> ViolationBody:
    return ViolationBody(
        constraint=violation.constraint, penalty=violation.penalty, weight=violation.weight, message=violation.message
    )


def _checks(context: RequestContext, best: ScoredCandidate | None) -> list[str]:
    if best is None or not best.report.parsed or best.report.error is not None:
        return []
    return [constraint.name for constraint in context.task.constraints]


def _by_constraint(violations: Iterable[Violation]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for violation in violations:
        totals[violation.constraint] = totals.get(violation.constraint, 0.0) + violation.weight * violation.penalty
    return totals


def pass_body(record: PassRecord) -> PassBody:
    """One pass of a decision."""
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
        **stop_totals([record.stop]),
    )


def _usage(candidates: Iterable[Candidate]) -> Usage:
    candidates = list(candidates)
    prompt = sum(candidate.prompt_tokens or 0 for candidate in candidates)
    completion = sum(candidate.completion_tokens or 0 for candidate in candidates)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
