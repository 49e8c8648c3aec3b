"""``POST /get_reward`` in OpenRLHF's remote reward shape, so that its ``--remote_rm_url`` can name this service.

The trainer's client sends the same three lists every time, so settings stand in the URL:
``http://host:8000/get_reward?task=support_reply&reward=log_odds&sigma_weight=0.5&floor=-10``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.serving.access.places import RequestPlaces
from raydebm.serving.api.schema.score_bodies import MAX_CANDIDATES_TO_SCORE, ScoreItem, ScoreRequest
from raydebm.serving.api.scoring.score_items import scored_texts, task_of_scores
from raydebm.serving.core.faults import NO_ANSWER, check_tokens
from raydebm.serving.core.given import within_deadline
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.fields import Finite, NotNegative, Text

FLOOR = -10.0
MAX_LOG_ODDS = 10.0
"""Log-odds of a proven answer; those of a refuted one are minus this, and no estimate lies beyond."""
MAX_PARALLEL = 16
"""Prompts of one request that are scored at once, where there are places: the scorer's and the checker's queues belong
to everybody."""


class RewardSettings(BaseModel):
    """The URL's query. Reward = max(floor, value - sigma_weight * sigma)."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)

    task: Text | None = None
    """Default: the only served task; no constraints where it cannot read the prompt."""
    reward: Literal["energy", "log_odds"] = "energy"
    """The value. energy: -(mu + lambda * E_constraint). log_odds: log(p / (1 - p)) within [-10, 10], where p is the
    probability that the answer is right, by the task's posterior over the request's responses to the same prompt."""
    lambda_: NotNegative | None = Field(None, alias="lambda")
    """Weight of E_constraint in the energy."""
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
    """Per response: mu, sigma, penalty, and 1.0 where constraints were checked; ``confidence`` where a task has a
    fitted posterior, 0.0 for a response without one."""


@dataclass(frozen=True, slots=True)
class _Scored:
    """One response with the policy that would decide about it."""

    score: ScoreItem
    policy: Policy


async def get_rewards(
    service: TriageService,
    request: RewardRequest,
    settings: RewardSettings,
    *,
    received: float | None = None,
    places: RequestPlaces | None = None,
) -> RewardResponse:
    """Rewards in the order of the queries. Responses to the same prompt are scored in one call.

    Args:
        service: has the ensemble.
        request: what to score.
        settings: of the URL.
        received: ``time.perf_counter()`` when the request arrived; None: now.
        places: in which prompts are worked on, each in one; None: there are enough.

    Raises:
        ServiceError: an unknown task, a prompt that the named task cannot read, a text that is too long, log-odds of
            a task without a fitted posterior; 413 for too many tokens in all texts together; 503 when a response could
            not be checked or scored; 504 when there is not enough time for all of them.
    """
    groups = _groups(request)
    num_chars = sum(len(group.prompt) + len(text) for group in groups for text in group.texts)
    check_tokens(num_chars, service.bundle.max_score_tokens, "query")
    work = _scored_groups(service, groups, settings, places or RequestPlaces())
    in_order = await within_deadline(work, service.bundle.score_deadline_s(None), received=received)
    _check_given([scored.score for scored in in_order])
    return _response(service, in_order, settings)


@dataclass(frozen=True, slots=True)
class _Group:
    """The responses of a request to one prompt."""

    prompt: str
    indices: list[int]
    """Where they stand in the request."""
    texts: list[str]


def _groups(request: RewardRequest) -> list[_Group]:
    by_prompt: dict[str, list[int]] = {}
    for index, prompt in enumerate(request.prompts):
        by_prompt.setdefault(prompt, []).append(index)
    return [
        _Group(prompt, indices, [request.query[index].removeprefix(prompt) for index in indices])
        for prompt, indices in by_prompt.items()
    ]


async def _scored_groups(
    service: TriageService, groups: Sequence[_Group], settings: RewardSettings, places: RequestPlaces
) -> list[_Scored]:
    """The responses of all groups, in the order of the request. Raises the first error of any group."""
    try:
        scored = await places.run([partial(_scored, service, group, settings) for group in groups], MAX_PARALLEL)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # it cancelled the others: without one reward there is no answer
    items: dict[int, _Scored] = {}
    for group, of_group in zip(groups, scored, strict=True):
        items.update(zip(group.indices, of_group, strict=True))
    return [items[index] for index in range(len(items))]


async def _scored(service: TriageService, group: _Group, settings: RewardSettings) -> list[_Scored]:
    asked = ScoreRequest.model_validate(
        {"task": settings.task, "problem": group.prompt, "candidates": group.texts, "lambda": settings.lambda_}
    )
    wants_log_odds = settings.reward == "log_odds"
    try:
        task = task_of_scores(service.bundle, asked)
    except ServiceError as error:
        is_optional = settings.task is None and not wants_log_odds
        if not is_optional or error.code not in ("not_a_problem", "missing_text"):
            raise
        task, asked = service.bundle.tasks[0], ScoreRequest(text_1=group.prompt, text_2=group.texts)
    policy = service.bundle.of(task).policies[task]
    if wants_log_odds and policy.posterior is None:
        message = f"task {task!r} has no fitted posterior, so there are no log-odds; run `raydebm calibrate` on its run"
        raise ServiceError(message, 400, "no_posterior", "reward")
    _, scores = await scored_texts(service, asked)
    return [_Scored(score, policy) for score in scores]


def _check_given(scores: Sequence[ScoreItem]) -> None:
    """A text without an answer is worth the floor. One that could not be checked or scored is not: a trainer would
    learn that it is bad."""
    for index, score in enumerate(scores):
        if score.error not in (None, NO_ANSWER):
            raise ServiceError(f"response {index} of {len(scores)} has no reward: {score.error}", 503, "no_reward")


def _response(service: TriageService, scored: Sequence[_Scored], settings: RewardSettings) -> RewardResponse:
    scores = [entry.score for entry in scored]
    logs = {
        "mu": [score.mu or 0.0 for score in scores],
        "sigma": [score.sigma or 0.0 for score in scores],
        "penalty": [score.penalty or 0.0 for score in scores],
        "checked": [float(score.violations is not None) for score in scores],
        "answered": [float(score.energy is not None) for score in scores],
    }
    if any(entry.policy.posterior is not None for entry in scored):
        logs["confidence"] = [score.confidence or 0.0 for score in scores]
    return RewardResponse(
        rewards=[_reward(score, settings) for score in scores],
        scores=[float(_is_acceptable(entry)) for entry in scored],
        extra_logs=logs,
    )


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
    """log(p / (1 - p)), cut to [-MAX_LOG_ODDS, MAX_LOG_ODDS]; p may be 0 or 1."""
    if probability in (0, 1):
        return MAX_LOG_ODDS if probability else -MAX_LOG_ODDS
    return min(MAX_LOG_ODDS, max(-MAX_LOG_ODDS, math.log(probability) - math.log1p(-probability)))


def _is_acceptable(scored: _Scored) -> bool:
    score, policy = scored.score, scored.policy
    if score.energy is None or score.sigma is None:
        return False
    if policy.rule == "posterior" and score.confidence is not None:
        return score.confidence >= policy.tau_accept
    return score.sigma <= policy.theta_sigma and not score.penalty
