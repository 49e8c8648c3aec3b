"""The client: coroutines over asyncio's transport, which the blocking client runs over a blocking transport."""

import asyncio
import json
import os
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from inspect import isawaitable
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from raydebm_client.results import Progress, Result, ServiceError, TriageResult

T = TypeVar("T")
Problem = str | Mapping[str, Any]
"""A text, or an object with ``prompt`` and the task's own ``data``."""

DEFAULT_URL = "http://127.0.0.1:8000"
RETRIED = frozenset({429, 502, 503, 504})
MISREAD = (ValueError, KeyError, TypeError, AttributeError)
"""Errors from reading a response of an unexpected form."""
LONGEST_PAUSE_S = 60.0
"""Longest ``Retry-After`` in seconds to wait for; a longer one ends the retries."""
FIRST_PAUSE_S = 0.5
MAX_REWARDS = 64
"""Maximum number of responses in one reward request, which keeps its body below the service's usual limit."""


class _Io:
    """Input and output of the coroutines. With a blocking httpx client, they never suspend."""

    def __init__(self, http: Any) -> None:
        self.http, self._is_blocking = http, isinstance(http, httpx.Client)

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        response: httpx.Response = await _done(self.http.send(request, stream=stream))
        if not response.is_success:
            await _done(response.read() if self._is_blocking else response.aread())
        return response

    async def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        if self._is_blocking:
            for line in response.iter_lines():
                yield line
        else:
            async for line in response.aiter_lines():
                yield line

    async def close(self, opened: Any = None) -> None:
        opened = self.http if opened is None else opened
        await _done(opened.close() if self._is_blocking else opened.aclose())

    async def sleep(self, seconds: float) -> None:
        await _done((time if self._is_blocking else asyncio).sleep(seconds))


async def _done(value: Any) -> Any:
    return await value if isawaitable(value) else value


