"""Candidates from any OpenAI-compatible endpoint: one request per candidate, retried, limited, counted.

Failures of a request are rows with ``error``. Keys appear in the Authorization header and nowhere else.

Does not know: journals, tasks, Ray.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from raydebm import tracing
from raydebm.config import OpenAIGenerator
from raydebm.errors import MissingKeyError
from raydebm.generators.hedging import Hedging
from raydebm.generators.limits import Backoff, Budget, RateLimit, retry_after_s
from raydebm.generators.replies import Completion, ReplyError, read_reply, stated_cost
from raydebm.generators.requests import answered, candidate_facts, cost_of, unanswered
from raydebm.generators.transports import AiohttpTransport, CarrierError, Transport
from raydebm.identity import seed_for
from raydebm.records import Candidate, GenerationRequest

FATAL_PAUSE_S = 30.0
"""After a refusal that no request can escape (bad key, no credit, unknown model), others fail at once for so long."""


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


def aiohttp_transport(config: OpenAIGenerator, key: Secret) -> Transport:
    return AiohttpTransport(config.base_url, api_key=key.value, headers=config.headers, timeout_s=config.timeout_s)


class OpenAIApiGenerator:
    """One model behind one endpoint. Used from one event loop at a time; ``aclose`` frees it for another."""

    def __init__(
        self,
        config: OpenAIGenerator,
        *,
        key: Secret | None = None,
        budget: Budget | None = None,
        shared_slots: AbstractAsyncContextManager[Any] | None = None,
        transport: Callable[[OpenAIGenerator, Secret], Transport] = aiohttp_transport,
        backoff: Backoff | None = None,
        hedging: Hedging | None = None,
    ) -> None:
        """
        Args:
            key: the endpoint's key; None reads it from the environment.
            budget: shared by all generators of a run.
            shared_slots: a semaphore over all endpoints of this process, entered after the endpoint's own.
            hedging: sends slow requests a second time; None: never.

        Raises:
            MissingKeyError: the environment holds no key.
        """
        self.name = config.name
        self._config = config
        self._key = key if key is not None else key_of(config)
        self._budget = budget or Budget(None)
        self._backoff = backoff or Backoff()
        self._transport = transport(config, self._key)
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._shared_slots = shared_slots or nullcontext()
        self._rate = RateLimit(config.requests_per_minute)
        self._jitter = random.Random(seed_for("jitter", config.name, os.getpid()))
        self._fatal: tuple[float, str] | None = None
        self._hedging = hedging

    async def stream(self, requests: Sequence[GenerationRequest], *, hedge: bool = True) -> AsyncIterator[Candidate]:
        """One candidate per request, in order of arrival; all requests are queued at once.

        Args:
            requests: what to draw.
            hedge: whether slow ones may be sent a second time, where this generator does so.
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
        await self._transport.aclose()

    async def _candidate(self, request: GenerationRequest, *, hedge: bool) -> Candidate:
        with tracing.span("candidate", {"gen_ai.request.model": self._config.model}, kind="client") as span:
            candidate = await self._drawn(request, hedge=hedge)
            span.set(candidate_facts(candidate))
            if candidate.text is None:
                span.fail("no_answer")
        return candidate

    async def _drawn(self, request: GenerationRequest, *, hedge: bool) -> Candidate:
        async with self._slots, self._shared_slots:
            started = time.monotonic()
            try:
                completion, *others = await self._first_of(request, hedge=hedge)
            except (ReplyError, CarrierError) as error:
                return unanswered(request, self._explain(error))
        costs = [cost for found in (completion, *others) if (cost := self._cost_of(found)) is not None]
        cost_usd = sum(costs) if costs else None
        self._budget.add(cost_usd)
        return answered(
            request,
            completion.text,
            reasoning=completion.reasoning,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            cost_usd=cost_usd,
            latency_s=time.monotonic() - started,
        )

    async def _first_of(self, request: GenerationRequest, *, hedge: bool) -> list[Completion]:
        """The completion that counts; then another one that was paid for."""
        if self._hedging is None or not hedge:
            return [await self._complete(request)]
        # The first request has its place already.
        places: Iterator[AbstractAsyncContextManager[Any]] = iter((nullcontext(), self._slots))

        async def send() -> Completion:
            async with next(places):
                return await self._complete(request)

        return await self._hedging.first_of(send, has_place=lambda: not self._slots.locked())

    def _cost_of(self, completion: Completion) -> float | None:
        """As the endpoint states it, else by the recipe's prices."""
        if completion.cost_usd is not None:
            return completion.cost_usd
        return cost_of(self._config, completion.prompt_tokens, completion.completion_tokens)

    async def _complete(self, request: GenerationRequest) -> Completion:
        attempt = 0
        while True:
            self._refuse_if_hopeless()
            if wait_s := self._rate.reserve(time.monotonic()):
                await asyncio.sleep(wait_s)
            wished_s: float | None = None
            try:
                reply = await self._transport.post(self._body(request))
                wished_s = retry_after_s(reply.headers, now=time.time())
                return read_reply(reply)
            except ReplyError as error:
                self._note_failure(error)
                if not error.retry or attempt >= self._config.max_retries:
                    raise
            except CarrierError:
                if attempt >= self._config.max_retries:
                    raise
            wait_s = self._backoff.wait_s(attempt, chance=self._jitter.random(), retry_after_s=wished_s)
            await asyncio.sleep(wait_s)
            attempt += 1

    def _refuse_if_hopeless(self) -> None:
        if (refusal := self._budget.refusal()) is not None:
            raise ReplyError(refusal)
        if self._fatal is not None and time.monotonic() - self._fatal[0] < FATAL_PAUSE_S:
            raise ReplyError(f"not sent, because the endpoint refused an earlier request: {self._fatal[1]}")

    def _note_failure(self, error: ReplyError) -> None:
        """A failed request may have been billed; a fatal one spares the others the journey."""
        cost_usd = stated_cost(error.usage)
        if cost_usd is None:
            counts = (error.usage.get("prompt_tokens"), error.usage.get("completion_tokens"))
            cost_usd = cost_of(self._config, *counts) if all(isinstance(count, int) for count in counts) else None
        self._budget.add(cost_usd)
        if error.fatal:
            self._fatal = (time.monotonic(), self._explain(error))

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
        if request.response_format is not None:
            body["response_format"] = json.loads(request.response_format)
        return body | self._config.extra_body

    def _explain(self, error: ReplyError | CarrierError) -> str:
        """The error row's text: endpoint, what happened, the way out, and never the key."""
        text = str(error)
        status = error.status if isinstance(error, ReplyError) else None
        if status in (401, 403):
            variable = self._config.api_key_env
            source = f"the key in environment variable {variable}" if variable else "a request without a key"
            text += f" (the endpoint refused {source}; check the key, or set the generator's api_key_env)"
        elif status == 404:
            text += f" (is {self._config.model!r} a model of this endpoint?)"
        elif status == 402:
            text += " (add credit at the provider, then run the same command again)"
        if self._key.value:
            text = text.replace(self._key.value, "***")
        prefix = "" if text.startswith(("budget of", "not sent")) else f"{self._config.base_url}: "
        return prefix + text
