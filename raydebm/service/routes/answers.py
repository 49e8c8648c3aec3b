"""Response bodies about decisions, also in OpenAI's shapes, and their construction from records.

An infinite energy or penalty becomes null, because JSON has no infinity. Energies: lower is better.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.reference import PLAIN
from raydebm.decision.evidence.terms import PoolTable, representatives
from raydebm.decision.policy import Policy
from raydebm.records import Candidate, Energies, Outcome, PassRecord, ScoredCandidate, Violation
from raydebm.service.core.parts import NO_ANSWER, NO_ENERGY
from raydebm.service.core.result import GeneratorUse, TriageResult, finite_or_none, stop_totals
from raydebm.service.logs import redact
from raydebm.service.spending import CeilingStatus

MAX_ANSWERS = 16
"""Maximum number of distinct answers with evidence in a response."""


class ErrorDetail(BaseModel):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str
    """Short, stable code for programs to test."""
    param: str | None
    """Name of the wrong field or header."""


class ErrorBody(BaseModel):
    """Error in OpenAI's format."""

    error: ErrorDetail


class Usage(BaseModel):
    """Token counts, summed over all candidates of all passes. Generators that report no usage count as 0."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class CandidateBody(BaseModel):
    """One candidate at the time of the decision."""

    candidate_id: str
    generator: str
    pass_index: int
    sample_index: int
    text: str | None
    error: str | None
    """Reason for a missing text, answer or energy."""
    answer: str | None
    """The parsed answer in canonical text."""
    energy: float | None
    """E = mu + lambda * E_constraint; null when it did not parse or could not be scored (E = infinity)."""
    mu: float | None
    sigma: float | None
    """Population standard deviation over the adapters (ddof=0)."""
    members: list[float] | None
    """One energy per adapter."""
    penalty: float | None
    """E_constraint; null when it did not parse."""
    violations: list[Violation]
    num_tokens: int | None
    num_truncated: int | None
    """Problem tokens that did not fit the scorer's context."""
    completion_tokens: int | None
    finish_reason: str | None
    """Reason why the generator stopped, if it reports one; ``length``: the text was cut at ``max_tokens``."""
    cost_usd: float | None


class StopFields(BaseModel):
    """End of sampling in waves, with its savings; all null if a pass is sampled at once."""

    stop_reason: Literal["accept", "abstain", "budget"] | None = None
    """accept: the answer is settled; abstain: no answer will become certain enough; cost: further samples are not worth
    their cost; budget: the pass, the deadline and the generators allowed no more samples."""
    stop_words: str | None = None
    """The reason as a sentence with numbers."""
    num_planned: int | None = None
    """Number of samples planned for the pass."""
    num_samples: int | None = None
    """Number of samples taken, including failed ones."""
    num_cancelled: int | None = None
    """Number of requests cancelled in flight. They may have a cost, and do not count as saved."""
    tokens_saved: int | None = None
    """Number of samples never requested, times the mean tokens of those taken; null if no generator reports tokens."""
    saved_frac: float | None = None
    """Share of the planned samples that were never requested."""


class PassBody(StopFields):
    pass_index: int
    num_requested: int
    num_failed: int
    selected: str | None
    signal: float | None
    """Value that was compared with the thresholds."""
    penalty: float | None
    decision: str
    confidence: float | None = None
    """Probability that the selection is right."""
    feedback: str | None
    """Feedback that the next pass received."""


class AnswerBody(BaseModel):
    """One distinct answer of the pool, with the evidence for it."""

    answer: str | None
    """Answer in canonical text."""
    probability: float
    """Probability that it is right; 1 minus the expected violation if labels are violation scores."""
    evidence: dict[str, float]
    """Contribution of each term to the log-odds, relative to the average answer of the pool; ``base`` is the rest.
    Empty for an answer that an exact constraint proves or refutes."""
    proof: bool | None
    """True or false if an exact constraint proves it right or wrong, else null."""
    num_candidates: int
    authors: list[str]
    """Generators that gave this answer."""
    candidate_ids: list[str]


class ChoiceBody(BaseModel):
    """One of several distinct answers that a request asked for."""

    answer: str | None
    """Answer in canonical text; null if nothing was parsed, as in ordinary chat."""
    text: str
    confidence: float | None
    """Probability that this answer is right; null without a fitted posterior."""
    proof: bool | None
    """True if an exact constraint proves it right. Refuted answers are not among the choices."""
    num_candidates: int
    """Number of candidates with this answer."""
    candidate_id: str
    finish_reason: str | None


class OutcomesBody(BaseModel):
    """Reported outcomes on which a promise was certified."""

    decisions: int
    """Number of decisions with an outcome, one per problem."""
    since: datetime
    """Time of the oldest decision."""
    until: datetime
    """Time of the newest decision."""
    by: list[str] | None
    """Reporters whose outcomes counted; null: all."""


