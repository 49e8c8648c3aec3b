"""Candidates from any OpenAI-compatible endpoint: retried, limited, counted.

One request per candidate, or per several samples of a prompt where the recipe says so (``sample_groups``).

Failures of a request are rows with ``error``. Keys appear in the Authorization header and nowhere else.

Does not know: journals, tasks, Ray.
"""

import asyncio
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
from raydebm.errors import without_credentials
from raydebm.generators.endpoint.api_keys import Secret, key_of
from raydebm.generators.endpoint.chat_body import chat_body
from raydebm.generators.endpoint.failure_texts import failure_text
from raydebm.generators.endpoint.hedging import Hedging
from raydebm.generators.endpoint.prompt_cache import FirstReplies
from raydebm.generators.endpoint.rate_limits import Backoff, Budget, RateLimit, retry_after_s
from raydebm.generators.endpoint.refusals import Refusals
from raydebm.generators.endpoint.replicas import Replicas
from raydebm.generators.endpoint.sample_groups import Group, GroupSize, amount_shares, grouped
from raydebm.generators.endpoint.transports import (
    AiohttpTransport,
    CarrierError,
    LateReplyError,
    LostReplyError,
    Transport,
)
from raydebm.generators.replies import Completion, ReadChoices, ReplyError, read_choices, whole_shares
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
    """With which key an endpoint is asked, and what it shares with others."""

    key: Secret | None = None
    """None: read from the environment."""
    budget: Budget | None = None
    """Shared by all endpoints of a run."""
    shared_slots: AbstractAsyncContextManager[Any] | None = None
    """A semaphore over all endpoints of this process, entered after the endpoint's own."""
    hedging: Hedging | None = None
    """Sends slow requests a second time; None: never."""
    is_patient: bool = False
    """Whether samples of a prompt may wait for the first one, so that an endpoint with a ``prompt_cache`` has it."""


def _over_servers(config: OpenAIGenerator, connect: Callable[[OpenAIGenerator], Transport]) -> Transport:
    if not config.replica_urls:
        return connect(config)
    urls = dict.fromkeys(config.addresses)
    return Replicas({url: connect(config.model_copy(update={"base_url": url})) for url in urls})


@dataclass(slots=True)
class _Draw:
    """What is sent to the endpoint for one candidate, or for a group of them."""

    requests: Group
    may_repeat: bool
    """Whether one that may be billed already may be followed by another. At most one late one is."""
    costs: list[float] = field(default_factory=list)
    """Costs of every reply, as far as they are known."""

    @property
    def cost_usd(self) -> float | None:
        return math.fsum(self.costs) if self.costs else None

    def shares(self, weights: Sequence[float]) -> list[float] | list[None]:
        """The cost in parts by weights; None where it is not known."""
        return [None] * len(weights) if self.cost_usd is None else amount_shares(self.cost_usd, weights)


