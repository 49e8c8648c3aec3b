"""Scoring of given candidates: ``/v1/score``, ``/v1/rerank`` (Cohere, Jina) and ``/get_reward`` (OpenRLHF).

As for sampled candidates, a text's answer is separated from its thinking. A text without an answer has no energy.
``relevance_score`` of a document is ``-energy``: higher is better, unbounded. Only ``confidence`` is a probability.
"""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raydebm.decision.evidence.posterior import confidences
from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.generators.replies import split_reasoning
from raydebm.generators.requests import CHARS_PER_TOKEN
from raydebm.identity import content_id
from raydebm.records import Candidate, Problem, ScoredCandidate, Violation
from raydebm.service.core import NO_ANSWER, Activity, Judges, ProblemBody, TriageService, read_problem, run_of
from raydebm.service.routes.bodies import MODEL_PREFIX, Usage, candidate_body, merged_overrides, parse_model
from raydebm.service.routes.openapi import examples_of
from raydebm.service.settings import MAX_DEADLINE_MS, Body, Bundle, Finite, NotNegative, Overrides, Text, writable
from raydebm.service.store.record import Judged

T = TypeVar("T")
MAX_CANDIDATES_TO_SCORE = 512
NO_ANSWER_SCORE = -1e6
"""Score of a document without an answer or an energy (E = infinity), because clients need a finite number."""
MAX_LOG_ODDS = 10.0
"""Log-odds of a proven answer, and minus those of a refuted one; bounds every estimate."""
MAX_PARALLEL = 16
"""Maximum number of prompts of one reward request scored concurrently."""


# ---- limits ---------------------------------------------------------------------------------------------------------


async def within_deadline(work: Awaitable[T], most_s: float | None, *, received: float | None) -> T:
    """Await the work, and cancel it at its deadline in seconds from ``received`` (``time.perf_counter()`` at arrival,
    by default now). Raises ServiceError 504."""
    spent_s = 0.0 if received is None else time.perf_counter() - received
    try:
        async with asyncio.timeout(None if most_s is None else max(0.0, most_s - spent_s)) as time_is_up:
            return await work
    except TimeoutError as error:
        if not time_is_up.expired():
            raise
        message = f"the texts were not scored within {most_s:g} s; send fewer in one request"
        raise ServiceError(message, 504, "deadline_exceeded") from error


def check_tokens(num_chars: int, most: int, param: str = "candidates") -> None:
    """Raise ServiceError 413 if the texts have more than ``most`` tokens together, estimated from their length."""
    num_tokens = num_chars // CHARS_PER_TOKEN
    if num_tokens > most:
        message = (
            f"the texts to score, each with its problem, are about {num_tokens} tokens; at most {most} are "
            "accepted in one request, so send them in several"
        )
        raise ServiceError(message, 413, "too_many_tokens", param)


# ---- scores ---------------------------------------------------------------------------------------------------------


class ScoreRequest(Body):
    """A problem and candidate answers, which are checked and scored."""

    task: Text | None = None
    problem: Text | ProblemBody
    candidates: list[Text] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    lambda_: NotNegative | None = Field(None, alias="lambda")
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)
    """Milliseconds from the request's arrival. If not all texts are scored by then, the request fails with 504."""


class ScoredText(Judged):
    """A text of the request with its checks and energies.

    ``confidence`` is the probability that its answer is right, with the texts of the request as the pool."""

    index: int
    """Position in the request."""
    energy: float | None
    mu: float | None
    sigma: float | None
    members: list[float] | None
    penalty: float | None
    violations: list[Violation]
    error: str | None


class ScoreItem(ScoredText):
    """``score`` is -energy: higher is better, as for rerankers. Null if there is no finite energy."""

    object: Literal["score"] = "score"
    score: float | None
    num_tokens: int | None
    num_truncated: int | None


class ScoreResponse(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ScoreItem]
    usage: Usage
    versions: dict[str, str]


