"""Which candidates a request may ask for: its budget of candidates, its US dollars, and what is left of the day.

Does not know: endpoints, Ray, HTTP. Pure functions over requests and what came back.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.config import GeneratorConfig, OpenAIGenerator
from raydebm.errors import CeilingReachedError
from raydebm.generators.requests import worst_cost, worst_prompt_tokens
from raydebm.records import Candidate, FailureKind, GenerationRequest
from raydebm.serving.spending.ceilings import Account
from raydebm.serving.spending.ledger import Amount, Hold

WorstCost = Callable[[GenerationRequest], float]
_UNSENT = frozenset({FailureKind.NOT_SENT, FailureKind.BUDGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """A pass under its limits."""

    asked: list[GenerationRequest]
    """In their order."""
    over_budget: list[GenerationRequest]
    """Not asked, because each may cost more than what is left."""
    cheapest_usd: float
    """Worst cost of the cheapest request that was not asked; infinite when all were asked."""


def affordable(
    requests: Sequence[GenerationRequest],
    *,
    most: int | None = None,
    left_usd: float | None = None,
    worst: WorstCost | None = None,
) -> Affordable:
    """Every generator's first sample, then every generator's second, and so on, as far as the limits go.

    Args:
        requests: what the pass would ask for.
        most: candidates that are left of the budget; None: no limit. Those beyond it are simply not asked.
        left_usd: US dollars that are left; None: no limit. A request that may cost more is passed over, a later and
            cheaper one is not; each request that is asked takes its worst cost out.
        worst: the worst cost of a request; needed with ``left_usd``.
    """
    order = turns(requests)
    asked: list[int] = []
    over: list[int] = []
    costs: list[float] = []
    for place in order[: len(order) if most is None else max(0, most)]:
        if left_usd is None or worst is None:
            asked.append(place)
            continue
        cost = worst(requests[place])
        if cost <= left_usd:
            left_usd -= cost
            asked.append(place)
        else:
            costs.append(cost)
            over.append(place)
    return Affordable(
        asked=[requests[place] for place in sorted(asked)],
        over_budget=[requests[place] for place in sorted(over)],
        cheapest_usd=min(costs, default=math.inf),
    )


def turns(requests: Sequence[GenerationRequest]) -> list[int]:
    """Places of the requests in the order in which limits are used up."""
    return sorted(range(len(requests)), key=lambda place: (requests[place].sample_index, place))


async def reserved(plan: Affordable, account: Account, worst: WorstCost) -> tuple[Affordable, Hold]:
    """The part of a pass that fits below the day's ceilings, and the hold on what it may cost.

    Raises:
        CeilingReachedError: none of it fits.
        ResourceError: spending cannot be counted now.
    """
    order = turns(plan.asked)
    wanted = [_at_most(plan.asked[place], None, account.known(worst)) for place in order]
    hold = await account.reserve(wanted)
    granted = {order[place] for place in hold.granted}
    if plan.asked and not granted:
        left = ", ".join(
            f"{body.left:.6g} of {body.limit:g} {body.kind} ({body.account}, until {body.resets_at})"
            for body in await account.status()
        )
        raise CeilingReachedError(f"of the day's ceilings is left: {left}; the cheapest candidate may take more")
    asked = [request for place, request in enumerate(plan.asked) if place in granted]
    over = [request for place, request in enumerate(plan.asked) if place not in granted]
    return replace(plan, asked=asked, over_budget=[*plan.over_budget, *over]), hold


def spent_amount(
    asked: Iterable[GenerationRequest], drawn: Iterable[Candidate], account: Account, worst: WorstCost
) -> Amount:
    """What a pass took at most: what each candidate states, and the worst of what it does not. One that was never sent
    took nothing."""
    stated = {candidate.candidate_id: candidate for candidate in drawn}
    amounts = (_at_most(request, stated.get(request.candidate_id), account.known(worst)) for request in asked)
    return sum(amounts, Amount())


def _at_most(request: GenerationRequest, candidate: Candidate | None, worst: WorstCost) -> Amount:
    if _is_unsent(candidate):
        return Amount()
    cost, prompt, completion = None, None, None
    if candidate is not None:
        cost, prompt, completion = candidate.cost_usd, candidate.prompt_tokens, candidate.completion_tokens
    tokens = worst_prompt_tokens(request) if prompt is None else prompt
    tokens += request.sampling.max_tokens if completion is None else completion
    return Amount.of(worst(request) if cost is None else cost, 1, tokens)


def spent_usd(asked: Iterable[GenerationRequest], drawn: Iterable[Candidate], worst: WorstCost) -> float:
    """What was spent at most: the stated cost of each candidate, and the worst cost of one without. One that was never
    sent cost nothing."""
    by_id: Mapping[str, Candidate] = {candidate.candidate_id: candidate for candidate in drawn}
    costs = []
    for request in asked:
        candidate = by_id.get(request.candidate_id)
        if not _is_unsent(candidate):
            cost = None if candidate is None else candidate.cost_usd
            costs.append(worst(request) if cost is None else cost)
    return math.fsum(costs)


def _is_unsent(candidate: Candidate | None) -> bool:
    """Whether no try of a candidate's request left this process; one that did states what it may have cost."""
    return candidate is not None and candidate.failure in _UNSENT and candidate.cost_usd is None


def unpriced(configs: Iterable[GeneratorConfig]) -> list[str]:
    """Names of the endpoints without both prices, whose cost nothing can bound."""
    return [
        config.name
        for config in configs
        if isinstance(config, OpenAIGenerator)
        and (config.usd_per_million_prompt_tokens is None or config.usd_per_million_completion_tokens is None)
    ]


def no_prices(names: Sequence[str]) -> str:
    """What is wrong with limiting money where these generators are asked."""
    return (
        f"max_usd needs the prices of every generator that is asked, and the recipe has none for {', '.join(names)}; "
        "set usd_per_million_prompt_tokens and usd_per_million_completion_tokens there, or ask other generators"
    )


def worst_of(configs: Iterable[GeneratorConfig]) -> WorstCost:
    """The worst cost of a request to any of these generators, which all have prices; infinite without."""
    known = {config.name: config for config in configs}

    def worst(request: GenerationRequest) -> float:
        cost = worst_cost(known[request.generator], request)
        return math.inf if cost is None else cost

    return worst
