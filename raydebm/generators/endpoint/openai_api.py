"""Candidates from any OpenAI-compatible endpoint, with retries, limits and costs.

Each candidate has its own request, because providers ignore or refuse ``n``, and ``n`` samples could not have their own
seeds.

A failed request becomes a candidate with ``error``. Keys are only in the Authorization header.

Independent of: journals, tasks, Ray.
"""

import asyncio
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from raydebm import tracing
from raydebm.config import OpenAIGenerator
from raydebm.errors import without_credentials
from raydebm.generators.endpoint.rate_limits import Backoff, Budget, RateLimit, Refusals, retry_after_s
from raydebm.generators.endpoint.transports import (
    AiohttpTransport,
    LateReplyError,
    LostReplyError,
    Replicas,
    Secret,
    Transport,
    TransportError,
    key_of,
)
from raydebm.generators.replies import Completion, ReplyError, read_reply
from raydebm.generators.requests import (
    NO_USAGE,
    TokenUsage,
    answered,
    candidate_facts,
    cost_of,
    unanswered,
    usage_cost,
    worst_cost,
)
from raydebm.identity import seed_for
from raydebm.records import Candidate, FailureKind, GenerationRequest

_LOG = logging.getLogger(__name__)


def _aiohttp_transport(config: OpenAIGenerator, key: Secret) -> Transport:
    return AiohttpTransport(config.base_url, api_key=key.value, headers=config.headers, timeout_s=config.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAccess:
    """Key of an endpoint, and limits shared with other endpoints."""

    key: Secret | None = None
    """API key. Default: read from the environment."""
    budget: Budget | None = None
    """Budget shared by all endpoints of a run."""
    shared_slots: AbstractAsyncContextManager[Any] | None = None
    """Semaphore over all endpoints of this process, acquired after the endpoint's own."""


@dataclass(slots=True)
class _Attempts:
    request: GenerationRequest
    may_repeat: bool
    """Whether to repeat an attempt that may have been billed. A late attempt is repeated only once."""
    costs: list[float] = field(default_factory=list)
    """Known costs of the replies."""

    @property
    def cost_usd(self) -> float | None:
        return math.fsum(self.costs) if self.costs else None


class OpenAIApiGenerator:
    """Generator with one model behind one endpoint. It belongs to one event loop until ``aclose``."""

    def __init__(
        self,
        config: OpenAIGenerator,
        access: EndpointAccess | None = None,
        *,
        transport: Callable[[OpenAIGenerator, Secret], Transport] = _aiohttp_transport,
        backoff: Backoff | None = None,
    ) -> None:
        """Set up access. Raises MissingKeyError if neither ``access`` nor the environment has the endpoint's key."""
        access = access or EndpointAccess()
        self.name = config.name
        self._config = config
        self._key = access.key or key_of(config)
        self._budget = access.budget or Budget(None)
        self._backoff = backoff or Backoff()
        servers = {
            url: transport(config.model_copy(update={"base_url": url}), self._key)
            for url in dict.fromkeys(config.addresses)
        }
        self._transport = Replicas(servers) if len(servers) > 1 else servers[config.base_url]
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._shared_slots = access.shared_slots or nullcontext()
        self._rate = RateLimit(config.requests_per_minute)
        self._jitter = random.Random(seed_for("jitter", config.name, os.getpid()))
        # First come, first served: one request waits for the rate limit, the others for the lock.
        self._turn = asyncio.Lock()
        self._refusals = Refusals()
        self._is_free = cost_of(config, 1, 1) == 0.0
        self._asks_logprobs = config.logprobs

    async def stream(
        self, requests: Sequence[GenerationRequest], *, may_repeat: bool = True
    ) -> AsyncIterator[Candidate]:
        """One candidate per request, in order of arrival. All requests are queued at once.

        Args:
            requests: requests to this endpoint.
            may_repeat: whether to repeat a request that may have been billed although its reply was later than
                ``timeout_s``, broke off or cannot be read. Requests to free endpoints are always repeated.
        """
        tasks = [asyncio.create_task(self._candidate(request, may_repeat=may_repeat)) for request in requests]
        try:
            for next_done in asyncio.as_completed(tasks):
                yield await next_done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _candidate(self, request: GenerationRequest, *, may_repeat: bool) -> Candidate:
        # Under a limit in US dollars nothing may be billed twice, because the limit assumes one answer per request.
        call = _Attempts(request, may_repeat=self._is_free or (may_repeat and not self._budget.is_limited))
        with tracing.span("candidate", {"gen_ai.request.model": self._config.model}, kind="client") as span:
            async with self._slots, self._shared_slots:
                started = time.monotonic()
                try:
                    completion = await self._complete(call)
                except (ReplyError, TransportError) as error:
                    self._budget.add_lost(call.cost_usd)
                    candidate = self._failed(call, error)
                    span.fail("no_answer")
                else:
                    self._budget.add(call.cost_usd)
                    candidate = answered(
                        request,
                        completion.text,
                        usage=replace(completion.usage, cost_usd=call.cost_usd),
                        reasoning=completion.reasoning,
                        finish_reason=completion.finish_reason,
                        latency_s=time.monotonic() - started,
                        logprobs=completion.logprobs,
                    )
            span.set(candidate_facts(candidate))
        return candidate

    def _failed(self, call: _Attempts, error: ReplyError | TransportError) -> Candidate:
        usage, failure = (error.usage, error.failure) if isinstance(error, ReplyError) else (NO_USAGE, None)
        usage = replace(usage, cost_usd=self._cost_of_failed(call, error))
        return unanswered(call.request, self._explain(error), failure=failure, usage=usage)

    def _cost_of_failed(self, call: _Attempts, error: ReplyError | TransportError) -> float | None:
        """Maximum cost of all attempts. None if unknown.

        A last attempt without a stated cost may have been billed, even if earlier ones were refused for free.
        """
        if isinstance(error, ReplyError) and (
            error.failure is not None or usage_cost(self._config, error.usage) is not None
        ):  # the error says that nothing was sent, or states its cost
            return call.cost_usd
        if not call.cost_usd:
            return None
        worst = worst_cost(self._config, call.request)
        return None if worst is None else call.cost_usd + worst

    async def _complete(self, call: _Attempts) -> Completion:
        request, attempt = call.request, 0
        while True:
            await self._wait_for_turn(request)
            retry_s: float | None = None
            body = chat_body(self._config, request, logprobs=self._asks_logprobs)
            try:
                reply = await self._transport.post(body)
                retry_s = retry_after_s(reply.headers, now=time.time())
                completion = read_reply(reply)
                self._refusals.note_success(request)
                self._bill(call, completion.usage)
                return completion
            except ReplyError as error:
                self._bill(call, error.usage)
                if body.get("logprobs") and self._refuses_logprobs(error):
                    continue
                self._note_refusal(error, request)
                is_lost = error.is_lost and usage_cost(self._config, error.usage) is None
                if is_lost:
                    self._budget.add_lost(worst_cost(self._config, request))
                if not error.retry or (is_lost and not call.may_repeat) or attempt >= self._config.max_retries:
                    raise
            except LostReplyError as error:
                self._budget.add_lost(worst_cost(self._config, request))
                if not call.may_repeat or attempt >= self._config.max_retries:
                    raise
                if isinstance(error, LateReplyError):
                    call.may_repeat = False
            except TransportError:
                if attempt >= self._config.max_retries:
                    raise
            wait_s = self._backoff.wait_s(attempt, chance=self._jitter.random(), retry_after_s=retry_s)
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _wait_for_turn(self, request: GenerationRequest) -> None:
        async with self._turn:
            self._refuse_if_hopeless(request)
            if wait_s := self._rate.wait_s(time.monotonic()):
                await asyncio.sleep(wait_s)
                self._refuse_if_hopeless(request)
            self._rate.take(time.monotonic())

    def _refuse_if_hopeless(self, request: GenerationRequest) -> None:
        if (refusal := self._budget.refusal()) is not None:
            raise ReplyError(refusal, failure=FailureKind.BUDGET)
        if (refusal := self._refusals.applying_to(request, now=time.monotonic())) is not None:
            reason = f"not sent, because the endpoint refused an earlier request: {refusal}"
            raise ReplyError(reason, failure=FailureKind.NOT_SENT)

    def _bill(self, call: _Attempts, usage: TokenUsage) -> None:
        if (cost_usd := usage_cost(self._config, usage)) is not None:
            call.costs.append(cost_usd)

    def _refuses_logprobs(self, error: ReplyError) -> bool:
        """Whether to repeat the request without log-probabilities, which the endpoint refuses. Later ones omit them."""
        refused = error.status is not None and 400 <= error.status < 500 and "logprob" in str(error).lower()
        if refused and self._asks_logprobs:
            self._asks_logprobs = False
            _LOG.warning(
                "%s does not return log-probabilities, so the candidates of %s have none: %s",
                self._config.base_url,
                self.name,
                self._explain(error),
            )
        return refused and "logprobs" not in self._config.extra_body

    def _note_refusal(self, error: ReplyError, request: GenerationRequest) -> None:
        if error.fatal:
            self._refusals.note_all(self._explain(error), now=time.monotonic())
        elif error.doubtful:
            self._refusals.note_doubtful(request, self._explain(error), now=time.monotonic())

    def _explain(self, error: ReplyError | TransportError) -> str:
        return failure_text(error, self._config, key=self._key.value)


def chat_body(config: OpenAIGenerator, request: GenerationRequest, *, logprobs: bool) -> dict[str, Any]:
    """Body of a request to an endpoint."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [dict(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": request.seed,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if logprobs:
        body["logprobs"] = True
    if request.response_format is not None:
        body["response_format"] = json.loads(request.response_format)
    return body | config.extra_body


def failure_text(error: ReplyError | TransportError, config: OpenAIGenerator, *, key: str | None) -> str:
    """Error of a failed candidate, without passwords (such as a proxy's) and without the key, which an endpoint may
    repeat in its message."""
    text = str(error)
    status, failure = (error.status, error.failure) if isinstance(error, ReplyError) else (None, None)
    if status in (401, 403):
        variable = config.api_key_env
        source = f"the key in environment variable {variable}" if variable else "a request without a key"
        text += f" (the endpoint refused {source}; check the key, or set the generator's api_key_env)"
    elif status == 404:
        text += f" (is {config.model!r} a model of this endpoint, and does it take these parameters?)"
    elif status == 402:
        text += " (add credit at the provider or ask for fewer tokens, then repeat the command with --retry-failed)"
    text = without_credentials(text if failure is not None else f"{config.base_url}: {text}")
    return text.replace(key, "***") if key else text
