"""Requests and answers of the client, without a network: what is sent, how it is read, when it is sent again."""

import json
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from raydebm_client.errors import ServiceError
from raydebm_client.results import (
    OutcomeResult,
    Progress,
    RerankResult,
    ScoreResult,
    TriageResult,
    outcome_result,
    rerank_result,
    rewards,
    score_result,
    triage_result,
)

T = TypeVar("T")
Problem = str | Mapping[str, Any]
"""A text, or an object with ``prompt`` and the task's own ``data``."""

DEFAULT_URL = "http://127.0.0.1:8000"
RETRIED = frozenset({429, 502, 503, 504})
LOST = (httpx.TransportError, httpx.DecodingError)
"""What httpx raises where an answer does not arrive."""
FINAL = (httpx.ReadTimeout, httpx.DecodingError)
"""Losses after which nothing is asked for again: work merely takes too long, or would come again as it came."""
MISREAD = (ValueError, KeyError, TypeError, AttributeError)
"""What reading an answer raises that has another form."""
LONGEST_PAUSE_S = 60.0
"""A service that wants to be left alone for longer is not waited for."""
FIRST_PAUSE_S = 0.5
MAX_REWARDS = 64
"""Responses of one reward request, so that its body stays below the service's usual limit."""


class Overrides(TypedDict, total=False):
    """What one request may change; ``docs/service.md`` explains each."""

    lambda_: float
    theta_sigma: float
    theta_abstain: float
    signal: Literal["selected", "pool_mean", "equation"]
    rule: Literal["paper", "posterior"]
    profile: Literal["vote", "best_author", "energy", "energy_vote", "posterior"]
    tau_accept: float
    tau_answer: float
    max_passes: int
    num_samples: int
    num_regenerate: int
    fresh_share: float
    waves: Sequence[int]
    epsilon: float
    eta: float
    budget: int
    deadline_ms: int
    max_usd: float
    generators: Sequence[str]
    seed: int
    return_candidates: bool
    n: int
    policy: str


class RewardSettings(TypedDict, total=False):
    """How responses are rewarded; ``docs/service.md`` explains each."""

    task: str | None
    reward: Literal["energy", "log_odds"]
    lambda_: float | None
    sigma_weight: float
    floor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One HTTP request, and what becomes of its answer."""

    path: str
    read: Callable[[Any], T]
    body: Mapping[str, Any] | None = None
    """None: GET."""
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client talks. See ``Raydebm``."""

    base_url: str
    shown_url: str
    """The same without user and password, for messages."""
    headers: Mapping[str, str]
    timeout_s: float
    max_retries: int

    @classmethod
    def of(cls, base_url: str | None, api_key: str | None, timeout_s: float, max_retries: int) -> "Settings":
        """Arguments first, then RAYDEBM_BASE_URL and RAYDEBM_API_KEY, then the defaults.

        Raises:
            ValueError: a value that cannot be used.
        """
        url = (base_url or os.environ.get("RAYDEBM_BASE_URL") or DEFAULT_URL).rstrip("/").removesuffix("/v1")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, got {_without_user(url)!r}")
        if max_retries < 0 or not timeout_s > 0:
            raise ValueError(f"max_retries must be >= 0 and timeout_s > 0, got {max_retries} and {timeout_s}")
        key = api_key or os.environ.get("RAYDEBM_API_KEY")
        return cls(
            base_url=url,
            shown_url=_without_user(url),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout_s=timeout_s,
            max_retries=max_retries,
        )


def _without_user(url: str) -> str:
    return re.sub(r"//[^/?#]+@", "//***@", url)


# ---- what is sent ------------------------------------------------------------------------------------------------


def triage_body(
    problem: Problem | None,
    messages: Sequence[Mapping[str, Any]] | None,
    task: str | None,
    overrides: Overrides,
) -> dict[str, Any]:
    asked: dict[str, Any] = {"task": task, "problem": problem, "messages": messages}
    return {key: value for key, value in (asked | _named(overrides, Overrides)).items() if value is not None}