async def get_scores(
    service: TriageService, request: ScoreRequest, *, request_id: str, received: float | None = None
) -> ScoreResponse:
    """Scores of one request. Raises ServiceError if the request is wrong or a part fails, 504 at the deadline."""
    limits_s = [service.bundle.args.max_deadline_s, request.deadline_ms and request.deadline_ms / 1000]
    most_s = min((limit for limit in limits_s if limit is not None), default=None)
    work = scored_texts(service, request.problem, request.candidates, task_name=request.task, lambda_=request.lambda_)
    bundle, items = await within_deadline(work, most_s, received=received)
    tokens = sum(score.num_tokens or 0 for score in items)
    return ScoreResponse(
        id=f"score-{request_id}",
        created=int(time.time()),
        model=f"raydebm/{bundle.tasks[0]}",
        data=items,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        versions=dict(bundle.versions),
    )


async def scored_texts(
    service: TriageService,
    given: str | ProblemBody,
    texts: Sequence[str],
    *,
    task_name: str | None,
    lambda_: float | None,
) -> tuple[Bundle, list[ScoreItem]]:
    """The run of the task, and each text checked and scored, in order. Raises ServiceError."""
    longest = max(map(len, texts))
    if longest > service.bundle.max_candidate_chars:
        message = f"a text has {longest} characters; at most {service.bundle.max_candidate_chars} are accepted"
        raise ServiceError(message, 413, "text_too_long", "candidates")
    bundle, _, problem = read_problem(service.bundle, task_name, given)
    check_tokens(sum(len(problem.prompt) + len(text) for text in texts), bundle.max_score_tokens)
    policy = bundle.policy
    pool = await _judged(service, bundle, problem, texts)
    confidence = {} if policy.posterior is None else confidences(policy.posterior.beliefs(pool))
    items = []
    for index, scored in enumerate(pool):
        body = candidate_body(scored, policy.lambda_ if lambda_ is None else lambda_)
        facts = body.model_dump(include=set(ScoreItem.model_fields) - {"index", "violations"})
        score = None if body.energy is None else -body.energy
        probability = confidence.get(body.candidate_id)
        items.append(ScoreItem(index=index, score=score, confidence=probability, violations=body.violations, **facts))
    return bundle, items


async def _judged(
    service: TriageService, bundle: Bundle, problem: Problem, texts: Sequence[str]
) -> list[ScoredCandidate]:
    """Check and score texts, with baseline scores if baselines are evidence. Thinking is separated from the answer, as
    for sampled candidates. Ids do not depend on the order, so neither do ties."""
    seen: Counter[str] = Counter()
    candidates = []
    for index, given in enumerate(texts):
        answer, thinking = split_reasoning(given)
        candidates.append(
            Candidate(
                candidate_id=content_id("given", problem.problem_id, given, seen[given]),
                task=problem.task,
                problem_id=problem.problem_id,
                generator="client",
                text=answer,
                reasoning=thinking,
                sample_index=index,
            )
        )
        seen[given] += 1
    judges = Judges(service.backend.serving(bundle), Activity(), reasoning=bundle.reasoning)

    async def baseline_scores() -> list[Mapping[str, float]]:
        return await judges.scores(problem, candidates) if bundle.recipe.evidence else [{} for _ in candidates]

    energies, reports, scores = await asyncio.gather(
        judges.score(problem, candidates), judges.check(problem, candidates), baseline_scores()
    )
    return [
        ScoredCandidate(candidate=candidate, report=report, energies=own_energies, scores=own_scores, kind=problem.kind)
        for candidate, report, own_energies, own_scores in zip(candidates, reports, energies, scores, strict=True)
    ]


# ---- reranking ------------------------------------------------------------------------------------------------------


class Document(BaseModel):
    """Document as an object of Cohere's and Jina's API. Its other fields are returned with ``return_documents``."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    text: Text

    @model_validator(mode="after")
    def _writable(self) -> "Document":
        writable(self.model_extra)
        return self


class RerankOverrides(Body):
    """The ``raydebm`` object of a rerank request."""

    task: Text | None = None
    lambda_: NotNegative | None = Field(None, alias="lambda")


class RerankRequest(BaseModel):
    """Unknown fields are accepted, because Cohere's and Jina's APIs have many that have no effect here."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    model: Text | None = None
    """``raydebm/<task>``, the task of the query. Default: the only served task."""
    query: Text = Field(min_length=1)
    documents: list[Text | Document] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False
    raydebm: RerankOverrides | None = None


class RerankResult(ScoredText):
    relevance_score: float
    document: dict[str, Any] | None = None
    """Present only with ``return_documents``."""


