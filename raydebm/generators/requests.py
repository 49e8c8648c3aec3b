"""Interface of all generators, and requests to them: construction, answers and estimated costs.

Independent of: endpoints, models, Ray.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from raydebm.config import GeneratorConfig, OpenAIGenerator, Recipe
from raydebm.errors import UnknownNameError
from raydebm.identity import seed_for
from raydebm.records import Candidate, FailureKind, GenerationRequest, Message, Problem, Sampling
from raydebm.tasks.base import Task

TEMPLATE_TOKENS = 16
"""Upper limit of a chat template's tokens per message."""
WORST_SHARE = 10
"""``LogProbs.worst`` is the mean over the least likely 1 / WORST_SHARE of the tokens, at least one."""
CHARS_PER_TOKEN = 4
"""Rule of thumb for English text. Results that use it are called estimates."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Log-probabilities of a text's tokens, summarised, in nats. Higher is more likely."""

    mean: float
    """Mean log-probability of a token."""
    worst: float
    """Mean log-probability of the least likely tenth of the tokens."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "LogProbs":
        """Summarise the log-probabilities of at least one token."""
        worst = sorted(values)[: max(len(values) // WORST_SHARE, 1)]
        return cls(mean=sum(values) / len(values), worst=sum(worst) / len(worst))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Billed usage of a request. Unknown values are None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    """US dollars, from the endpoint or by the recipe's prices."""


NO_USAGE = TokenUsage()


def requests_for(
    problem: Problem,
    messages: Sequence[Message],
    *,
    generator: str,
    sampling: Sampling,
    samples: Iterable[int],
    run_seed: int,
    pass_index: int = 1,
) -> list[GenerationRequest]:
    """One request per sample index. The seed depends only on run, problem, generator, pass and sample, so jobs,
    evaluation and service get the same candidate for the same request."""
    return [
        GenerationRequest(
            task=problem.task,
            problem_id=problem.problem_id,
            generator=generator,
            messages=tuple(messages),
            sampling=sampling,
            seed=seed_for(run_seed, problem.problem_id, generator, pass_index, index),
            pass_index=pass_index,
            sample_index=index,
        )
        for index in samples
    ]


def candidate_facts(candidate: Candidate) -> dict[str, str | int | float | None]:
    """Attributes of a candidate's span, without text, because traces go to other systems."""
    return {
        "raydebm.generator": candidate.generator,
        "raydebm.pass": candidate.pass_index,
        "raydebm.sample": candidate.sample_index,
        "raydebm.cost_usd": candidate.cost_usd,
        "gen_ai.usage.input_tokens": candidate.prompt_tokens,
        "gen_ai.usage.output_tokens": candidate.completion_tokens,
    }


def unanswered(
    request: GenerationRequest,
    error: str,
    *,
    failure: FailureKind | None = None,
    usage: TokenUsage = NO_USAGE,
) -> Candidate:
    """The candidate of a failed request: the request's identity, the error and the billed usage, without text."""
    return Candidate(
        candidate_id=request.candidate_id,
        task=request.task,
        problem_id=request.problem_id,
        generator=request.generator,
        text=None,
        error=error,
        failure=failure,
        pass_index=request.pass_index,
        sample_index=request.sample_index,
        seed=request.seed,
        sampling=request.sampling,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=usage.cost_usd,
    )