def triage_call(body: Mapping[str, Any]) -> Call[TriageResult]:
    return Call(path="/v1/triage", body=body, read=triage_result)


def score_call(
    problem: Problem, candidates: Sequence[str], task: str | None, lambda_: float | None
) -> Call[ScoreResult]:
    body = {"problem": problem, "candidates": list(candidates), "task": task, "lambda": lambda_}
    return Call(path="/v1/score", body=given(body), read=score_result)


def rerank_call(
    query: str,
    documents: Sequence[str | Mapping[str, Any]],
    top_n: int | None,
    return_documents: bool,
    task: str | None,
) -> Call[RerankResult]:
    body = {
        "query": query,
        "documents": list(documents),
        "top_n": top_n,
        "return_documents": return_documents,
        "raydebm": None if task is None else {"task": task},
    }
    return Call(path="/v1/rerank", body=given(body), read=rerank_result)


def check_paired(prompts: Sequence[str], responses: Sequence[str]) -> None:
    """Raises ValueError unless there is one prompt for each response."""
    if len(prompts) != len(responses):
        raise ValueError(f"there are {len(prompts)} prompts and {len(responses)} responses; give a prompt for each")


def rewards_call(
    prompts: Sequence[str], responses: Sequence[str], places: Sequence[int], settings: RewardSettings
) -> Call[dict[int, float]]:
    """The rewards of the responses at these places, by place."""
    body = {"query": [responses[place] for place in places], "prompts": [prompts[place] for place in places]}
    query = _named(settings, RewardSettings)
    return Call(
        path="/get_reward", body=body, query=query, read=lambda reply: dict(zip(places, rewards(reply), strict=True))
    )


def reward_groups(prompts: Sequence[str]) -> list[list[int]]:
    """Places of the responses of one HTTP request each. Responses to the same prompt stay together, because they are
    judged together, also where there are more than ``MAX_REWARDS`` of them."""
    by_prompt: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        by_prompt.setdefault(prompt, []).append(place)
    requests: list[list[int]] = []
    for places in by_prompt.values():
        if requests and len(requests[-1]) + len(places) <= MAX_REWARDS:
            requests[-1] += places
        else:
            requests.append(places)
    return requests


def stream_body(
    problem: Problem | None,
    messages: Sequence[Mapping[str, Any]] | None,
    task: str | None,
    overrides: Overrides,
) -> dict[str, Any]:
    if (problem is None) == (messages is None):
        raise ValueError("give exactly one of problem and messages")
    return {**triage_body(problem, messages, task, overrides), "stream": True}


def outcome_call(record_id: str, correct: bool, by: str, answer: str | None, note: str | None) -> Call[OutcomeResult]:
    body = {"correct": correct, "by": by, "answer": answer, "note": note}
    return Call(path=f"/v1/decisions/{quote(record_id, safe='')}/outcome", body=given(body), read=outcome_result)


def models_call() -> Call[list[str]]:
    return Call(path="/v1/models", read=lambda body: [str(model["id"]) for model in body["data"]])


def health_call() -> Call[dict[str, Any]]:
    return Call(path="/health", read=dict)


