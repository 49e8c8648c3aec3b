"""``POST /get_reward`` in OpenRLHF's remote reward shape, so that its ``--remote_rm_url`` can name this service.

The trainer's client sends the same three lists every time, so settings stand in the URL:
``http://host:8000/get_reward?task=support_reply&sigma_weight=0.5&floor=-10``.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raydebm.errors import ServiceError
from raydebm.serving.asking import AUTO
from raydebm.serving.bodies import NO_ANSWER
from raydebm.serving.schema import Finite, NotNegative, Text
from raydebm.serving.score_schema import MAX_CANDIDATES_TO_SCORE, ScoreItem, ScoreRequest
from raydebm.serving.service import TriageService

FLOOR = -10.0
MAX_PARALLEL = 16
"""Prompts of one request that are scored at once: the scorer's and the checker's queues belong to everybody."""


class RewardSettings(BaseModel):
    """The URL's query. Reward = max(floor, -(mu + lambda * E_constraint) - sigma_weight * sigma)."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)

    task: Text | None = None
    """None: a task that can read the prompt, else no constraints."""
    lambda_: NotNegative | None = Field(None, alias="lambda")
    sigma_weight: NotNegative = 0.0
    """What disagreement of the ensemble costs: above 0 a policy gains less where the verifier is unsure."""
    floor: Finite = FLOOR
    """The least reward, and that of a text without an answer. A trainer cannot use minus infinity."""


class RewardRequest(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    query: list[Text] = Field(min_length=1, max_length=MAX_CANDIDATES_TO_SCORE)
    """Prompt and response in one text each; the response alone is taken too."""
    prompts: list[Text]
    """What each query starts with."""
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
    """Per response: mu, sigma, penalty, and 1.0 where constraints were checked."""


async def get_rewards(
    service: TriageService, request: RewardRequest, settings: RewardSettings, *, request_id: str
) -> RewardResponse:
    """Rewards in the order of the queries. Responses to the same prompt are scored in one call.

    Raises:
        ServiceError: an unknown task, a prompt that the named task cannot read, a text that is too long; 503 when a
            response could not be checked or scored.
    """
    places: dict[str, list[int]] = {}
    for index, prompt in enumerate(request.prompts):
        places.setdefault(prompt, []).append(index)
    groups = [
        (prompt, indices, [request.query[index].removeprefix(prompt) for index in indices])
        for prompt, indices in places.items()
    ]
    turns = asyncio.Semaphore(MAX_PARALLEL)

    async def one(prompt: str, texts: list[str]) -> list[ScoreItem]:
        async with turns:
            return await _scored(service, prompt, texts, settings, request_id)

    try:
        async with asyncio.TaskGroup() as work:
            found = [work.create_task(one(prompt, texts)) for prompt, _, texts in groups]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # it cancelled the others: without one reward there is no answer
    items: dict[int, ScoreItem] = {}
    for (_, indices, _), scored in zip(groups, found, strict=True):
        items.update(zip(indices, scored.result(), strict=True))
    in_order = [items[index] for index in range(len(request.query))]
    _check_given(in_order)
    return _response(service, in_order, settings)


async def _scored(
    service: TriageService, prompt: str, texts: list[str], settings: RewardSettings, request_id: str
) -> list[ScoreItem]:
    asked = ScoreRequest.model_validate(
        {"task": settings.task, "problem": prompt, "candidates": texts, "lambda": settings.lambda_}
    )
    try:
        service.task_of(asked)
    except ServiceError as error:
        if settings.task not in (None, AUTO) or error.code not in ("not_a_problem", "missing_text"):
            raise
        asked = ScoreRequest(text_1=prompt, text_2=texts)
    return (await service.score(asked, request_id=request_id)).data


def _check_given(items: Sequence[ScoreItem]) -> None:
    """A text without an answer is worth the floor. One that could not be checked or scored is not: a trainer would
    learn that it is bad."""
    for index, item in enumerate(items):
        if item.error not in (None, NO_ANSWER):
            raise ServiceError(f"response {index} of {len(items)} has no reward: {item.error}", 503, "no_reward")


def _response(service: TriageService, items: Sequence[ScoreItem], settings: RewardSettings) -> RewardResponse:
    theta_sigma = service.bundle.policies[service.bundle.tasks[0]].theta_sigma
    return RewardResponse(
        rewards=[_reward(item, settings) for item in items],
        scores=[float(_acceptable(item, theta_sigma)) for item in items],
        extra_logs={
            "mu": [item.mu or 0.0 for item in items],
            "sigma": [item.sigma or 0.0 for item in items],
            "penalty": [item.penalty or 0.0 for item in items],
            "checked": [float(item.violations is not None) for item in items],
            "answered": [float(item.energy is not None) for item in items],
        },
    )


def _reward(item: ScoreItem, settings: RewardSettings) -> float:
    if item.energy is None or item.sigma is None:
        return settings.floor
    return max(settings.floor, -item.energy - settings.sigma_weight * item.sigma)


def _acceptable(item: ScoreItem, theta_sigma: float) -> bool:
    return item.energy is not None and item.sigma is not None and item.sigma <= theta_sigma and not item.penalty
