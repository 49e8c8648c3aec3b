"""Candidates from any OpenAI-compatible endpoint: one request per candidate, retried, limited, counted.

Failures of a request are rows with ``error``. Keys appear in the Authorization header and nowhere else.

Does not know: journals, tasks, Ray.
"""

import asyncio
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from raydebm import tracing
from raydebm.config import OpenAIGenerator
from raydebm.errors import MissingKeyError, without_credentials
from raydebm.generators.endpoint.hedging import Hedging
from raydebm.generators.endpoint.rate_limits import Backoff, Budget, RateLimit, retry_after_s
from raydebm.generators.endpoint.refusals import Refusals
from raydebm.generators.endpoint.replicas import Replicas
from raydebm.generators.endpoint.transports import AiohttpTransport, CarrierError, LateReplyError, Transport
from raydebm.generators.replies import Completion, ReplyError, read_reply
from raydebm.generators.requests import NO_USAGE, TokenUsage, answered, candidate_facts, cost_of, unanswered, worst_cost
from raydebm.identity import seed_for
from raydebm.records import Candidate, FailureKind, GenerationRequest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key on its way to another process. Shows itself only when asked."""

    value: str | None

    def __repr__(self) -> str:
        return "Secret(***)"


def key_of(config: OpenAIGenerator) -> Secret:
    """The endpoint's key, from the environment; ``Secret(None)`` for endpoints without one.

    Raises:
        MissingKeyError: the environment variable is not set.
    """
    if config.api_key_env is None:
        return Secret(None)
    value = os.environ.get(config.api_key_env)
    if not value:
        raise MissingKeyError(config.name, config.api_key_env)
    return Secret(value)


def _aiohttp_transport(config: OpenAIGenerator, key: Secret) -> Transport:
    return AiohttpTransport(config.base_url, api_key=key.value, headers=config.headers, timeout_s=config.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAccess:
    """With which key an endpoint is asked, and what it shares with others."""

    key: Secret | None = None
    """None: read from the environment."""
    budget: Budget | None = None
    """Shared by all endpoints of a run."""
    shared_slots: AbstractAsyncContextManager[Any] | None = None
    """A semaphore over all endpoints of this process, entered after the endpoint's own."""
    hedging: Hedging | None = None
    """Sends slow requests a second time; None: never."""


def _over_servers(config: OpenAIGenerator, connect: Callable[[OpenAIGenerator], Transport]) -> Transport:
    if not config.replica_urls:
        return connect(config)
    urls = dict.fromkeys((config.base_url, *config.replica_urls))
    return Replicas({url: connect(config.model_copy(update={"base_url": url})) for url in urls})


@dataclass(slots=True)
class _Draw:
    """One candidate's requests to the endpoint."""

    request: GenerationRequest
    may_repeat: bool
    """Whether one that may be billed already may be followed by another. At most one is."""
    costs: list[float] = field(default_factory=list)
    """Costs of every reply, as far as they are known."""

    @property
    def cost_usd(self) -> float | None:
        return math.fsum(self.costs) if self.costs else None


