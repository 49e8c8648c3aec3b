"""Affordable candidates of a request: its budget of candidates, its US dollars, and the rest of the day's ceilings.

Does not know: endpoints, Ray, HTTP. Pure functions over requests and candidates.
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
    """The affordable part of a pass."""

    asked: list[GenerationRequest]
    """Affordable requests, in order."""
    over_budget: list[GenerationRequest]
    """Number of requests left out because each may cost more than the remaining money."""
    cheapest_usd: float
    """Worst cost of the cheapest request left out; infinite if none was."""


def affordable(
    requests: Sequence[GenerationRequest],
    *,
    most: int | None = None,
    left_usd: float | None = None,
    worst: WorstCost | None = None,
) -> Affordable:
    """Take every generator's first sample, then every generator's second, and so on, up to the limits.

    Args:
        requests: requests of the pass.
        most: remaining budget of candidates. Default: no limit. Those beyond it are dropped silently.
        left_usd: remaining US dollars. Default: no limit. Each request reserves its worst cost; one that costs too much
            is skipped, and a later, cheaper one may still fit.
        worst: worst cost of a request; required with ``left_usd``.
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
    """Indices of the requests in the order in which they use up limits."""
    return sorted(range(len(requests)), key=lambda place: (requests[place].sample_index, place))


async def reserved(plan: Affordable, account: Account, worst: WorstCost) -> tuple[Affordable, Hold]:
    """The part of a pass within the daily ceilings, and the hold on its worst cost.

    Raises:
        CeilingReachedError: none of it fits.
        ResourceError: the ledger cannot be used.
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
    """Upper bound on a pass's use: each candidate's stated use, or its worst. Requests that were never sent use
    nothing."""
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
    """Upper bound on a pass's cost: each candidate's stated cost, or its worst. Requests that were never sent cost
    nothing."""
    by_id: Mapping[str, Candidate] = {candidate.candidate_id: candidate for candidate in drawn}
    costs = []
    for request in asked:
        candidate = by_id.get(request.candidate_id)
        if not _is_unsent(candidate):
            cost = None if candidate is None else candidate.cost_usd
            costs.append(worst(request) if cost is None else cost)
    return math.fsum(costs)


def _is_unsent(candidate: Candidate | None) -> bool:
    """True if no try of a candidate's request left this process; one that did states its possible cost."""
    return candidate is not None and candidate.failure in _UNSENT and candidate.cost_usd is None


def unpriced(configs: Iterable[GeneratorConfig]) -> list[str]:
    """Names of the endpoints without both prices, whose cost is unbounded."""
    return [
        config.name
        for config in configs
        if isinstance(config, OpenAIGenerator)
        and (config.usd_per_million_prompt_tokens is None or config.usd_per_million_completion_tokens is None)
    ]


def no_prices(names: Sequence[str]) -> str:
    """Error message for a limit on money with these generators."""
    return (
        f"max_usd needs the prices of every generator that is asked, and the recipe has none for {', '.join(names)}; "
        "set usd_per_million_prompt_tokens and usd_per_million_completion_tokens there, or ask other generators"
    )


def worst_of(configs: Iterable[GeneratorConfig]) -> WorstCost:
    """Worst cost of a request to one of these generators, which all have prices; infinite without."""
    known = {config.name: config for config in configs}

    def worst(request: GenerationRequest) -> float:
        cost = worst_cost(known[request.generator], request)
        return math.inf if cost is None else cost

    return worst
