"""``POST /get_reward`` in OpenRLHF's remote reward shape. Its client sends the same lists every time, so settings are
in the URL: ``/get_reward?task=support_reply&reward=log_odds&sigma_weight=0.5&floor=-10``."""

import asyncio
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.serving.api.schema.score_bodies import MAX_CANDIDATES_TO_SCORE, ScoreItem, ScoreRequest
from raydebm.serving.api.scoring.score_items import scored_texts, task_of_scores
from raydebm.serving.core.faults import NO_ANSWER, check_tokens
from raydebm.serving.core.given import within_deadline
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.fields import Finite, NotNegative, Text

MAX_LOG_ODDS = 10.0
"""Log-odds of a proven answer; those of a refuted one are minus this, and no estimate lies beyond."""
MAX_PARALLEL = 16
"""Prompts of one request that are scored at once."""


class RewardSettings(BaseModel):
    """The URL's query. Reward = max(floor, value - sigma_weight * sigma)."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)

    task: Text | None = None
    """Default: the only served task; no constraints where it cannot read the prompt."""
    reward: Literal["energy", "log_odds"] = "energy"
    """energy: -(mu + lambda * E_constraint). log_odds: log(p / (1 - p)) within [-10, 10], where p is the probability
    that the answer is right, by the task's posterior over the request's responses to the same prompt."""
    lambda_: NotNegative | None = Field(None, alias="lambda")
    sigma_weight: NotNegative = 0.0
    floor: Finite = -10.0
    """Also the reward of a text without an answer: a trainer cannot use minus infinity."""


class RewardRequest(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    query: list[Text] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    """Prompt and response in one text each; the response alone is taken too."""
    prompts: list[Text]
    labels: list[Any] | None = None
    """Accepted and never looked at: this reward needs no reference answer."""

    @model_validator(mode="after")
    def _same_length(self) -> "RewardRequest":
        if len(self.prompts) != len(self.query):
            raise ValueError(f"prompts has {len(self.prompts)} texts and query has {len(self.query)}; they must match")
        return self


class RewardResponse(BaseModel):
    rewards: list[float]
    scores: list[Annotated[float, Field(ge=0, le=1)]]
    """1.0 where triage would accept the response at once, else 0.0; trainers filter by it."""
    extra_logs: dict[str, list[float]]


async def get_rewards(
    service: TriageService, request: RewardRequest, settings: RewardSettings, *, received: float | None = None
) -> RewardResponse:
    """Return rewards in the order of the queries. Responses to the same prompt are scored in one call.

    Raises:
        ServiceError: a wrong request; 413 for too many tokens; 503 for a response that could not be checked or scored,
            which a trainer would learn to be bad; 504 when the time is over.
    """
    texts = [query.removeprefix(prompt) for query, prompt in zip(request.query, request.prompts, strict=True)]
    groups: dict[str, list[int]] = {}
    for index, prompt in enumerate(request.prompts):
        groups.setdefault(prompt, []).append(index)
    num_chars = sum(len(prompt) + len(text) for prompt, text in zip(request.prompts, texts, strict=True))
    check_tokens(num_chars, service.bundle.max_score_tokens, "query")
    scored: dict[int, tuple[ScoreItem, Policy]] = {}
    slots = asyncio.Semaphore(MAX_PARALLEL)

    async def score(prompt: str, places: list[int]) -> None:
        async with slots:
            scores, policy = await _scored(service, prompt, [texts[place] for place in places], settings)
        scored.update(zip(places, [(each, policy) for each in scores], strict=True))

    async def score_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for prompt, places in groups.items():
                    group.create_task(score(prompt, places))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # it cancelled the others: without one reward there is no answer

    await within_deadline(score_all(), service.bundle.score_deadline_s(None), received=received)
    in_order = [scored[index] for index in range(len(texts))]
    for index, (each, _) in enumerate(in_order):
        if each.error not in (None, NO_ANSWER):
            raise ServiceError(f"response {index} of {len(texts)} has no reward: {each.error}", 503, "no_reward")
    logs = {name: [getattr(each, name) or 0.0 for each, _ in in_order] for name in ("mu", "sigma", "penalty")}
    logs["checked"] = [float(each.violations is not None) for each, _ in in_order]
    if any(policy.posterior is not None for _, policy in in_order):
        logs["confidence"] = [each.confidence or 0.0 for each, _ in in_order]
    return RewardResponse(
        rewards=[_reward(each, settings) for each, _ in in_order],
        scores=[float(_is_acceptable(each, policy)) for each, policy in in_order],
        extra_logs=logs,
    )


async def _scored(
    service: TriageService, prompt: str, texts: list[str], settings: RewardSettings
) -> tuple[list[ScoreItem], Policy]:
    asked = ScoreRequest.model_validate(
        {"task": settings.task, "problem": prompt, "candidates": texts, "lambda": settings.lambda_}
    )
    wants_log_odds = settings.reward == "log_odds"
    try:
        task = task_of_scores(service.bundle, asked)
    except ServiceError as error:
        is_optional = settings.task is None and not wants_log_odds
        if not is_optional or error.code not in ("not_a_problem", "missing_text"):
            raise
        task, asked = service.bundle.tasks[0], ScoreRequest(text_1=prompt, text_2=texts)
    policy = service.bundle.of(task).policies[task]
    if wants_log_odds and policy.posterior is None:
        message = f"task {task!r} has no fitted posterior, so there are no log-odds; run `raydebm calibrate` on its run"
        raise ServiceError(message, 400, "no_posterior", "reward")
    return (await scored_texts(service, asked))[1], policy


def _reward(score: ScoreItem, settings: RewardSettings) -> float:
    if score.energy is None or score.sigma is None:
        return settings.floor
    if settings.reward == "energy":
        value = -score.energy
    elif score.confidence is None:
        return settings.floor
    else:
        value = log_odds(score.confidence)
    return max(settings.floor, value - settings.sigma_weight * score.sigma)


def log_odds(probability: float) -> float:
    """Return log(p / (1 - p)), cut to [-MAX_LOG_ODDS, MAX_LOG_ODDS]; p may be 0 or 1."""
    if probability in (0, 1):
        return MAX_LOG_ODDS if probability else -MAX_LOG_ODDS
    return min(MAX_LOG_ODDS, max(-MAX_LOG_ODDS, math.log(probability) - math.log1p(-probability)))


def _is_acceptable(score: ScoreItem, policy: Policy) -> bool:
    if score.energy is None or score.sigma is None:
        return False
    if policy.rule == "posterior" and score.confidence is not None:
        return score.confidence >= policy.tau_accept
    return score.sigma <= policy.theta_sigma and not score.penalty