class OpenAIApiGenerator:
    """One model behind one endpoint. Used from one event loop at a time; ``aclose`` frees it for another."""

    def __init__(
        self,
        config: OpenAIGenerator,
        access: EndpointAccess | None = None,
        *,
        transport: Callable[[OpenAIGenerator, Secret], Transport] = _aiohttp_transport,
        backoff: Backoff | None = None,
    ) -> None:
        """Raises MissingKeyError when neither ``access`` nor the environment has the endpoint's key."""
        access = access or EndpointAccess()
        self.name = config.name
        self._config = config
        self._key = access.key or key_of(config)
        self._budget = access.budget or Budget(None)
        self._backoff = backoff or Backoff()
        self._transport = _over_servers(config, lambda server: transport(server, self._key))
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._shared_slots = access.shared_slots or nullcontext()
        self._rate = RateLimit(config.requests_per_minute)
        self._jitter = random.Random(seed_for("jitter", config.name, os.getpid()))
        self._turn = asyncio.Lock()  # in the order of asking, one waits for the rate limit and the others for it
        self._refusals = Refusals()
        self._is_free = cost_of(config, 1, 1) == 0.0
        self._hedging = access.hedging
        self._asks_logprobs = config.logprobs

    async def stream(self, requests: Sequence[GenerationRequest], *, hedge: bool = True) -> AsyncIterator[Candidate]:
        """One candidate per request, in order of arrival; all requests are queued at once.

        Args:
            requests: what to draw.
            hedge: whether one that may be billed already may be sent a second time: a slow one, where this generator
                does so, and one whose reply did not come within ``timeout_s``. Free endpoints are asked again anyway.
        """
        tasks = [asyncio.create_task(self._candidate(request, hedge=hedge)) for request in requests]
        try:
            for next_done in asyncio.as_completed(tasks):
                yield await next_done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _candidate(self, request: GenerationRequest, *, hedge: bool) -> Candidate:
        with tracing.span("candidate", {"gen_ai.request.model": self._config.model}, kind="client") as span:
            candidate = await self._drawn(request, hedge=hedge)
            span.set(candidate_facts(candidate))
            if candidate.text is None:
                span.fail("no_answer")
        return candidate

    async def _drawn(self, request: GenerationRequest, *, hedge: bool) -> Candidate:
        # Under a limit in US dollars nothing may be billed twice, for the limit reckons with one answer per request.
        draw = _Draw(request, may_repeat=self._is_free or (hedge and not self._budget.is_limited))
        async with self._slots, self._shared_slots:
            started = time.monotonic()
            try:
                completion = await self._first_of(draw, hedge=hedge)
            except (ReplyError, CarrierError) as error:
                self._budget.add_lost(draw.cost_usd)
                usage, failure = (error.usage, error.failure) if isinstance(error, ReplyError) else (NO_USAGE, None)
                return unanswered(
                    request, self._explain(error), usage=replace(usage, cost_usd=draw.cost_usd), failure=failure
                )
        self._budget.add(draw.cost_usd)
        return answered(
            request,
            completion.text,
            usage=replace(completion.usage, cost_usd=draw.cost_usd),
            reasoning=completion.reasoning,
            finish_reason=completion.finish_reason,
            latency_s=time.monotonic() - started,
            logprobs=completion.logprobs,
        )

    async def _first_of(self, draw: _Draw, *, hedge: bool) -> Completion:
        """The completion that counts."""
        if self._hedging is None or not hedge:
            return await self._complete(draw)
        # The first request has its place already.
        places: Iterator[AbstractAsyncContextManager[Any]] = iter((nullcontext(), self._slots))

        async def send() -> Completion:
            place = next(places)
            if place is self._slots:  # the second request, after which there is no third
                draw.may_repeat = False
            async with place:
                return await self._complete(draw)

        return await self._hedging.first_of(send, has_place=lambda: draw.may_repeat and not self._slots.locked())

    async def _complete(self, draw: _Draw) -> Completion:
        attempt = 0
        while True:
            await self._wait_for_turn(draw.request)
            wished_s: float | None = None
            body = self._body(draw.request)
            try:
                reply = await self._transport.post(body)
                wished_s = retry_after_s(reply.headers, now=time.time())
                completion = read_reply(reply)
                self._refusals.note_success(draw.request)
                self._bill(draw, completion.usage)
                return completion
            except ReplyError as error:
                self._bill(draw, error.usage)
                if body.get("logprobs") and self._refuses_logprobs(error):
                    continue
                self._note_refusal(error, draw.request)
                if not error.retry or attempt >= self._config.max_retries:
                    raise
            except LateReplyError:
                self._budget.add_lost(worst_cost(self._config, draw.request))
                if not draw.may_repeat or attempt >= self._config.max_retries:
                    raise
                draw.may_repeat = False
            except CarrierError:
                if attempt >= self._config.max_retries:
                    raise
            wait_s = self._backoff.wait_s(attempt, chance=self._jitter.random(), retry_after_s=wished_s)
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
        if (refusal := self._refusals.standing(request, now=time.monotonic())) is not None:
            reason = f"not sent, because the endpoint refused an earlier request: {refusal}"
            raise ReplyError(reason, failure=FailureKind.NOT_SENT)

    def _bill(self, draw: _Draw, usage: TokenUsage) -> None:
        """The cost as the endpoint states it, else by the recipe's prices."""
        cost_usd = usage.cost_usd
        if cost_usd is None:
            cost_usd = cost_of(self._config, usage.prompt_tokens, usage.completion_tokens)
        if cost_usd is not None:
            draw.costs.append(cost_usd)

    def _refuses_logprobs(self, error: ReplyError) -> bool:
        """Whether this is why a request failed; no later request then asks for log-probabilities."""
        refused = error.status is not None and 400 <= error.status < 500 and "logprob" in str(error).lower()
        if refused and self._asks_logprobs:
            self._asks_logprobs = False
            _LOG.warning(
                "%s gives no log-probabilities, so the candidates of %s have none: %s",
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

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [dict(message) for message in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._asks_logprobs:
            body["logprobs"] = True
        if request.response_format is not None:
            body["response_format"] = json.loads(request.response_format)
        return body | self._config.extra_body

    def _explain(self, error: ReplyError | CarrierError) -> str:
        """The error row's text: endpoint, what happened, the remedy, and never the key."""
        text = str(error)
        status, failure = (error.status, error.failure) if isinstance(error, ReplyError) else (None, None)
        if status in (401, 403):
            variable = self._config.api_key_env
            source = f"the key in environment variable {variable}" if variable else "a request without a key"
            text += f" (the endpoint refused {source}; check the key, or set the generator's api_key_env)"
        elif status == 404:
            text += f" (is {self._config.model!r} a model of this endpoint, and does it take these parameters?)"
        elif status == 402:
            text += " (add credit at the provider or ask for fewer tokens, then repeat the command with --retry-failed)"
        if self._key.value:
            text = text.replace(self._key.value, "***")
        return without_credentials(text if failure is not None else f"{self._config.base_url}: {text}")