class GuaranteeBody(BaseModel):
    """Promise about the returned answers."""

    max_error: float
    """Largest share of wrong answers, or largest mean violation if labels are violation scores."""
    confidence: float
    """Probability, over calibration problems, with which the promise holds."""
    certified: bool
    """False if nothing could be promised, or if this decision was made under other conditions than certified
    (``reason``)."""
    problems: int
    """Number of labelled problems behind the promise."""
    suspended: bool = False
    """True while reported outcomes contradict the promise, so that it does not apply (``reason``)."""
    reason: str | None = None
    outcomes: OutcomesBody | None = None
    """Reported decisions behind the promise; null if it was certified on problems of the run."""


class DecisionBody(StopFields):
    """The decision with its reasons; the ``raydebm`` object of chat answers.

    Numbers about waves are summed over the passes; their reasons are those of the last pass."""

    request_id: str
    record_id: str | None = None
    """Id of the stored decision, for reading it and for reporting its outcome; null if it is not stored."""
    task: str
    problem_id: str
    decision: Literal["accept", "abstain"]
    reason: str
    confidence: float | None = None
    """Probability that the selected answer is right; null without a fitted posterior or a selection."""
    answers: list[AnswerBody] = Field(default_factory=list)
    """Distinct answers, the selected one first and the runner-up second, at most ``MAX_ANSWERS``; empty without a
    posterior."""
    guarantee: GuaranteeBody | None = None
    """Null if nothing was promised."""
    energy: float | None
    mu: float | None
    sigma: float | None
    members: list[float] | None
    penalty: float | None
    """E_constraint of the selected candidate."""
    constraints: dict[str, float]
    """Weighted penalty of each violated constraint; a constraint that holds is absent (0)."""
    violations: list[Violation]
    checks: list[str] = Field(default_factory=list)
    """Constraints by which the selected answer was checked, satisfied or not."""
    num_passes: int
    passes: list[PassBody]
    feedback: list[str]
    generators: list[GeneratorUse]
    usage: Usage
    cost_usd: float | None
    """Null when no generator reports cost."""
    cancelled_usd: float | None = None
    """Maximum cost of cancelled requests in addition to ``cost_usd``, at the recipe's prices; null if none was
    cancelled or a price is unknown."""
    ceilings: list[CeilingStatus] = Field(default_factory=list)
    """Remaining amounts of the day's ceilings, if the operator set any."""
    latency_ms: float
    stages_ms: dict[str, float]
    """Time per kind of call, summed over passes. Kinds overlap, because candidates are checked and scored while others
    are generated."""
    policy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    ignored_messages: int
    """Number of messages after the last user message, which are ignored. Earlier messages are context."""
    candidates: list[CandidateBody] | None = None


class TriageResponse(DecisionBody):
    """The full record of one decision."""

    answer: str | None
    """The accepted answer in the task's canonical text; null after an abstention."""
    text: str | None
    """The returned text; null after an abstention."""
    candidate: CandidateBody | None
    """The selected candidate, also after an abstention; null if none could be selected."""
    choices: list[ChoiceBody] | None = None
    """The best distinct answers, the selected one first, also after an abstention; null unless ``n`` is given."""


# ---- from records ---------------------------------------------------------------------------------------------------


