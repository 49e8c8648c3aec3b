"""Limits on the spending of a request: its own budget and money, the operator's ceilings, and the rest of the day's.

A request may lower the operator's limits and never raise them. The operator sets them in the policy file, the recipe,
the named policies and ``limits``. Does not know: endpoints, Ray, HTTP.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from raydebm.config import GeneratorConfig, OpenAIGenerator
from raydebm.decision.policy import Policy
from raydebm.errors import CeilingReachedError, ServiceError
from raydebm.generators.requests import worst_cost
from raydebm.records import Candidate, FailureKind, GenerationRequest
from raydebm.service.spending.ledger import NANO, Amount, Ceilings, Hold, Ledger

N = TypeVar("N", int, float)
SERVICE = "service"
"""Account of the whole service."""
WorstCost = Callable[[GenerationRequest], float]
_UNSENT = frozenset({FailureKind.NOT_SENT, FailureKind.BUDGET})


# ---- of one request -------------------------------------------------------------------------------------------------


def within_ceilings(asked: Policy, *, operators: Policy, ceilings: Ceilings) -> Policy:
    """A request's policy, limited to the operator's ceilings.

    Args:
        asked: the operator's policy with the request's changes.
        operators: the served policy with the named policy's changes.
        ceilings: the operator's ceilings on one request.

    Raises:
        ServiceError: 400 for more candidates of a later pass than the operator's policy has.
    """
    check_count("num_regenerate", asked.num_regenerate, operators.num_regenerate)
    return asked.replaced(
        max_passes=min(asked.max_passes, operators.max_passes),
        budget=_lower(asked.budget, operators.budget if ceilings.candidates is None else ceilings.candidates),
        max_usd=_lower(asked.max_usd, operators.max_usd if ceilings.usd is None else ceilings.usd),
    )


def check_count(name: str, value: int | None, most: int) -> None:
    """Raise ServiceError (400) for a count above the operator's."""
    if value is not None and value > most:
        message = f"{name} is {value}, and this service allows at most {most}; ask for fewer, or for a named policy"
        raise ServiceError(message, 400, "above_ceiling", name)


