"""``POST /v1/verify``: a decision about candidates that somebody else sampled, in the outcome-verifier contract of the
vLLM Semantic Router.

The rule is the one of triage (``decision.rules.decide_pool``); what it decides about the selection becomes a
disposition about the candidates. Failures of the verifier itself have the contract's codes (``FAILURES``).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.policy import Policy
from raydebm.decision.rules import PoolDecision, beliefs_about, decide_pool
from raydebm.errors import RaydebmError, ServiceError
from raydebm.records import Decision, Problem, ScoredCandidate
from raydebm.serving.asking import NO_PROBLEM, check_context, policy_for, read_problem
from raydebm.serving.bodies import candidate_body
from raydebm.serving.conversation import read_conversation, transcript
from raydebm.serving.errors import as_service_error
from raydebm.serving.given import given_candidates, judged
from raydebm.serving.parts import fault_of
from raydebm.serving.schema import Overrides, Usage
from raydebm.serving.service import TriageService, within_deadline
from raydebm.serving.verify_schema import (
    CandidateVerdict,
    Disposition,
    Flag,
    GivenCandidate,
    ReasonCode,
    VerifyRequest,
    VerifyResponse,
)

FAILURES = {"deadline_exceeded": "timeout", "check_failed": "malformed_output", "scoring_failed": "malformed_output"}
"""The contract's names for failures of the verifier; every other one with status 500 and above is ``unavailable``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a ruling says about the candidates."""

    disposition: Disposition
    codes: tuple[ReasonCode, ...]
    reason: str
    tied: frozenset[str] = frozenset()
    """Keys of the answers that are equally good."""

    @property
    def is_deterministic(self) -> bool:
        return self.codes[0] in ("proven", "refuted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A pool with everything that was decided about it."""

    problem: Problem
    pool: tuple[ScoredCandidate, ...]
    policy: Policy
    ruling: PoolDecision
    verdict: Verdict


async def verify(
    service: TriageService, request: VerifyRequest, *, request_id: str, received: float | None = None
) -> VerifyResponse:
    """The disposition about the given candidates.

    Raises:
        ServiceError: ``no_candidate``, ``timeout``, ``unavailable`` or ``malformed_output``, or the code of what is
            wrong with the request.
    """
    started = time.perf_counter()
    given = _given(request)
    try:
        work = _judged(service, request, given)
        judged: Judged | str = await within_deadline(
            work, service.score_deadline_s(request.deadline_ms), received=received
        )
    except RaydebmError as error:
        known = as_service_error(error)
        if known.code != NO_PROBLEM:
            raise _typed(known) from error
        judged = str(known)
    return _response(service, request, given, judged, request_id=request_id, started=started)


def _typed(error: ServiceError) -> ServiceError:
    if error.status < 500:
        return error
    return ServiceError(str(error), error.status, FAILURES.get(error.code, "unavailable"), error.param, error.retry)


def _given(request: VerifyRequest) -> list[GivenCandidate]:
    """The candidates, each with its id. Raises ServiceError 400."""
    if not request.candidates:
        raise ServiceError("there is no candidate to verify; give at least one", 400, "no_candidate", "candidates")
    found = [GivenCandidate(text=each) if isinstance(each, str) else each for each in request.candidates]
    named = [each.model_copy(update={"id": each.id or str(index)}) for index, each in enumerate(found)]
    if len({each.id for each in named}) < len(named):
        message = "two candidates have the same id; give each its own, or none any"
        raise ServiceError(message, 400, "duplicate_id", "candidates")
    return named


async def _judged(service: TriageService, request: VerifyRequest, given: Sequence[GivenCandidate]) -> Judged:
    bundle = service.bundle
    conversation = None if request.messages is None else read_conversation(request.messages)
    context = () if conversation is None else conversation.context
    asked = conversation.problem if conversation is not None else request.problem or ""
    texts = [each.text for each in given]
    service.check_lengths(texts, "candidates", bundle.max_candidate_chars)
    check_context(bundle, context)
    task, problem = read_problem(bundle, request.task, asked)
    scored_prompt = transcript(context, problem.prompt)
    service.check_tokens(sum(len(scored_prompt) + len(text) for text in texts))
    settings = {**request.policy_changes(), **({"policy": request.policy} if request.policy else {})}
    policy = policy_for(bundle, task.name, Overrides.model_validate(settings))
    candidates = given_candidates(problem, texts, None if request.blind else [each.author for each in given])
    pool = tuple(await judged(bundle, service.backend, problem, candidates, scored_prompt=scored_prompt))
    if (fault := fault_of(pool)) is not None:
        raise fault
    ruling = decide_pool(pool, passes_left=request.passes_left, policy=policy)
    verdict = verdict_of(ruling, pool, policy=policy, passes_left=request.passes_left, tie_margin=request.tie_margin)
    return Judged(problem=problem, pool=pool, policy=policy, ruling=ruling, verdict=verdict)


def verdict_of(
    ruling: PoolDecision, pool: Sequence[ScoredCandidate], *, policy: Policy, passes_left: int, tie_margin: float
) -> Verdict:
    """The disposition that a ruling comes to. Pure.

    Args:
        ruling: of triage's rule about the pool.
        pool: all candidates.
        policy: that ruled.
        passes_left: how often the caller can try again.
        tie_margin: largest difference of two equally good answers' probabilities.
    """
    answered = [scored for scored in pool if scored.report.parsed]
    if answered and all(scored.report.proof is False for scored in answered):
        words = "every answer is refuted by an exact constraint"
        return Verdict(disposition="reject", codes=("refuted",), reason=words)
    if ruling.best is None:
        return Verdict(disposition="redo" if passes_left else "reject", codes=("no_answer",), reason=ruling.reason)
    if tied := _tied(ruling.beliefs, policy, tie_margin):
        words = f"{len(tied)} answers are right with the same probability, within {tie_margin:g}"
        return Verdict(
            disposition="tie",
            codes=("tied",),
            reason=words,
            tied=frozenset(belief.cluster.key for belief in tied),
        )
    disposition: dict[Decision, Disposition] = {
        Decision.ACCEPT: "approve",
        Decision.REGENERATE: "redo",
        Decision.ABSTAIN: "abstain",
    }
    return Verdict(
        disposition=disposition[ruling.decision], codes=_codes(ruling, ruling.best, policy), reason=ruling.reason
    )


def _tied(beliefs: Sequence[Belief], policy: Policy, margin: float) -> Sequence[Belief]:
    """The answers that are as probable as the selected one, where one of them is right with at least ``tau_answer``."""
    if policy.posterior is None or policy.posterior.competition == "independent" or not beliefs:
        return ()
    first = beliefs[0]
    if first.cluster.proof or first.probability == 0:
        return ()
    tied = [belief for belief in beliefs if abs(belief.probability - first.probability) <= margin]
    together = sum(belief.probability for belief in tied)
    return tied if len(tied) > 1 and together >= policy.tau_answer else ()


def _codes(ruling: PoolDecision, best: ScoredCandidate, policy: Policy) -> tuple[ReasonCode, ...]:
    violated: tuple[ReasonCode, ...] = ("constraint_violated",) if best.report.penalty > 0 else ()
    if best.report.proof and ruling.decision is Decision.ACCEPT:
        return ("proven",)
    is_approved = ruling.decision is Decision.ACCEPT
    if policy.rule == "posterior":
        return ("at_or_above_threshold" if is_approved else "below_threshold", *violated)
    is_gated = ruling.signal is not None and ruling.signal > policy.theta_sigma
    return ("sigma_above_threshold" if is_gated else "sigma_below_threshold", *violated)


def _response(
    service: TriageService,
    request: VerifyRequest,
    given: Sequence[GivenCandidate],
    found: Judged | str,
    *,
    request_id: str,
    started: float,
) -> VerifyResponse:
    """``found`` is the reason where no task can read the problem, so that nothing can be said."""
    verdict = (
        Verdict(disposition="abstain", codes=("not_a_problem",), reason=found)
        if isinstance(found, str)
        else found.verdict
    )
    scores = [] if isinstance(found, str) else _scores(found, given, blind=request.blind)
    tokens = 0 if isinstance(found, str) else sum(s.energies.num_tokens for s in found.pool if s.energies is not None)
    return VerifyResponse(
        id=f"verify-{request_id}",
        created=int(time.time()),
        disposition=verdict.disposition,
        confidence=None if isinstance(found, str) else found.ruling.confidence,
        reason_codes=list(verdict.codes),
        reason=verdict.reason,
        kind="deterministic_outcome" if verdict.is_deterministic else "outcome_reward_model",
        version="-".join(service.bundle.versions.get(part, "") for part in ("raydebm", "checkpoint", "policy")),
        selected=next((score.candidate_id for score in scores if "selected" in score.flags), None),
        scores=scores,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        latency_ms=round(1000 * (time.perf_counter() - started)),
        task=None if isinstance(found, str) else found.problem.task,
        problem_id=None if isinstance(found, str) else found.problem.problem_id,
        blind=request.blind,
    )


def _scores(found: Judged, given: Sequence[GivenCandidate], *, blind: bool) -> list[CandidateVerdict]:
    beliefs = found.ruling.beliefs or beliefs_about(found.pool, found.policy, found.ruling.best)
    confidence = {
        scored.candidate.candidate_id: belief.probability for belief in beliefs for scored in belief.candidates
    }
    return [
        _score(found, scored, each, confidence=confidence.get(scored.candidate.candidate_id), blind=blind)
        for scored, each in zip(found.pool, given, strict=True)
    ]


def _score(
    found: Judged, scored: ScoredCandidate, given: GivenCandidate, *, confidence: float | None, blind: bool
) -> CandidateVerdict:
    body = candidate_body(scored, found.policy.lambda_)
    return CandidateVerdict(
        candidate_id=given.id or "",
        confidence=confidence,
        flags=_flags(found, scored),
        author=None if blind else given.author,
        answer=body.answer,
        energy=body.energy,
        mu=body.mu,
        sigma=body.sigma,
        penalty=body.penalty,
        violations=body.violations,
        error=body.error,
    )


def _flags(found: Judged, scored: ScoredCandidate) -> list[Flag]:
    report = scored.report
    flags: dict[Flag, bool] = {
        "selected": scored is found.ruling.best,
        "tied": report.vote_key is not None and report.vote_key in found.verdict.tied,
        "proven": report.proof is True,
        "refuted": report.proof is False,
        "constraint_violated": bool(report.violations),
        "no_answer": not report.parsed,
        "not_scored": scored.energies is None,
    }
    return [flag for flag, holds in flags.items() if holds]