_Answered = tuple[list[Candidate], Group]
"""Candidates of a group, and those of its requests that are to be sent singly."""


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
        self._group_size = GroupSize(config.samples_per_request)
        self._prompts_wait = access.is_patient and config.prompt_cache is not None

    async def stream(self, requests: Sequence[GenerationRequest], *, hedge: bool = True) -> AsyncIterator[Candidate]:
        """One candidate per request, in order of arrival; all requests are queued at once.

        Args:
            requests: what to draw.
            hedge: whether one that may be billed already may be sent a second time: a slow one, where this generator
                does so, and one whose reply did not come within ``timeout_s``, broke off or cannot be read. Free
                endpoints are asked again anyway.
        """
        groups = grouped(requests, self._group_size.now)
        first_replies = FirstReplies() if self._prompts_wait else None

        async def in_turn(group: Group) -> _Answered:
            async with nullcontext() if first_replies is None else first_replies.turn(group[0]):
                return await self._candidates(group, hedge=hedge)

        while groups:
            left: list[GenerationRequest] = []
            tasks = [asyncio.create_task(in_turn(group)) for group in groups]
            try:
                for next_done in asyncio.as_completed(tasks):
                    candidates, unanswered_samples = await next_done
                    left += unanswered_samples
                    for candidate in candidates:
                        yield candidate
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            groups = grouped(left, 1)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _candidates(self, group: Group, *, hedge: bool) -> _Answered:
        facts = {"gen_ai.request.model": self._config.model}
        if len(group) > 1:
            with tracing.span("candidates", facts | {"gen_ai.request.choice.count": len(group)}, kind="client"):
                candidates, left = await self._drawn(group, hedge=hedge)
                for candidate in candidates:
                    failed = None if candidate.text is not None else "no_answer"
                    seconds = candidate.latency_s or 0.0
                    tracing.past_span("candidate", candidate_facts(candidate), seconds=seconds, failed=failed)
            return candidates, left
        with tracing.span("candidate", facts, kind="client") as span:
            (candidate,), left = await self._drawn(group, hedge=hedge)
            span.set(candidate_facts(candidate))
            if candidate.text is None:
                span.fail("no_answer")
        return [candidate], left

    async def _drawn(self, group: Group, *, hedge: bool) -> _Answered:
        # Under a limit in US dollars nothing may be billed twice, for the limit reckons with one answer per request.
        draw = _Draw(group, may_repeat=self._is_free or (hedge and not self._budget.is_limited))
        async with self._slots, self._shared_slots:
            if len(group) > self._group_size.now:  # the endpoint does not honour `n`, as was learned meanwhile
                return [], group
            started = time.monotonic()
            try:
                read = await self._first_of(draw, hedge=hedge)
            except (ReplyError, CarrierError) as error:
                self._budget.add_lost(draw.cost_usd)
                if self._group_size.may_be_to_blame(group, error):
                    return [], group
                return self._failed(draw, error), ()
        self._learn_from(group, read)
        return self._taken(draw, read, latency_s=time.monotonic() - started)

    def _failed(self, draw: _Draw, error: ReplyError | CarrierError) -> list[Candidate]:
        """The rows of requests whose reply has no answer."""
        usage, failure = (error.usage, error.failure) if isinstance(error, ReplyError) else (NO_USAGE, None)
        text, equal, cost_usd = self._explain(error), [1] * len(draw.requests), self._cost_of_failed(draw, error)
        shares = zip(
            draw.requests,
            whole_shares(usage.prompt_tokens, equal),
            whole_shares(usage.completion_tokens, equal),
            [None] * len(equal) if cost_usd is None else amount_shares(cost_usd, equal),
            strict=True,
        )
        return [
            unanswered(
                request,
                text,
                failure=failure,
                usage=TokenUsage(prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost),
            )
            for request, prompt, completion, cost in shares
        ]

    def _cost_of_failed(self, draw: _Draw, error: ReplyError | CarrierError) -> float | None:
        """What all tries cost at most; None where nothing is known. A last try that says nothing of its cost may be
        billed, also after others that were refused for nothing."""
        says = isinstance(error, ReplyError) and (error.failure, usage_cost(self._config, error.usage)) != (None, None)
        if says:  # of its cost, or that nothing was sent
            return draw.cost_usd
        if not draw.cost_usd:
            return None
        worst = self._worst_cost(draw)
        return None if worst is None else draw.cost_usd + worst

    def _worst_cost(self, draw: _Draw) -> float | None:
        return worst_cost(self._config, draw.requests[0], samples=len(draw.requests))

    def _taken(self, draw: _Draw, read: ReadChoices, *, latency_s: float) -> _Answered:
        """The candidates that a reply's choices make; what is missing, and what asking again may fix, is left."""
        given = [
            (request, choice)
            for request, choice in zip(draw.requests, read.choices, strict=False)
            if isinstance(choice, Completion) or not choice.retry
        ]
        costs = draw.shares([self._weight(choice.usage) for _, choice in given])
        candidates: list[Candidate] = []
        for (request, choice), cost_usd in zip(given, costs, strict=True):
            usage = replace(choice.usage, cost_usd=cost_usd)
            if isinstance(choice, ReplyError):
                self._budget.add_lost(cost_usd)
                candidates.append(unanswered(request, self._explain(choice), usage=usage))
                continue
            self._budget.add(cost_usd)
            candidates.append(
                answered(
                    request,
                    choice.text,
                    usage=usage,
                    reasoning=choice.reasoning,
                    finish_reason=choice.finish_reason,
                    latency_s=latency_s,
                    logprobs=choice.logprobs,
                )
            )
        done = {candidate.candidate_id for candidate in candidates}
        return candidates, tuple(request for request in draw.requests if request.candidate_id not in done)

    def _weight(self, usage: TokenUsage) -> float:
        """What a choice counts in the cost of its reply: by the recipe's prices, else by its tokens."""
        priced = usage_cost(self._config, usage)
        return (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if priced is None else priced

    def _learn_from(self, group: Group, read: ReadChoices) -> None:
        """Note whether the endpoint honours ``n``."""
        size = self._group_size
        by_choices = size.note_choices(len(group), len(read.choices))
        if by_choices or (len(group) == 1 and size.note_single_answer(group[0])):
            _LOG.warning(
                "%s does not honour `n`, so each sample of %s is asked for singly; leave samples_per_request out",
                without_credentials(self._config.base_url),
                self.name,
            )

    async def _first_of(self, draw: _Draw, *, hedge: bool) -> ReadChoices:
        """The reply that counts."""
        if self._hedging is None or not hedge:
            return await self._complete(draw)
        # The first request has its place already.
        places: Iterator[AbstractAsyncContextManager[Any]] = iter((nullcontext(), self._slots))

        async def send() -> ReadChoices:
            place = next(places)
            if place is self._slots:  # the second request, after which there is no third
                draw.may_repeat = False
            async with place:
                return await self._complete(draw)

        return await self._hedging.first_of(send, has_place=lambda: draw.may_repeat and not self._slots.locked())

    async def _complete(self, draw: _Draw) -> ReadChoices:
        request, attempt = draw.requests[0], 0
        while True:
            await self._wait_for_turn(request)
            wished_s: float | None = None
            body = chat_body(self._config, draw.requests, logprobs=self._asks_logprobs)
            try:
                reply = await self._transport.post(body)
                wished_s = retry_after_s(reply.headers, now=time.time())
                read = read_choices(reply, most=len(draw.requests))
                self._refusals.note_success(request)
                self._bill(draw, read.usage)
                return read
            except ReplyError as error:
                self._bill(draw, error.usage)
                if body.get("logprobs") and self._refuses_logprobs(error):
                    continue
                if len(draw.requests) == 1 or error.fatal:  # else the refusal may mean `n`
                    self._note_refusal(error, request)
                is_lost = error.is_lost and usage_cost(self._config, error.usage) is None
                if is_lost:
                    self._budget.add_lost(self._worst_cost(draw))
                if not error.retry or (is_lost and not draw.may_repeat) or attempt >= self._config.max_retries:
                    raise
            except LostReplyError as error:
                self._budget.add_lost(self._worst_cost(draw))
                if not draw.may_repeat or attempt >= self._config.max_retries:
                    raise
                if isinstance(error, LateReplyError):
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
        if (cost_usd := usage_cost(self._config, usage)) is not None:
            draw.costs.append(cost_usd)

    def _refuses_logprobs(self, error: ReplyError) -> bool:
        """Whether this is why a request failed; no later request then asks for log-probabilities."""
        refused = error.status is not None and 400 <= error.status < 500 and "logprob" in str(error).lower()
        if refused and self._asks_logprobs:
            self._asks_logprobs = False
            _LOG.warning(
                "%s gives no log-probabilities, so the candidates of %s have none: %s",
                without_credentials(self._config.base_url),
                self.name,
                self._explain(error),
            )
        return refused and "logprobs" not in self._config.extra_body

    def _note_refusal(self, error: ReplyError, request: GenerationRequest) -> None:
        if error.fatal:
            self._refusals.note_all(self._explain(error), now=time.monotonic())
        elif error.doubtful:
            self._refusals.note_doubtful(request, self._explain(error), now=time.monotonic())

    def _explain(self, error: ReplyError | CarrierError) -> str:
        return failure_text(error, self._config, key=self._key.value)