class RerankResponse(BaseModel):
    id: str
    model: str
    task: str
    """Task whose constraints were checked."""
    results: list[RerankResult]
    """Best first."""
    usage: Usage
    meta: dict[str, Any]
    """Metadata for Cohere's clients."""
    versions: dict[str, str]


async def rerank(
    service: TriageService, request: RerankRequest, *, request_id: str, received: float | None = None
) -> RerankResponse:
    """Score the documents and sort them; equal scores keep the order of the request. See ``get_scores``."""
    texts = [document if isinstance(document, str) else document.text for document in request.documents]
    named, policy = (None, None) if request.model is None else parse_model(service.bundle, request.model)
    changes = request.raydebm or RerankOverrides()
    own = Overrides.model_validate(changes.model_dump(by_alias=True, include={"lambda_"}, exclude_unset=True))
    lambda_ = merged_overrides(service.bundle, own, policy=policy).policy_changes().get("lambda")
    asked = {"task": changes.task or named, "problem": request.query, "candidates": texts, "lambda": lambda_}
    scored = await get_scores(service, ScoreRequest.model_validate(asked), request_id=request_id, received=received)

    def rank(item: ScoreItem) -> tuple[bool, float, float]:
        """Documents without an energy are last, by mu if they have one."""
        return item.energy is None, item.energy or 0.0, math.inf if item.mu is None else item.mu

    results = []
    for item in sorted(scored.data, key=rank)[: request.top_n]:
        document = request.documents[item.index]
        shown = {"text": document} if isinstance(document, str) else document.model_dump()
        results.append(
            RerankResult(
                **item.model_dump(include=set(ScoredText.model_fields)),
                relevance_score=NO_ANSWER_SCORE if item.score is None else item.score,
                document=shown if request.return_documents else None,
            )
        )
    return RerankResponse(
        id=f"rerank-{request_id}",
        model=request.model or scored.model,
        task=scored.model.removeprefix(MODEL_PREFIX),
        results=results,
        usage=scored.usage,
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        versions=scored.versions,
    )


# ---- rewards --------------------------------------------------------------------------------------------------------