def triage_body(result: TriageResult, choices: list[ChoiceBody] | None = None) -> TriageResponse:
    """The full record of one decision, as ``/v1/triage`` answers it."""
    context, outcome, activity = result.context, result.outcome, result.activity
    best, lambda_ = outcome.best, context.policy.lambda_
    body = None if best is None else candidate_body(best, lambda_)
    is_checked = best is not None and best.report.parsed and best.report.error is None
    constraints: dict[str, float] = {}
    for violation in () if best is None else best.report.violations:
        constraints[violation.constraint] = (
            constraints.get(violation.constraint, 0.0) + violation.weight * violation.penalty
        )
    return TriageResponse(
        request_id=context.request_id,
        record_id=result.record.record_id if result.is_stored else None,
        task=result.summary.task,
        problem_id=context.problem.problem_id,
        decision=result.decision,
        reason=result.reason,
        confidence=outcome.confidence,
        answers=[answer_body(belief) for belief in result.beliefs[:MAX_ANSWERS]],
        guarantee=guarantee_body(result.record.policy, result.suspended),
        answer=result.answer,
        text=outcome.answer,
        candidate=body,
        energy=None if body is None else body.energy,
        mu=None if body is None else body.mu,
        sigma=None if body is None else body.sigma,
        members=None if body is None else body.members,
        penalty=None if body is None else body.penalty,
        constraints=constraints,
        violations=[] if body is None else body.violations,
        checks=[constraint.name for constraint in context.task.constraints] if is_checked else [],
        num_passes=len(outcome.passes),
        passes=[pass_body(record) for record in outcome.passes],
        feedback=[record.feedback for record in outcome.passes if record.feedback is not None],
        generators=result.generators,
        usage=_usage(activity.drawn),
        cost_usd=result.summary.cost_usd,
        cancelled_usd=result.cancelled_usd,
        **stop_totals([record.stop for record in outcome.passes]),
        latency_ms=result.summary.latency_ms,
        stages_ms=dict(activity.stages_ms),
        ceilings=activity.ceilings,
        policy=context.policy.settings(),
        seed=context.seed,
        versions=dict(result.record.versions),
        ignored_messages=context.ignored_messages,
        choices=choices,
        candidates=[candidate_body(scored, lambda_) for scored in outcome.pool] if context.return_candidates else None,
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
    """The policy's guarantee, or None if it has none.

    Args:
        policy: policy with its guarantee.
        suspended: reason of a suspension, if there is one.
    """
    if policy.guarantee is None:
        return None
    known: Mapping[str, Any] = {
        name: value for name, value in policy.guarantee.items() if name in GuaranteeBody.model_fields
    }
    return GuaranteeBody.model_validate(
        known if suspended is None else {**known, "suspended": True, "reason": suspended}
    )


def candidate_body(scored: ScoredCandidate, lambda_: float) -> CandidateBody:
    """A candidate with its checks, energies and scores."""
    candidate, report = scored.candidate, scored.report
    return CandidateBody(
        candidate_id=candidate.candidate_id,
        generator=candidate.generator,
        pass_index=candidate.pass_index,
        sample_index=candidate.sample_index,
        text=candidate.text,
        error=_why(scored),
        answer=report.answer,
        energy=finite_or_none(scored.total_energy(lambda_)),
        **energy_fields(scored.energies),
        penalty=finite_or_none(report.penalty),
        violations=list(report.violations),
        completion_tokens=candidate.completion_tokens,
        finish_reason=candidate.finish_reason,
        cost_usd=candidate.cost_usd,
    )


def energy_fields(energies: Energies | None) -> dict[str, Any]:
    """Fields of a body from energies; None without any."""
    if energies is None:
        return dict.fromkeys(("mu", "sigma", "members", "num_tokens", "num_truncated"))
    return {
        "mu": energies.mu,
        "sigma": energies.sigma,
        "members": list(energies.members),
        "num_tokens": energies.num_tokens,
        "num_truncated": energies.num_truncated,
    }


def _why(scored: ScoredCandidate) -> str | None:
    if scored.candidate.error is not None:
        return redact(scored.candidate.error)
    if scored.report.error is not None:
        return scored.report.error
    if not scored.report.parsed:
        return NO_ANSWER
    return NO_ENERGY if scored.energies is None else None


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


@dataclass(frozen=True, slots=True)
class _Answer:
    best: ScoredCandidate
    probability: float | None
    proof: bool | None
    num_candidates: int

    @property
    def may_be_given(self) -> bool:
        """False for an answer that an exact constraint refutes."""
        return self.proof is not False and self.probability != 0


def best_answers(result: TriageResult, most: int) -> list[ChoiceBody]:
    """The selected answer, then the others: by probability, without a posterior by their lowest energy.

    Args:
        result: result of the request.
        most: maximum number of answers.
    """
    outcome = result.outcome
    if outcome.best is None:
        return []
    believed = [
        _Answer(belief.best, belief.probability, belief.cluster.proof, len(belief.candidates))
        for belief in result.beliefs
    ]
    selected, *others = believed or _by_energy(outcome, outcome.best, result.context.policy.lambda_)
    return [_body(answer) for answer in [selected, *(other for other in others if other.may_be_given)][:most]]


def _by_energy(outcome: Outcome, best: ScoredCandidate, lambda_: float) -> list[_Answer]:
    table = PoolTable.of([outcome.pool])
    rows = representatives(table, replace(PLAIN, lambda_=lambda_))
    answers = [
        _Answer(table.candidates[row], None, cluster.proof, len(cluster.rows))
        for row, cluster in zip(rows, table.clusters[0], strict=True)
    ]
    scored = [answer for answer in answers if math.isfinite(answer.best.total_energy(lambda_))]
    scored.sort(key=lambda answer: answer.best.total_energy(lambda_))
    key = best.report.vote_key
    own = [answer for answer in scored if answer.best.report.vote_key == key] or [_Answer(best, None, None, 1)]
    return own + [answer for answer in scored if answer.best.report.vote_key != key]


def _body(answer: _Answer) -> ChoiceBody:
    candidate = answer.best.candidate
    return ChoiceBody(
        answer=answer.best.report.answer,
        text=candidate.text or "",
        confidence=answer.probability,
        proof=answer.proof,
        num_candidates=answer.num_candidates,
        candidate_id=candidate.candidate_id,
        finish_reason=candidate.finish_reason,
    )


def triage_answer(result: TriageResult) -> TriageResponse:
    """The full record of one decision, with the requested choices."""
    most = result.context.num_choices
    return triage_body(result, None if most is None else best_answers(result, most))
