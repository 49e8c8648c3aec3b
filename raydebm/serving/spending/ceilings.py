"""The operator's ceilings on one request and on one day.

A request may lower the operator's limits and never raise them. The operator sets them in the policy file, the recipe,
the named policies and ``limits.request``.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.records import GenerationRequest
from raydebm.serving.spending.ledger import NANO, Amount, DayCeilings, Hold, Ledger

N = TypeVar("N", int, float)
SERVICE = "service"
"""Account of the whole service."""


class RequestCeilings(BaseModel):
    """Limits on one request. Default: those of the operator's policy and recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    """US dollars. A larger or missing ``max_usd`` of a request is replaced by it."""
    budget: int | None = Field(None, ge=1)
    """Candidates over all passes. Applied like ``max_usd``."""
    max_passes: int | None = Field(None, ge=1)
    """Passes. Applied like ``max_usd``."""
    num_samples: int | None = Field(None, ge=1)
    """Candidates per generator in pass 1. A request for more is refused; larger values of the recipe or a named policy
    are lowered to it."""
    num_regenerate: int | None = Field(None, ge=1)
    """Candidates of a later pass. Applied like ``num_samples``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingStatus:
    """One ceiling of one day, and its remainder."""

    account: str
    """``service`` for the whole service, ``key`` for the caller's key."""
    kind: str
    """``usd``, ``candidates`` or ``tokens``."""
    limit: float
    left: float
    """Remainder after spending and the worst cost of running requests."""
    resets_at: str
    """ISO time, UTC."""


def within_ceilings(asked: Policy, *, operators: Policy, ceilings: RequestCeilings) -> Policy:
    """A request's policy, limited to the operator's ceilings.

    Args:
        asked: the operator's policy with the request's changes.
        operators: the served policy with the named policy's changes.
        ceilings: the operator's ceilings.

    Raises:
        ServiceError: 400 for more candidates of a pass than allowed.
    """
    max_passes = min(asked.max_passes, ceilings.max_passes or operators.max_passes)
    most_regenerate = ceilings.num_regenerate or operators.num_regenerate
    if asked.num_regenerate != operators.num_regenerate:  # the operator's own settings are lowered without an error
        check_count("num_regenerate", asked.num_regenerate, most_regenerate)
    if max_passes < asked.max_passes:
        asked = asked.without_promise("a ceiling of the service changed max_passes")
    if max_passes > 1 and most_regenerate < asked.num_regenerate:
        asked = asked.without_promise("a ceiling of the service changed num_regenerate")
    return asked.replaced(
        max_passes=max_passes,
        num_regenerate=min(asked.num_regenerate, most_regenerate),
        budget=_lower(asked.budget, operators.budget if ceilings.budget is None else ceilings.budget),
        max_usd=_lower(asked.max_usd, operators.max_usd if ceilings.max_usd is None else ceilings.max_usd),
    )


def check_count(name: str, value: int | None, most: int) -> None:
    """Raise ServiceError (400) for a count above its ceiling."""
    if value is not None and value > most:
        message = f"{name} is {value}, and this service allows at most {most}; ask for fewer (limits.request raises it)"
        raise ServiceError(message, 400, "above_ceiling", name)


def _lower(asked: N | None, most: N | None) -> N | None:
    return most if asked is None else asked if most is None else min(asked, most)


@dataclass(frozen=True, slots=True)
class Account:
    """A caller's spending limits for today: those of its key and of the whole service."""

    ledger: Ledger
    ceilings: Mapping[str, DayCeilings]
    """Ceilings by account name, without accounts that are not limited."""

    @property
    def limits_money(self) -> bool:
        """True if any ceiling is in US dollars."""
        return any(ceilings.usd is not None for ceilings in self.ceilings.values())

    def known(self, worst: Callable[[GenerationRequest], float]) -> Callable[[GenerationRequest], float]:
        """The worst cost, with 0 for unknown prices if money is not limited."""
        if self.limits_money:
            return worst
        return lambda request: cost if math.isfinite(cost := worst(request)) else 0.0

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
            spent = self.ledger.spent(name)
            used = {"usd": spent.nano_usd / NANO, "candidates": spent.candidates, "tokens": spent.tokens}
            for kind, limit in ceilings.model_dump(exclude_none=True).items():
                account = SERVICE if name == SERVICE else "key"
                left = max(0.0, limit - used[kind])
                statuses.append(CeilingStatus(account=account, kind=kind, limit=limit, left=left, resets_at=resets_at))
        return statuses


def account_of(
    ledger: Ledger | None, *, service: DayCeilings, key_name: str | None = None, key: DayCeilings | None = None
) -> Account | None:
    """A caller's account, or None if nothing is limited."""
    named = {SERVICE: service}
    if key_name is not None and key is not None:
        named[f"key:{key_name}"] = key
    ceilings = {name: limits for name, limits in named.items() if limits.is_limit}
    return Account(ledger, ceilings) if ledger is not None and ceilings else None