class AsyncRaydebm:
    """A client of one service, for asyncio, with concurrent requests. Close it, or use it in ``async with``.

    Every method raises ServiceError if the service refuses a request or cannot answer it, with the ``status``, ``code``
    and ``param`` of the service. Failed connections and responses 429, 502, 503 and 504 are retried, after
    ``Retry-After`` seconds if the service states them.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        max_retries: int = 2,
        transport: Any = None,
        _blocking: bool = False,
    ) -> None:
        """Connect to the service at ``base_url``, with or without ``/v1``. Default: RAYDEBM_BASE_URL, else local port
        8000. ``api_key`` defaults to RAYDEBM_API_KEY; ``timeout_s`` limits each read; ``transport`` is httpx's."""
        url = (base_url or os.environ.get("RAYDEBM_BASE_URL") or DEFAULT_URL).rstrip("/").removesuffix("/v1")
        self._shown_url = re.sub(r"//[^/?#]+@", "//***@", url)
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, got {self._shown_url!r}")
        if max_retries < 0 or not timeout_s > 0:
            raise ValueError(f"max_retries must be >= 0 and timeout_s > 0, got {max_retries} and {timeout_s}")
        key = api_key or os.environ.get("RAYDEBM_API_KEY")
        self._timeout_s, self._max_retries = timeout_s, max_retries
        http = (httpx.Client if _blocking else httpx.AsyncClient)(
            base_url=url,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout=timeout_s,
            transport=transport,
        )
        self._request = http.build_request
        self._io = _Io(http)

    async def __aenter__(self) -> "AsyncRaydebm":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._io.close()

    async def triage(
        self,
        problem: Problem,
        *,
        task: str | None = None,
        **overrides: Any,
    ) -> TriageResult:
        """Sample candidates, check and score them, and accept, try again or abstain.

        Args:
            task: name of a served task. Default: the only one.
            overrides: further fields of the body (docs/service.md); ``lambda_`` is ``lambda``.
        """
        body = _given(task=task, problem=problem, **overrides)
        return await self._do("/v1/triage", TriageResult, body)

    async def stream(
        self,
        problem: Problem,
        *,
        task: str | None = None,
        **overrides: Any,
    ) -> AsyncIterator[Progress | TriageResult]:
        """Yield progress while candidates arrive, then the result. Leaving the loop cancels the request."""
        body = _given(task=task, problem=problem, **overrides) | {"stream": True}
        response, result, event = await self._send("POST", "/v1/triage", stream=True, json=body), None, ""
        try:
            async for line in self._io.lines(response):
                if line.startswith("event:"):
                    event = line.removeprefix("event:").strip()
                elif not line:
                    event = ""
                if not line.startswith("data:") or line == "data: [DONE]":
                    continue
                found = json.loads(line.removeprefix("data:"))
                if event == "raydebm.progress":
                    yield Progress(event=str(found.pop("event", "")), facts=found)
                elif "error" in found:
                    error = found["error"]
                    raise ServiceError(error["message"], found.get("status", 503), error["code"], error.get("param"))
                elif event == "raydebm.result":
                    result = TriageResult(found)
        except httpx.TransportError as error:
            raise ServiceError(f"the stream broke off: {error!r}", 502, "stream_cut") from error
        except (httpx.DecodingError, *MISREAD) as error:
            raise _unexpected("the stream", error) from error
        finally:
            await self._io.close(response)
        if result is None:
            raise ServiceError("the stream ended before the decision; ask again", 502, "stream_cut")
        yield result

    async def score(
        self, problem: Problem, candidates: Sequence[str], *, task: str | None = None, lambda_: float | None = None
    ) -> Result:
        """Energies and violations of your own candidates, in order in ``data``. ``score`` is -energy, or None for a
        candidate without an answer."""
        body = _given(problem=problem, candidates=list(candidates), task=task, lambda_=lambda_)
        return await self._do("/v1/score", Result, body)

    async def rerank(
        self, query: str, documents: Sequence[str | Mapping[str, Any]], *, task: str | None = None, **settings: Any
    ) -> Result:
        """Rank documents by relevance to the query: ``results``, best first, with ``index`` in the request and
        ``relevance_score`` (-energy). Settings: ``top_n``, ``return_documents``."""
        own = None if task is None else {"task": task}
        body = _given(query=query, documents=documents, raydebm=own, **settings)
        return await self._do("/v1/rerank", Result, body)

    async def rewards(self, prompts: Sequence[str], responses: Sequence[str], **settings: Any) -> list[float]:
        """Rewards of responses: value - sigma_weight * sigma, at least floor.

        Args:
            prompts: prompt of each response. Responses to the same prompt are judged together.
            settings: ``task``, ``reward``, ``lambda_``, ``sigma_weight``, ``floor``. The value is -energy, or with
                ``reward="log_odds"`` log(p / (1 - p)) of the probability p that the response is right.
        """
        if len(prompts) != len(responses):
            raise ValueError(f"there are {len(prompts)} prompts and {len(responses)} responses; give a prompt for each")
        query, by_place = _given(**settings), dict[int, float]()
        for places in reward_groups(prompts):
            body = {"query": [responses[place] for place in places], "prompts": [prompts[place] for place in places]}
            found = await self._do("/get_reward", lambda reply: [float(each) for each in reply["rewards"]], body, query)
            if len(found) != len(places):
                raise _unexpected("/get_reward", ValueError(f"{len(found)} rewards for {len(places)} responses"))
            by_place.update(zip(places, found, strict=True))
        return [by_place[place] for place in range(len(prompts))]

    async def report_outcome(
        self,
        record_id: str | None,
        *,
        correct: bool,
        by: str,
        answer: str | None = None,
        note: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Result:
        """Report that the selected candidate of a decision was right or wrong. The report is stored when this returns;
        the result has its ``status`` and the ``outcome`` that counts.

        Args:
            record_id: id from a result (``TriageResult.record_id``) or from the list. The service refuses None.
            by: name of the reporter. A later report by the same name replaces the earlier one.
            answer: correct answer, in the form that the task parses.
            fields: outcomes of single fields by path, such as ``{"total": {"correct": False, "value": 118.4}}``.
        """
        body = _given(correct=correct, by=by, answer=answer, note=note, fields=fields)
        return await self._do(f"/v1/decisions/{quote(str(record_id), safe='')}/outcome", Result, body)

    async def models(self) -> list[str]:
        """Model ids for chat requests."""
        return await self._do("/v1/models", lambda body: [str(model["id"]) for model in body["data"]])

    async def health(self) -> dict[str, Any]:
        """State of the service. Raises ServiceError with status 503 while a part is not loaded."""
        return await self._do("/health", dict[str, Any])

    async def _do(self, path: str, read: Callable[[Any], T], body: Any = None, query: Any = None) -> T:
        response = await self._send("GET" if body is None else "POST", path, json=body, params=dict(query or {}))
        try:
            return read(json.loads(response.content))
        except MISREAD as error:
            raise _unexpected(path, error) from error

    async def _send(self, method: str, path: str, *, stream: bool = False, **content: Any) -> httpx.Response:
        """Send a request, with retries, and return its successful response. A streamed response is open and unread."""
        for attempt in range(self._max_retries + 1):
            retry_after = None
            try:
                response = await self._io.send(self._request(method, path, **content), stream=stream)
                if response.is_success:
                    return response
                failure = _error_of(response)
                if response.status_code not in RETRIED or response.headers.get("x-should-retry") == "false":
                    raise failure
                retry_after = response.headers.get("retry-after")
            except httpx.DecodingError as error:
                raise _unexpected(self._shown_url, error) from error
            except httpx.ReadTimeout as error:  # the work takes too long, and a retry would restart it
                message = f"{self._shown_url} sent nothing for {self._timeout_s:g} s; raise timeout_s"
                raise ServiceError(message, 504, "timeout") from error
            except httpx.TransportError as error:
                message = f"{self._shown_url} cannot be reached: {error!r}; is the service running (`raydebm serve`)?"
                failure = ServiceError(message, 503, "unreachable")
            pause = pause_before_retry(attempt, retry_after)
            if attempt == self._max_retries or pause > LONGEST_PAUSE_S:
                raise failure
            await self._io.sleep(pause)
        raise AssertionError("unreachable")


def _finished(work: Awaitable[T]) -> T:
    """Result of a coroutine that never suspends."""
    try:
        next(iter(work.__await__()))
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a blocking call waited")


def _blocking(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    @wraps(method)
    def call(client: "Raydebm", *args: Any, **kwargs: Any) -> T:
        return _finished(method(client._client, *args, **kwargs))

    return call


def _blocking_items(method: Callable[..., AsyncIterator[T]]) -> Callable[..., Iterator[T]]:
    @wraps(method)
    def call(client: "Raydebm", *args: Any, **kwargs: Any) -> Iterator[T]:
        items: Any = method(client._client, *args, **kwargs)
        try:
            while True:
                try:
                    item = _finished(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            _finished(items.aclose())

    return call


class Raydebm:
    """Blocking version of ``AsyncRaydebm``, thread-safe. Close it, or use it in ``with``."""

    def __init__(self, base_url: str | None = None, **settings: Any) -> None:
        """Take the arguments of ``AsyncRaydebm``."""
        self._client = AsyncRaydebm(base_url, **settings, _blocking=True)

    def __enter__(self) -> "Raydebm":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(AsyncRaydebm.close)
    triage = _blocking(AsyncRaydebm.triage)
    stream = _blocking_items(AsyncRaydebm.stream)
    score = _blocking(AsyncRaydebm.score)
    rerank = _blocking(AsyncRaydebm.rerank)
    rewards = _blocking(AsyncRaydebm.rewards)
    report_outcome = _blocking(AsyncRaydebm.report_outcome)
    models = _blocking(AsyncRaydebm.models)
    health = _blocking(AsyncRaydebm.health)


def reward_groups(prompts: Sequence[str]) -> list[list[int]]:
    """Indices of the responses of each HTTP request. Responses to the same prompt are in one request, because they are
    judged together, even if there are more than ``MAX_REWARDS`` of them."""
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


def pause_before_retry(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait after failed attempt number ``attempt``, from 0: the header's, else about 0.5, 1, 2 ..."""
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        seconds = -1.0
    if 0 <= seconds < float("inf"):
        return seconds
    return float(FIRST_PAUSE_S * 2**attempt * random.Random().uniform(0.75, 1.25))


def _given(**values: Any) -> dict[str, Any]:
    return {"lambda" if key == "lambda_" else key: value for key, value in values.items() if value is not None}


def _error_of(response: httpx.Response) -> ServiceError:
    """The error in a response of the service, or of a proxy before it."""
    status, request_id = response.status_code, response.headers.get("x-request-id")
    where = f" (HTTP {status}{f', request {request_id}' if request_id else ''})"
    try:
        error = json.loads(response.content)["error"]
        return ServiceError(f"{error['message']}{where}", status, error["code"], error.get("param"))
    except (ValueError, KeyError, TypeError):
        text = response.content[:200].decode("utf-8", "replace").strip()
        return ServiceError(f"the service answered {text or 'nothing'}{where}", status, "http_error")


def _unexpected(what: str, error: Exception) -> ServiceError:
    message = f"{what} returned an unexpected answer ({error!r}); check base_url"
    return ServiceError(message, 502, "unexpected_answer")