def _lower(asked: N | None, most: N | None) -> N | None:
    return most if asked is None else asked if most is None else min(asked, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """The affordable part of a pass."""

    asked: list[GenerationRequest]
    """Affordable requests, in order."""
    over_budget: list[GenerationRequest]
    """Requests left out because each may cost more than the remaining money."""
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
    over: dict[int, float] = {}
    for place in order[: len(order) if most is None else max(0, most)]:
        cost = 0.0 if left_usd is None or worst is None else worst(requests[place])
        if left_usd is None or cost <= left_usd:
            left_usd = None if left_usd is None else left_usd - cost
            asked.append(place)
        else:
            over[place] = cost
    return Affordable(
        asked=[requests[place] for place in sorted(asked)],
        over_budget=[requests[place] for place in sorted(over)],
        cheapest_usd=min(over.values(), default=math.inf),
    )


def turns(requests: Sequence[GenerationRequest]) -> list[int]:
    """Indices of the requests in the order in which they use up limits."""
    return sorted(range(len(requests)), key=lambda place: (requests[place].sample_index, place))


# ---- prices ---------------------------------------------------------------------------------------------------------


def spent(asked: Iterable[GenerationRequest], drawn: Iterable[Candidate], worst: WorstCost) -> Amount:
    """Upper bound on the use of requests: each candidate's stated cost, or its worst. Requests that were never sent use
    nothing."""
    stated = {candidate.candidate_id: candidate for candidate in drawn}
    total = Amount()
    for request in asked:
        candidate = stated.get(request.candidate_id)
        cost = None if candidate is None else candidate.cost_usd
        # No try of such a request left this process; one that did states its possible cost.
        if cost is not None or candidate is None or candidate.failure not in _UNSENT:
            total += Amount.of(worst(request) if cost is None else cost)
    return total


def spent_usd(asked: Iterable[GenerationRequest], drawn: Iterable[Candidate], worst: WorstCost) -> float:
    """``spent`` in US dollars."""
    return spent(asked, drawn, worst).nano_usd / NANO


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


# ---- of one day -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingStatus:
    """One ceiling of one day, and its remainder."""

    account: str
    """``service``: all clients together; ``key``: the caller's key."""
    kind: str
    """``usd`` or ``candidates``."""
    limit: float
    left: float
    """Remainder after spending and the worst cost of running requests."""
    resets_at: str
    """ISO time, UTC."""


@dataclass(frozen=True, slots=True)
class Account:
    """A caller's spending limits for today: those of its key and of the whole service."""

    ledger: Ledger
    ceilings: Mapping[str, Ceilings]
    """Ceilings by account name, without accounts that are not limited."""

    @property
    def limits_money(self) -> bool:
        """True if any ceiling is in US dollars."""
        return any(ceilings.usd is not None for ceilings in self.ceilings.values())

    def known(self, worst: WorstCost) -> WorstCost:
        """The worst cost, with 0 for unknown prices if money is not limited."""
        if self.limits_money:
            return worst
        return lambda request: cost if math.isfinite(cost := worst(request)) else 0.0

    async def reserved(self, plan: Affordable, worst: WorstCost) -> tuple[Affordable, Hold]:
        """The part of a pass within the daily ceilings, and the hold on its worst cost.

        Raises:
            CeilingReachedError: none of it fits.
            ResourceError: the ledger cannot be used.
        """
        order, cost = turns(plan.asked), self.known(worst)
        hold = await self.reserve([Amount.of(cost(plan.asked[place])) for place in order])
        granted = {order[place] for place in hold.granted}
        if plan.asked and not granted:
            left = ", ".join(
                f"{each.left:.6g} of {each.limit:g} {each.kind} ({each.account}, until {each.resets_at})"
                for each in await self.status()
            )
            raise CeilingReachedError(f"of the day's ceilings is left: {left}; the cheapest candidate may take more")
        asked = [request for place, request in enumerate(plan.asked) if place in granted]
        over = [request for place, request in enumerate(plan.asked) if place not in granted]
        return replace(plan, asked=asked, over_budget=[*plan.over_budget, *over]), hold

    async def reserve(self, wanted: Sequence[Amount]) -> Hold:
        """See ``Ledger.reserve``. The hold of a caller that is cancelled meanwhile is returned."""
        work = asyncio.ensure_future(asyncio.to_thread(self.ledger.reserve, self.ceilings, list(wanted)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await self.settle(await work, Amount())
            raise

    async def settle(self, hold: Hold, actual: Amount) -> None:
        """See ``Ledger.settle``. Completes even if the caller is cancelled."""
        await asyncio.shield(asyncio.to_thread(self.ledger.settle, hold, actual))

    async def status(self) -> list[CeilingStatus]:
        """Every ceiling and its remainder."""
        return await asyncio.to_thread(self._status)

    def _status(self) -> list[CeilingStatus]:
        resets_at = self.ledger.resets_at().isoformat()
        statuses = []
        for name, ceilings in self.ceilings.items():
            total = self.ledger.spent(name)
            used = {"usd": total.nano_usd / NANO, "candidates": total.candidates}
            for kind, limit in ceilings.model_dump(exclude_none=True).items():
                account = SERVICE if name == SERVICE else "key"
                left = max(0.0, limit - used[kind])
                statuses.append(CeilingStatus(account=account, kind=kind, limit=limit, left=left, resets_at=resets_at))
        return statuses


def account_of(
    ledger: Ledger | None, *, service: Ceilings, key_name: str | None = None, key: Ceilings | None = None
) -> Account | None:
    """A caller's account, or None if nothing is limited."""
    named = {SERVICE: service}
    if key_name is not None and key is not None:
        named[f"key:{key_name}"] = key
    ceilings = {name: limits for name, limits in named.items() if limits.is_limit}
    return Account(ledger, ceilings) if ledger is not None and ceilings else None
