"""Response bodies about decisions, also in OpenAI's shapes, and their construction from records.

An infinite energy or penalty becomes null, because JSON has no infinity. Energies: lower is better.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.reference import PLAIN
from raydebm.decision.evidence.terms import representatives
from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.records import Energies, PassRecord, ScoredCandidate, Violation
from raydebm.service.core.parts import NO_ANSWER, NO_ENERGY
from raydebm.service.core.result import GeneratorUse, TriageResult, finite_or_none, stop_totals
from raydebm.service.logs import redact
from raydebm.service.spending import CeilingStatus
from raydebm.service.store.record import DecisionFacts, DecisionRecord, Judged

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


class ChoiceBody(Judged):
    """One of several distinct answers that a request asked for."""

    text: str
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


class DecisionDetails(StopFields):
    """The course of a decision, its evidence and its settings.

    Numbers about waves are summed over the passes; their reasons are those of the last pass."""

    passes: list[PassBody]
    answers: list[AnswerBody]
    """Distinct answers, the selected one first and the runner-up second, at most ``MAX_ANSWERS``; empty without a
    posterior or a selection."""
    guarantee: GuaranteeBody | None
    """Promise of the policy, with its present state of suspension. Null if nothing was promised."""
    policy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    stages_ms: dict[str, float]
    """Time per kind of call, summed over passes. Kinds overlap, because candidates are checked and scored while others
    are generated."""


class TriageResponse(DecisionFacts, DecisionDetails):
    """One decision with its reasons. Chat answers have it as ``raydebm``, without the texts.

    ``answer`` is null after an abstention."""

    text: str | None
    """The returned text; null after an abstention."""
    candidate: CandidateBody | None
    """The selected candidate, also after an abstention; null if none could be selected."""
    choices: list[ChoiceBody] | None = None
    """The best distinct answers, the selected one first, also after an abstention; null unless ``n`` is given."""
    members: list[float] | None
    """One energy per adapter."""
    constraints: dict[str, float]
    """Weighted penalty of each violated constraint; a constraint that holds is absent (0)."""
    violations: list[Violation]
    checks: list[str]
    """Constraints by which the selected answer was checked, satisfied or not."""
    feedback: list[str]
    generators: list[GeneratorUse]
    usage: Usage
    cancelled_usd: float | None
    """Maximum cost of cancelled requests in addition to ``cost_usd``, at the recipe's prices; null if none was
    cancelled or a price is unknown."""
    ceilings: list[CeilingStatus]
    """Remaining amounts of the day's ceilings, if the operator set any."""
    ignored_messages: int
    """Number of messages after the last user message, which are ignored. Earlier messages are context."""
    candidates: list[CandidateBody] | None = None

    def chat_object(self, *, choices: dict[str, Any] | None = None) -> dict[str, Any]:
        """The ``raydebm`` object of a chat answer: everything but the texts, which are in the choices."""
        unset = {"candidates"} if self.candidates is None else set()
        counted = {} if choices is None else {"choices": choices}
        return {**self.model_dump(exclude={"text", "candidate", "choices"} | unset), **counted}


# ---- from records ---------------------------------------------------------------------------------------------------


def details_of(record: DecisionRecord, beliefs: Sequence[Belief], suspended: str | None) -> dict[str, Any]:
    """Fields of ``DecisionDetails``.

    Args:
        record: the decision.
        beliefs: beliefs about the distinct answers, the selected one first.
        suspended: reason why its policy's guarantee is suspended, if it is.
    """
    passes = record.outcome.passes
    return {
        "passes": [pass_body(each) for each in passes],
        **stop_totals([each.stop for each in passes]),
        "answers": [answer_body(belief) for belief in beliefs[:MAX_ANSWERS]],
        "guarantee": guarantee_body(record.policy, suspended),
        "policy": record.policy.to_json(),
        "seed": record.seed,
        "versions": dict(record.versions),
        "stages_ms": dict(record.stages_ms),
    }


def triage_answer(result: TriageResult) -> TriageResponse:
    """The full record of one decision, as ``/v1/triage`` answers it."""
    context, outcome, activity, most = result.context, result.outcome, result.activity, result.context.num_choices
    best, lambda_ = outcome.best, context.policy.lambda_
    violations = () if best is None else best.report.violations
    constraints: defaultdict[str, float] = defaultdict(float)
    for violation in violations:
        constraints[violation.constraint] += violation.weight * violation.penalty
    is_checked = best is not None and best.report.parsed and best.report.error is None
    prompt, completion = (
        sum(getattr(candidate, name) or 0 for candidate in activity.drawn)
        for name in ("prompt_tokens", "completion_tokens")
    )
    facts = result.summary.model_dump(include=set(DecisionFacts.model_fields))
    return TriageResponse(
        **facts
        | details_of(result.record, result.beliefs, result.suspended)
        | {
            "record_id": result.record.record_id if result.is_stored else None,
            "reason": result.reason,
            "answer": result.answer,
            "policy": context.policy.settings(),
        },
        text=outcome.answer,
        candidate=None if best is None else candidate_body(best, lambda_),
        choices=None if most is None else best_answers(result, most),
        members=None if best is None or best.energies is None else list(best.energies.members),
        constraints=constraints,
        violations=list(violations),
        checks=[constraint.name for constraint in context.task.constraints] if is_checked else [],
        feedback=[each.feedback for each in outcome.passes if each.feedback is not None],
        generators=result.generators,
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion),
        cancelled_usd=result.cancelled_usd,
        ceilings=activity.ceilings,
        ignored_messages=context.ignored_messages,
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
    why = {} if suspended is None else {"suspended": True, "reason": suspended}
    return GuaranteeBody.model_validate({**policy.guarantee, **why})


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


def best_answers(result: TriageResult, most: int) -> list[ChoiceBody]:
    """The selected answer, then the others: by probability, without a posterior by their lowest energy.

    Args:
        result: result of the request.
        most: maximum number of answers.
    """
    outcome = result.outcome
    if outcome.best is None:
        return []
    choices = [
        _choice(belief.best, len(belief.candidates), confidence=belief.probability, proof=belief.cluster.proof)
        for belief in result.beliefs
    ]
    selected, *others = choices or _by_energy(outcome.pool, outcome.best, result.context.policy.lambda_)
    return [selected, *(other for other in others if other.proof is not False and other.confidence != 0)][:most]


def _by_energy(pool: Sequence[ScoredCandidate], best: ScoredCandidate, lambda_: float) -> list[ChoiceBody]:
    table = PoolTable.of([pool])
    rows = representatives(table, replace(PLAIN, lambda_=lambda_))
    of_answers = [(table.candidates[row], cluster) for row, cluster in zip(rows, table.clusters[0], strict=True)]
    scored = [each for each in of_answers if math.isfinite(each[0].total_energy(lambda_))]
    scored.sort(key=lambda each: (each[0].report.vote_key != best.report.vote_key, each[0].total_energy(lambda_)))
    choices = [_choice(first, len(cluster.rows), proof=cluster.proof) for first, cluster in scored]
    if not scored or scored[0][0].report.vote_key != best.report.vote_key:
        choices.insert(0, _choice(best, 1))
    return choices


def _choice(
    first: ScoredCandidate, num_candidates: int, *, confidence: float | None = None, proof: bool | None = None
) -> ChoiceBody:
    candidate = first.candidate
    return ChoiceBody(
        answer=first.report.answer,
        confidence=confidence,
        text=candidate.text or "",
        proof=proof,
        num_candidates=num_candidates,
        candidate_id=candidate.candidate_id,
        finish_reason=candidate.finish_reason,
    )