class RewardSettings(BaseModel):
    """Query parameters, because the body that OpenRLHF's client sends cannot be extended. Reward = max(floor, value -
    sigma_weight * sigma), where ``reward`` selects the value."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)

    task: Text | None = None
    """Task of the prompts. Default: the only served task."""
    reward: Literal["energy", "log_odds"] = "energy"
    """energy: -(mu + lambda * E_constraint). log_odds: log(p / (1 - p)) within [-10, 10], where p is the probability
    that the answer is right, by the task's posterior over the request's responses to the same prompt."""
    lambda_: NotNegative | None = Field(None, alias="lambda")
    sigma_weight: NotNegative = 0.0
    floor: Finite = -10.0
    """Lowest reward, also that of a text without an answer, because trainers cannot use minus infinity."""


class RewardRequest(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    query: list[Text] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    """Texts of prompt and response together, or of the response alone."""
    prompts: list[Text]
    labels: list[Any] | None = None
    """Accepted and ignored, because this reward needs no reference answer."""

    @model_validator(mode="after")
    def _same_length(self) -> "RewardRequest":
        if len(self.prompts) != len(self.query):
            raise ValueError(f"prompts has {len(self.prompts)} texts and query has {len(self.query)}; they must match")
        return self


class RewardResponse(BaseModel):
    rewards: list[float]
    scores: list[Annotated[float, Field(ge=0, le=1)]]
    """1.0 if triage would accept the response at once, else 0.0, for filtering by trainers."""
    extra_logs: dict[str, list[float]]


async def get_rewards(
    service: TriageService, request: RewardRequest, settings: RewardSettings, *, received: float | None = None
) -> RewardResponse:
    """Rewards in the order of the queries. Responses to the same prompt are scored in one call. Raises ServiceError,
    503 for a response that could not be checked or scored: any reward would mislead the training."""
    bundle = run_of(service.bundle, settings.task)
    policy = bundle.policy
    if settings.reward == "log_odds" and policy.posterior is None:
        message = (
            f"task {bundle.tasks[0]!r} has no fitted posterior, so no log-odds; run `raydebm calibrate` on its run"
        )
        raise ServiceError(message, 400, "no_posterior", "reward")
    texts = [query.removeprefix(prompt) for query, prompt in zip(request.query, request.prompts, strict=True)]
    check_tokens(sum(map(len, [*request.prompts, *texts])), bundle.max_score_tokens, "query")
    by_prompt: defaultdict[str, list[int]] = defaultdict(list)
    for place, prompt in enumerate(request.prompts):
        by_prompt[prompt].append(place)
    scored: dict[int, ScoreItem] = {}
    slots = asyncio.Semaphore(MAX_PARALLEL)

    async def score(prompt: str, places: Sequence[int]) -> None:
        own = [texts[place] for place in places]
        async with slots:
            _, items = await scored_texts(service, prompt, own, task_name=bundle.tasks[0], lambda_=settings.lambda_)
        scored.update(zip(places, items, strict=True))

    async def score_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for prompt, places in by_prompt.items():
                    group.create_task(score(prompt, places))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first failure, which cancelled the other prompts

    await within_deadline(score_all(), service.bundle.args.max_deadline_s, received=received)
    items = [scored[index] for index in range(len(texts))]
    for item in items:
        if item.error not in (None, NO_ANSWER):
            message = f"one of the {len(texts)} responses has no reward: {item.error}"
            raise ServiceError(message, 503, "no_reward")
    logs = {name: [getattr(item, name) or 0.0 for item in items] for name in ("mu", "sigma", "penalty")}
    logs["answered"] = [float(item.energy is not None) for item in items]
    if policy.posterior is not None:
        logs["confidence"] = [item.confidence or 0.0 for item in items]
    return RewardResponse(
        rewards=[_reward(item, settings) for item in items],
        scores=[float(_is_acceptable(item, policy)) for item in items],
        extra_logs=logs,
    )


def _reward(item: ScoreItem, settings: RewardSettings) -> float:
    if item.energy is None or item.sigma is None:
        return settings.floor
    value = log_odds(item.confidence or 0.0) if settings.reward == "log_odds" else -item.energy
    return max(settings.floor, value - settings.sigma_weight * item.sigma)


def log_odds(probability: float) -> float:
    """log(p / (1 - p)) within ``MAX_LOG_ODDS``; p may be 0 or 1."""
    if probability in (0, 1):
        return MAX_LOG_ODDS if probability else -MAX_LOG_ODDS
    return min(MAX_LOG_ODDS, max(-MAX_LOG_ODDS, math.log(probability) - math.log1p(-probability)))


def _is_acceptable(item: ScoreItem, policy: Policy) -> bool:
    if item.energy is None or item.sigma is None:
        return False
    if policy.rule == "posterior" and item.confidence is not None:
        return item.confidence >= policy.tau_accept
    return item.sigma <= policy.theta_sigma and not item.penalty


# ---- routes ---------------------------------------------------------------------------------------------------------


def scoring_routes(service: TriageService) -> APIRouter:
    """Scores, reranking and rewards."""
    router = APIRouter(tags=["scoring"])

    def arrival(request: Request) -> dict[str, Any]:
        return {"request_id": request.state.request_id, "received": request.state.received}

    @router.post("/v1/score", summary="Score candidates", openapi_extra=examples_of("score", service.bundle))
    async def score(body: ScoreRequest, request: Request) -> ScoreResponse:
        """Energies of given candidates. `score` = -energy: higher is better."""
        return await get_scores(service, body, **arrival(request))

    @router.post("/v1/rerank", summary="Rerank documents", openapi_extra=examples_of("rerank", service.bundle))
    @router.post("/v2/rerank", include_in_schema=False)  # Cohere's client
    async def rerank_route(body: RerankRequest, request: Request) -> RerankResponse:
        """Documents in the order of their `relevance_score`, which is -energy: higher is better; not a probability."""
        return await rerank(service, body, **arrival(request))

    @router.post("/get_reward", summary="Compute rewards", openapi_extra=examples_of("rewards", service.bundle))
    async def get_reward(
        body: RewardRequest, request: Request, settings: Annotated[RewardSettings, Query()]
    ) -> RewardResponse:
        """OpenRLHF's remote reward model. Default: -(mu + lambda E_constraint) - sigma_weight sigma, at least floor."""
        return await get_rewards(service, body, settings, received=request.state.received)

    return router
