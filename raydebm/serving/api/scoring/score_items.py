"""``POST /v1/score``: energies of given candidates; checked too when a task is known.

As with a sampled candidate, a text's answer counts apart from its thinking. A text that is all thinking has no answer,
and so no energy.
"""

import time

from raydebm.decision.evidence.posterior import confidences
from raydebm.errors import ServiceError
from raydebm.records import Energies, ScoredCandidate
from raydebm.serving.api.model_ids import model_ids, parse_model
from raydebm.serving.api.schema.candidate_bodies import Usage
from raydebm.serving.api.schema.request_bodies import given_problem
from raydebm.serving.api.schema.score_bodies import ScoreItem, ScoreRequest, ScoreResponse
from raydebm.serving.api.triage.bodies import candidate_body
from raydebm.serving.core.faults import check_lengths, check_tokens
from raydebm.serving.core.given import given_candidates, judged, scored_pairs, within_deadline
from raydebm.serving.core.request import read_problem
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.bundle import Bundle

Scored = tuple[Bundle, list[ScoreItem]]
"""The run that scored, and what it gave."""


async def get_scores(
    service: TriageService, request: ScoreRequest, *, request_id: str, received: float | None = None
) -> ScoreResponse:
    """The scores of one request.

    Args:
        service: has the ensemble.
        request: what to score.
        request_id: for the answer.
        received: ``time.perf_counter()`` when it arrived; None: now.

    Raises:
        ServiceError: the request is wrong, or a part does not work; 504 when there is not enough time for it.
    """
    most_s = service.bundle.score_deadline_s(request.deadline_ms)
    bundle, items = await within_deadline(scored_texts(service, request), most_s, received=received)
    tokens = sum(score.num_tokens or 0 for score in items)
    return ScoreResponse(
        id=f"score-{request_id}",
        created=int(time.time()),
        model=f"raydebm/{bundle.tasks[0]}",
        data=items,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        versions=dict(bundle.versions),
    )


async def scored_texts(service: TriageService, request: ScoreRequest) -> Scored:
    """The run that scored the texts, and what it gave, however long that takes.

    Raises:
        ServiceError: the request is wrong, or a part does not work.
    """
    return await (_score_pairs(service, request) if request.problem is None else _score_candidates(service, request))


def task_of_scores(bundle: Bundle, request: ScoreRequest) -> str:
    """Name of the task whose constraints a request with a problem is checked against.

    Raises:
        ServiceError: no task can read it, or the text is too long.
    """
    return read_problem(bundle, request.task, given_problem(request.problem or "")).task.name


async def _score_pairs(service: TriageService, request: ScoreRequest) -> Scored:
    bundle = _run_of_model(service.bundle, request.model)
    try:
        pairs = request.text_pairs()
    except ValueError as error:
        raise ServiceError(str(error), 400, "bad_texts", "text_2") from error
    check_lengths([first for first, _ in pairs], "text_1", bundle.max_problem_chars)
    check_lengths([second for _, second in pairs], "text_2", bundle.max_candidate_chars)
    check_tokens(sum(len(first) + len(second) for first, second in pairs), bundle.max_score_tokens)
    scored = await scored_pairs(bundle, service.backend.serving(bundle), pairs)
    return bundle, [score_item(index, pair.energies, error=pair.error) for index, pair in enumerate(scored)]


def _run_of_model(bundle: Bundle, model: str | None) -> Bundle:
    """The run whose ensemble scores texts of no known task: that of a model id, else the first one."""
    if model not in model_ids(bundle):
        return bundle.alone
    name, _ = parse_model(bundle, model)
    return bundle.of(name).alone


async def _score_candidates(service: TriageService, request: ScoreRequest) -> Scored:
    texts = request.candidates
    if request.problem is None or texts is None:
        raise ServiceError("give both 'problem' and 'candidates'", 400, "missing_text", "problem")
    check_lengths(texts, "candidates", service.bundle.max_candidate_chars)
    read = read_problem(service.bundle, request.task, given_problem(request.problem))
    bundle, problem = read.bundle, read.problem
    check_tokens(sum(len(problem.prompt) + len(text) for text in texts), bundle.max_score_tokens)
    policy = bundle.policies[read.task.name]
    pool = await judged(bundle, service.backend.serving(bundle), problem, given_candidates(problem, texts))
    lambda_ = policy.lambda_ if request.lambda_ is None else request.lambda_
    confidence = {} if policy.posterior is None else confidences(policy.posterior.beliefs(pool))
    return bundle, [
        checked_item(index, scored, lambda_, confidence=confidence.get(scored.candidate.candidate_id))
        for index, scored in enumerate(pool)
    ]


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


def score_item(index: int, energies: Energies | None, *, error: str | None = None) -> ScoreItem:
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
        error=error,
    )