def answered(
    request: GenerationRequest,
    text: str,
    *,
    reasoning: str | None = None,
    finish_reason: str | None = None,
    usage: TokenUsage = NO_USAGE,
    latency_s: float | None = None,
    logprobs: LogProbs | None = None,
) -> Candidate:
    """The candidate of an answered request."""
    return replace(
        unanswered(request, "", usage=usage),
        text=text,
        error=None,
        reasoning=reasoning,
        finish_reason=finish_reason,
        latency_s=latency_s,
        logprob=None if logprobs is None else logprobs.mean,
        worst_logprob=None if logprobs is None else logprobs.worst,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Estimated cost of one generator. Prompt tokens are characters / 4."""

    generator: str
    num_requests: int
    prompt_tokens: int
    max_completion_tokens: int
    """Completion tokens if every completion reached its limit."""
    usd_low: float | None
    """US dollars of the prompts. None if the recipe has no prices for this endpoint."""
    usd_high: float | None
    """US dollars of the prompts and of every completion at its limit. None without prices."""


def estimate_cost(
    requests: Iterable[GenerationRequest], generators: Sequence[GeneratorConfig]
) -> tuple[CostEstimate, ...]:
    """Requests, estimated tokens and cost range of each generator with requests, in the given order.

    Raises:
        UnknownNameError: a request names a generator that is not among ``generators``.
    """
    counts: dict[str, Counter[str]] = {config.name: Counter() for config in generators}
    for request in requests:
        if request.generator not in counts:
            raise UnknownNameError("generator", request.generator, counts)
        chars = sum(len(message["content"]) for message in request.messages)
        counts[request.generator].update(
            num_requests=1,
            prompt_tokens=math.ceil(chars / CHARS_PER_TOKEN),
            max_completion_tokens=request.sampling.max_tokens,
        )
    return tuple(
        CostEstimate(
            generator=config.name,
            **count,
            usd_low=cost_of(config, count["prompt_tokens"], 0),
            usd_high=cost_of(config, count["prompt_tokens"], count["max_completion_tokens"]),
        )
        for config in generators
        if (count := counts[config.name])
    )


def worst_cost(config: GeneratorConfig, request: GenerationRequest) -> float | None:
    """Upper limit of one answer's cost in US dollars: one token per byte of the chat, ``TEMPLATE_TOKENS`` per message,
    and the completion at its limit. None if the recipe has no prices for the endpoint."""
    texts = [text for message in request.messages for text in (message["role"], message["content"])]
    num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in [*texts, request.response_format or ""])
    return cost_of(config, num_bytes + TEMPLATE_TOKENS * len(request.messages), request.sampling.max_tokens)


def highest_prices(requests: Iterable[GenerationRequest], generators: Sequence[GeneratorConfig]) -> dict[str, float]:
    """Upper limit of one candidate's cost in US dollars by generator, from its first request. An endpoint without
    prices counts as free, as for ``generation.max_usd``."""
    known = {config.name: config for config in generators}
    prices: dict[str, float] = {}
    for request in requests:
        if request.generator not in known:
            raise UnknownNameError("generator", request.generator, known)
        if request.generator not in prices:
            prices[request.generator] = worst_cost(known[request.generator], request) or 0.0
    return prices


def cost_of(config: GeneratorConfig, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
    """US dollars by the recipe's prices. None if a price or count is unknown. Local and recorded models are free."""
    if not isinstance(config, OpenAIGenerator):
        return 0.0
    if config.usd_per_million_tokens is None or prompt_tokens is None or completion_tokens is None:
        return None
    prompt_price, completion_price = config.usd_per_million_tokens
    return (prompt_tokens * prompt_price + completion_tokens * completion_price) / 1e6


def usage_cost(config: OpenAIGenerator, usage: TokenUsage) -> float | None:
    """US dollars that the endpoint states, else by the recipe's prices."""
    if usage.cost_usd is not None:
        return usage.cost_usd
    return cost_of(config, usage.prompt_tokens, usage.completion_tokens)


class Generator(Protocol):
    """A source of candidates, such as an endpoint, a local model or a recorded pool."""

    name: str

    def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """Yield exactly one candidate per request, as soon as it is complete. A failed request is a candidate with
        ``error``."""
        ...

    async def aclose(self) -> None:
        """Free connections and models."""
        ...


async def collect(generator: Generator, requests: Sequence[GenerationRequest]) -> list[Candidate]:
    """The candidates of all requests, in the order of the requests."""
    by_id = {candidate.candidate_id: candidate async for candidate in generator.stream(requests)}
    return [by_id[request.candidate_id] for request in requests]


@dataclass(frozen=True, slots=True)
class RequestsByProblem:
    """Requests of many problems, built lazily in each iteration, one problem after another."""

    problems: Collection[Problem]
    make: Callable[[Problem], Sequence[GenerationRequest]]
    """Function from a problem to its requests. Every problem must have the same number of them."""

    def __len__(self) -> int:
        return len(self.problems) * next((len(self.make(problem)) for problem in self.problems), 0)

    def __iter__(self) -> Iterator[GenerationRequest]:
        return (request for problem in self.problems for request in self.make(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRequests:
    """Requests for one task under one recipe. The optional fields override the recipe for one client."""

    recipe: Recipe
    task: Task
    generators: Collection[str] | None = None
    """Names of the generators to ask. Default: all of the recipe's."""
    num_samples: int | None = None
    """Samples per generator in the first pass. Default: the recipe's."""
    num_regenerate: int | None = None
    """Samples in each later pass. Default: the recipe's."""
    fresh_share: float | None = None
    """Share of a later pass's requests that repeat the first prompt, without feedback. Default: the recipe's."""
    seed: int | None = None
    """Seed of all requests. Default: the recipe's."""
    sampling_changes: dict[str, Any] = field(default_factory=dict)
    """Fields of ``Sampling`` to override. ``max_tokens`` can only be lowered: longer candidates cost more."""

    @property
    def configs(self) -> list[GeneratorConfig]:
        """The generators of the first pass."""
        chosen = self.generators
        return [config for config in self.recipe.generators if chosen is None or config.name in chosen]

    @property
    def regenerator(self) -> GeneratorConfig:
        """The generator of later passes: the recipe's choice if it is one of ``configs``, else the first of them."""
        wanted = self.recipe.decision.regenerate_with
        return next((config for config in self.configs if config.name == wanted), self.configs[0])

    @property
    def waves(self) -> tuple[int, ...] | None:
        """Sizes of the waves of the first pass. None if the pass is sampled at once."""
        return self.recipe.generation.waves if self.task.defaults.answers_compete else None

    @property
    def remarks_on_waves(self) -> tuple[str, ...]:
        """Warnings on ``generation.waves`` in this recipe."""
        wanted = self.recipe.generation.waves
        if wanted is None:
            return ()
        if self.waves is None:
            return (
                f"generation.waves does not apply: many different answers to a problem of task {self.task.name!r} can "
                "be right, so votes do not show when to stop; all candidates are sampled at once",
            )
        count = sum(
            (self.recipe.generation.num_samples if g.num_samples is None else g.num_samples) > 0 for g in self.configs
        )
        if wanted[0] >= count:
            return ()
        return (
            f"the first wave has {wanted[0]} of {count} generators: the others get only hard problems, "
            f"which makes them look worse than they are; generation.waves should begin with {count} or more",
        )

    def first(self, problem: Problem, *, greedy: bool = False) -> list[GenerationRequest]:
        """Requests of the first pass. ``greedy`` adds one greedy request per generator, except for recorded pools."""
        messages, default = self.task.messages(problem), self.recipe.generation.num_samples
        requests: list[GenerationRequest] = []
        for config in self.configs:
            own = default if config.num_samples is None else config.num_samples
            num_samples = own if self.num_samples is None else self.num_samples
            requests += self._make(problem, messages, config, num_samples=num_samples)
            if greedy and config.kind != "recorded":
                requests += self._make(problem, messages, config, num_samples=1, greedy=True)
        return requests

    def later(self, problem: Problem, pass_index: int, messages: Sequence[Message]) -> list[GenerationRequest]:
        """Requests of a later pass with feedback. The share ``fresh_share`` repeats the first prompt instead."""
        decision = self.recipe.decision
        num_samples = decision.num_regenerate if self.num_regenerate is None else self.num_regenerate
        share = decision.fresh_share if self.fresh_share is None else self.fresh_share
        replies, fresh = (
            self._make(problem, chat, self.regenerator, num_samples=num_samples, pass_index=pass_index)
            for chat in (messages, self.task.messages(problem))
        )
        # The share is spread evenly, so that a smaller pass is a prefix of a larger one.
        is_fresh = [math.floor((index + 1) * share) > math.floor(index * share) for index in range(num_samples)]
        return [new if wanted else reply for wanted, new, reply in zip(is_fresh, fresh, replies, strict=True)]

    def _make(
        self,
        problem: Problem,
        messages: Sequence[Message],
        config: GeneratorConfig,
        *,
        num_samples: int,
        pass_index: int = 1,
        greedy: bool = False,
    ) -> list[GenerationRequest]:
        return requests_for(
            problem,
            messages,
            generator=config.name,
            sampling=self._sampling(config, greedy=greedy),
            samples=range(num_samples),
            run_seed=self.recipe.seed if self.seed is None else self.seed,
            pass_index=pass_index,
        )

    def _sampling(self, config: GeneratorConfig, *, greedy: bool) -> Sampling:
        generation = self.recipe.generation
        own = None if config.kind == "recorded" else config.max_tokens
        most = own or generation.max_tokens or self.task.defaults.max_tokens
        changes = dict(self.sampling_changes)
        tokens = min(most, changes.pop("max_tokens", None) or most)
        temperature, top_p = (0.0, 1.0) if greedy else (generation.temperature, generation.top_p)
        sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=tokens)
        return replace(sampling, **changes) if changes else sampling
