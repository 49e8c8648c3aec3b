"""Requests of a recipe's passes, shared by jobs, replay and service.

A candidate's identity is derived from its request. All requests are made here, so that the service recognises the
candidates that a job has sampled.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raydebm.config import GeneratorConfig, Recipe
from raydebm.generators.requests import requests_for
from raydebm.records import GenerationRequest, Message, Problem, Sampling
from raydebm.tasks.base import Task


@dataclass(frozen=True, slots=True)
class RequestsByProblem:
    """The requests of many problems, made lazily at each iteration, one problem after the other."""

    problems: Collection[Problem]
    make: Callable[[Problem], Sequence[GenerationRequest]]
    """Function from a problem to its requests; the same number for each problem."""

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
    def asked(self) -> list[GeneratorConfig]:
        """The generators of the first pass."""
        chosen = self.generators
        return [config for config in self.recipe.generators if chosen is None or config.name in chosen]

    @property
    def regenerator(self) -> GeneratorConfig:
        """The generator of later passes: the recipe's choice if it is among those asked, else the first of them."""
        wanted = self.recipe.triage.regenerate_with
        return next((config for config in self.asked if config.name == wanted), self.asked[0])

    @property
    def waves(self) -> tuple[int, ...] | None:
        """Sizes of the waves of the first pass; None if it is sampled at once."""
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
            (self.recipe.generation.num_samples if g.num_samples is None else g.num_samples) > 0 for g in self.asked
        )
        if wanted[0] >= count:
            return ()
        return (
            f"the first wave has {wanted[0]} of {count} generators: the others are asked about hard problems only, "
            f"which makes them look worse than they are; generation.waves should begin with {count} or more",
        )

    def first(self, problem: Problem, *, greedy: bool = False) -> list[GenerationRequest]:
        """Requests of the first pass; with ``greedy`` also one greedy request per generator that can answer it."""
        messages, default = self.task.messages(problem), self.recipe.generation.num_samples
        requests: list[GenerationRequest] = []
        for config in self.asked:
            own = default if config.num_samples is None else config.num_samples
            num_samples = own if self.num_samples is None else self.num_samples
            requests += self._make(problem, messages, config, num_samples=num_samples)
            if greedy and config.kind != "recorded":
                requests += self._make(problem, messages, config, num_samples=1, greedy=True)
        return requests

    def later(self, problem: Problem, pass_index: int, messages: Sequence[Message]) -> list[GenerationRequest]:
        """Requests of a later pass with feedback. The share ``fresh_share`` repeats the first prompt instead."""
        triage = self.recipe.triage
        num_samples = triage.num_regenerate if self.num_regenerate is None else self.num_regenerate
        share = triage.fresh_share if self.fresh_share is None else self.fresh_share
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
        most = config.max_tokens or generation.max_tokens or self.task.defaults.max_tokens
        changes = dict(self.sampling_changes)
        tokens = min(most, changes.pop("max_tokens", None) or most)
        sampling = generation.sampling(max_tokens=tokens, greedy=greedy)
        return replace(sampling, **changes) if changes else sampling
