"""``POST /v1/verify``: a decision about candidates that somebody else sampled, in the outcome-verifier contract of the
vLLM Semantic Router.

Failures of the verifier itself have the contract's codes (``FAILURES``).
"""

import time
from collections.abc import Mapping, Sequence

from raydebm.decision.rules import beliefs_about
from raydebm.errors import RaydebmError, ServiceError
from raydebm.records import ScoredCandidate
from raydebm.serving.api.headers import merged_overrides
from raydebm.serving.api.messages import read_conversation
from raydebm.serving.api.schema.candidate_bodies import Usage
from raydebm.serving.api.schema.request_bodies import given_problem
from raydebm.serving.api.schema.verify_bodies import (
    CandidateVerdict,
    Flag,
    GivenCandidate,
    VerifyRequest,
    VerifyResponse,
)
from raydebm.serving.api.triage.bodies import candidate_body
from raydebm.serving.core.given import within_deadline
from raydebm.serving.core.request import NO_PROBLEM
from raydebm.serving.core.service import TriageService
from raydebm.serving.core.verification import PoolVerdict, ToVerify, Verification, verification
from raydebm.serving.failures import as_service_error
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides

FAILURES = {"deadline_exceeded": "timeout", "check_failed": "malformed_output", "scoring_failed": "malformed_output"}
"""The contract's names for failures of the verifier; every other one with status 500 and above is ``unavailable``."""


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
        work = verification(service.bundle, service.backend, _to_verify(service.bundle, request, given))
        finding: Verification | str = await within_deadline(
            work, service.bundle.score_deadline_s(request.deadline_ms), received=received
        )
    except RaydebmError as error:
        known = as_service_error(error)
        if known.code != NO_PROBLEM:
            raise _typed(known) from error
        finding = str(known)
    return _response(service, request, given, finding, request_id=request_id, started=started)


def _typed(error: ServiceError) -> ServiceError:
    if error.status < 500:
        return error
    return ServiceError(str(error), error.status, FAILURES.get(error.code, "unavailable"), error.param, error.retry)


def _given(request: VerifyRequest) -> list[GivenCandidate]:
    """The candidates, each with its id. Raises ServiceError 400."""
    if not request.candidates:
        raise ServiceError("there is no candidate to verify; give at least one", 400, "no_candidate", "candidates")
    candidates = [GivenCandidate(text=each) if isinstance(each, str) else each for each in request.candidates]
    named = [each.model_copy(update={"id": each.id or str(index)}) for index, each in enumerate(candidates)]
    if len({each.id for each in named}) < len(named):
        message = "two candidates have the same id; give each its own, or none any"
        raise ServiceError(message, 400, "duplicate_id", "candidates")
    return named


def _to_verify(bundle: Bundle, request: VerifyRequest, given: Sequence[GivenCandidate]) -> ToVerify:
    conversation = None if request.messages is None else read_conversation(request.messages)
    settings = {**request.policy_changes(), **({"policy": request.policy} if request.policy else {})}
    return ToVerify(
        task=request.task,
        problem=conversation.problem if conversation is not None else given_problem(request.problem or ""),
        context=() if conversation is None else conversation.context,
        texts=[each.text for each in given],
        authors=None if request.blind else [each.author for each in given],
        overrides=merged_overrides(bundle, Overrides.model_validate(settings), headers={}),
        passes_left=request.passes_left,
        tie_margin=request.tie_margin,
    )


def _response(
    service: TriageService,
    request: VerifyRequest,
    given: Sequence[GivenCandidate],
    finding: Verification | str,
    *,
    request_id: str,
    started: float,
) -> VerifyResponse:
    """``finding`` is the reason where no task can read the problem, so that nothing can be said."""
    verdict = (
        PoolVerdict(disposition="abstain", codes=("not_a_problem",), reason=finding)
        if isinstance(finding, str)
        else finding.verdict
    )
    scores = [] if isinstance(finding, str) else _scores(finding, given, blind=request.blind)
    tokens = (
        0 if isinstance(finding, str) else sum(s.energies.num_tokens for s in finding.pool if s.energies is not None)
    )
    return VerifyResponse(
        id=f"verify-{request_id}",
        created=int(time.time()),
        disposition=verdict.disposition,
        confidence=None if isinstance(finding, str) else finding.decided.confidence,
        reason_codes=list(verdict.codes),
        reason=verdict.reason,
        kind="deterministic_outcome" if verdict.is_deterministic else "outcome_reward_model",
        version="-".join(_versions(service, finding).get(part, "") for part in ("raydebm", "checkpoint", "policy")),
        selected=next((score.candidate_id for score in scores if "selected" in score.flags), None),
        scores=scores,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        latency_ms=round(1000 * (time.perf_counter() - started)),
        task=None if isinstance(finding, str) else finding.problem.task,
        problem_id=None if isinstance(finding, str) else finding.problem.problem_id,
        blind=request.blind,
    )


def _versions(service: TriageService, finding: Verification | str) -> Mapping[str, str]:
    return (service.bundle if isinstance(finding, str) else finding.bundle).versions


def _scores(finding: Verification, given: Sequence[GivenCandidate], *, blind: bool) -> list[CandidateVerdict]:
    beliefs = finding.decided.beliefs or beliefs_about(finding.pool, finding.policy, finding.decided.best)
    confidence = {
        scored.candidate.candidate_id: belief.probability for belief in beliefs for scored in belief.candidates
    }
    return [
        _score(finding, scored, each, confidence=confidence.get(scored.candidate.candidate_id), blind=blind)
        for scored, each in zip(finding.pool, given, strict=True)
    ]


def _score(
    finding: Verification, scored: ScoredCandidate, given: GivenCandidate, *, confidence: float | None, blind: bool
) -> CandidateVerdict:
    body = candidate_body(scored, finding.policy.lambda_)
    return CandidateVerdict(
        candidate_id=given.id or "",
        confidence=confidence,
        flags=_flags(finding, scored),
        author=None if blind else given.author,
        answer=body.answer,
        energy=body.energy,
        mu=body.mu,
        sigma=body.sigma,
        penalty=body.penalty,
        violations=body.violations,
        error=body.error,
    )


def _flags(finding: Verification, scored: ScoredCandidate) -> list[Flag]:
    report = scored.report
    flags: dict[Flag, bool] = {
        "selected": scored is finding.decided.best,
        "tied": report.vote_key is not None and report.vote_key in finding.verdict.tied,
        "proven": report.proof is True,
        "refuted": report.proof is False,
        "constraint_violated": bool(report.violations),
        "no_answer": not report.parsed,
        "not_scored": scored.energies is None,
    }
    return [flag for flag, holds in flags.items() if holds]