def _named(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    unknown = sorted(set(values) - set(kind.__annotations__))
    if unknown:
        known = ", ".join(kind.__annotations__)
        raise ValueError(f"unknown argument(s) {', '.join(unknown)}; known: {known}")
    return {"lambda" if key == "lambda_" else key: value for key, value in values.items() if value is not None}


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {key: value for key, value in values.items() if value is not None}


# ---- what comes back ---------------------------------------------------------------------------------------------


def error_of(status: int, content: bytes, headers: Mapping[str, str]) -> ServiceError:
    """The service's error form, or whatever a proxy wrote instead."""
    request_id = headers.get("x-request-id")
    where = f" (HTTP {status}{f', request {request_id}' if request_id else ''})"
    try:
        error = json.loads(content)["error"]
        return ServiceError(f"{error['message']}{where}", status, error["code"], error.get("param"))
    except (ValueError, KeyError, TypeError):
        text = content[:200].decode("utf-8", "replace").strip()
        return ServiceError(f"the service answered {text or 'nothing'}{where}", status, "http_error")


def lost(error: httpx.RequestError, settings: Settings) -> ServiceError:
    """A connection that failed, or gave what cannot be unpacked."""
    if isinstance(error, httpx.DecodingError):
        return unexpected(settings.shown_url, error)
    if isinstance(error, httpx.ReadTimeout):
        message = f"{settings.shown_url} said nothing for {settings.timeout_s:g} s; raise timeout_s"
        return ServiceError(message, 504, "timeout")
    message = f"{settings.shown_url} cannot be reached: {error!r}; is the service running (`raydebm serve`)?"
    return ServiceError(message, 503, "unreachable")


def answer_of(call: Call[T], content: bytes) -> T:
    """The typed answer. Raises ServiceError when it is not what the service answers."""
    try:
        return call.read(json.loads(content))
    except MISREAD as error:
        raise unexpected(call.path, error) from error


def unexpected(what: str, error: Exception) -> ServiceError:
    """An answer that is not the service's."""
    message = f"{what} answered something else than expected ({error!r}); check base_url"
    return ServiceError(message, 502, "unexpected_answer")


def content(call: Call[Any]) -> dict[str, Any]:
    """Arguments of one request for httpx."""
    return {"json": call.body, "params": dict(call.query)}


def may_retry(failure: ServiceError, headers: Mapping[str, str]) -> bool:
    """Whether the same request may do better in a moment; the service says where it would not."""
    return failure.status in RETRIED and headers.get("x-should-retry", "").lower() != "false"


def pause_before_retry(attempt: int, *, max_retries: int, retry_after: str | None) -> float | None:
    """Seconds to wait before the next try; None: give up.

    Args:
        attempt: tries so far, from 1.
        max_retries: further tries.
        retry_after: the header, in seconds or as an HTTP date.
    """
    if attempt > max_retries:
        return None
    wanted = _seconds(retry_after)
    if wanted is None:
        return float(FIRST_PAUSE_S * 2 ** (attempt - 1) * random.Random().uniform(0.75, 1.25))
    return wanted if wanted <= LONGEST_PAUSE_S else None


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
        return seconds if 0 <= seconds < float("inf") else None
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):  # the latter for a year of many digits
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


class StreamReader:
    """Turns the lines of a stream into progress and, at its end, the result."""

    def __init__(self) -> None:
        self._event = ""
        self._data: list[str] = []
        self._result: TriageResult | None = None

    def feed(self, line: str) -> Progress | None:
        """One line without its end; comments and unknown events are skipped.

        Raises:
            ServiceError: the service reports one in the stream, or what comes is not the service's.
        """
        if line.startswith("event:"):
            self._event = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            event, text = self._event, "\n".join(self._data)
            self._event, self._data = "", []
            try:
                return self._take(event, text)
            except MISREAD as error:
                raise unexpected("the stream", error) from error
        return None

    def _take(self, event: str, text: str) -> Progress | None:
        if text == "[DONE]":
            return None
        body = json.loads(text)
        if event == "raydebm.progress":
            return Progress(event=str(body.pop("event", "")), facts=body)
        if "error" in body:
            error = body["error"]
            raise ServiceError(error["message"], body.get("status", 503), error["code"], error.get("param"))
        if event == "raydebm.result":
            self._result = triage_result(body)
        return None

    def result(self) -> TriageResult:
        """Raises ServiceError when the stream ended before the decision."""
        if self._result is None:
            raise ServiceError("the stream ended before the decision; ask again", 502, "stream_cut")
        return self._result
