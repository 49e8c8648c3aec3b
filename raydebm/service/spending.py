"""Limits on spending: of one request, and of a UTC day, in a SQLite file that all ingress replicas of a node share.

Before candidates are requested, their worst cost is reserved from every ceiling at once; afterwards the difference from
the real cost is returned. So parallel requests together stay below a ceiling, and the holds of a killed process count
as spent. A request may lower the operator's limits and never raise them. The operator sets them in the policy file, the
recipe, the named policies and ``limits``. Independent of: endpoints, Ray, HTTP.
"""

import asyncio
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from raydebm.config import GeneratorConfig, OpenAIGenerator
from raydebm.decision.policy import Policy
from raydebm.errors import CeilingReachedError, ResourceError, ServiceError
from raydebm.records import Candidate, FailureKind, GenerationRequest

NANO = 1_000_000_000
MAX_USD = 1e8
BUSY_S = 30.0
"""Longest wait for another process's transaction; a transaction takes milliseconds."""
SERVICE = "service"
"""Account of the whole service."""
WorstCost = Callable[[GenerationRequest], float]
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and candidates. Money is counted in whole billionths, so that sums are exact."""

    nano_usd: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, usd: float, candidates: int = 1) -> "Amount":
        """An amount, rounded up. More than ``MAX_USD``, even an infinite amount, counts as ``MAX_USD``."""
        return cls(math.ceil(min(usd, MAX_USD) * NANO), candidates)

    @property
    def usd(self) -> float:
        """The money in US dollars."""
        return self.nano_usd / NANO

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nano_usd + other.nano_usd, self.candidates + other.candidates)


class Ceilings(BaseModel):
    """Limits on the spending of one request or of one UTC day. Default: no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    candidates: int | None = Field(None, ge=0)

    def covers(self, amount: Amount) -> bool:
        """True if the amount is within the ceilings."""
        return (self.usd is None or amount.nano_usd <= round(self.usd * NANO)) and (
            self.candidates is None or amount.candidates <= self.candidates
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """Amount reserved for one pass."""

    day: str
    accounts: tuple[str, ...]
    amount: Amount
    granted: tuple[int, ...]
    """Indices of the granted amounts. Empty if nothing fits."""


class Ledger:
    """Accounts by name and UTC day. Every call is one transaction, may come from any thread, and raises ResourceError
    if the file cannot be used."""

    def __init__(self, path: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def reserve(self, accounts: Mapping[str, Ceilings], wanted: Sequence[Amount]) -> Hold:
        """Reserve as many of the wanted amounts as fit below every ceiling, in order; one that does not fit is skipped,
        and a later, smaller one may still fit."""
        day, held, granted = self._day(), Amount(), []
        with self._transaction() as db:
            totals = {account: _total(db, day, account) for account in accounts}
            for place, amount in enumerate(wanted):
                more = held + amount
                if all(ceilings.covers(totals[account] + more) for account, ceilings in accounts.items()):
                    held = more
                    granted.append(place)
            _add(db, day, accounts, held)
        return Hold(day, tuple(accounts), held, tuple(granted))

    def settle(self, hold: Hold, actual: Amount) -> None:
        """Replace a hold with the actual amount. If the file cannot be used, the hold counts as spent."""
        held = hold.amount
        change = Amount(actual.nano_usd - held.nano_usd, actual.candidates - held.candidates)
        with self._transaction() as db:
            _add(db, hold.day, hold.accounts, change)

    def spent(self, account: str) -> Amount:
        """Today's spending including holds."""
        with self._transaction() as db:
            return _total(db, self._day(), account)

    def resets_at(self) -> datetime:
        """Start of the next day."""
        return (self._clock() + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _day(self) -> str:
        return self._clock().date().isoformat()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection in an exclusive transaction, committed at the end and rolled back on an error."""
        with self._lock:
            try:
                db = self._connection = self._connection or self._open()
                with db:
                    db.execute("BEGIN IMMEDIATE")
                    yield db
            except (sqlite3.Error, OSError) as error:
                raise ResourceError(f"the ledger {self._path!r} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        # Safe against the death of a process; a power cut may lose the last moments.
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        columns = "day TEXT, account TEXT, nano_usd INTEGER, candidates INTEGER, PRIMARY KEY (day, account)"
        db.execute(f"CREATE TABLE IF NOT EXISTS spent ({columns})")
        return db


def _total(db: sqlite3.Connection, day: str, account: str) -> Amount:
    query = "SELECT nano_usd, candidates FROM spent WHERE day = ? AND account = ?"
    row = db.execute(query, (day, account)).fetchone()
    return Amount() if row is None else Amount(*row)


def _add(db: sqlite3.Connection, day: str, accounts: Iterable[str], amount: Amount) -> None:
    db.executemany(
        "INSERT INTO spent (day, account, nano_usd, candidates) VALUES (?, ?, ?, ?) ON CONFLICT (day, account) "
        "DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd, candidates = candidates + excluded.candidates",
        [(day, account, amount.nano_usd, amount.candidates) for account in accounts],
    )


# ---- of one request -------------------------------------------------------------------------------------------------


def within_ceilings(asked: Policy, *, operators: Policy, ceilings: Ceilings) -> Policy:
    """A request's policy, limited to the operator's ceilings. Raises ServiceError 400 if a later pass has more
    candidates than the operator's policy allows."""
    check_count("num_regenerate", asked.num_regenerate, operators.num_regenerate)
    return asked.replaced(
        max_passes=min(asked.max_passes, operators.max_passes),
        budget=_lower(asked.budget, operators.budget if ceilings.candidates is None else ceilings.candidates),
        max_usd=_lower(asked.max_usd, operators.max_usd if ceilings.usd is None else ceilings.usd),
    )


def check_count(name: str, value: int | None, most: int) -> None:
    """Raise ServiceError 400 for a count above the operator's."""
    if value is not None and value > most:
        message = f"{name} is {value}, and this service allows at most {most}; ask for fewer, or for a named policy"
        raise ServiceError(message, 400, "above_ceiling", name)


def _lower(asked: N | None, most: N | None) -> N | None:
    return most if asked is None else asked if most is None else min(asked, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """The affordable part of a pass, in order, and the requests left out for money or a daily ceiling."""

    requests: list[GenerationRequest]
    over_budget: list[GenerationRequest]
    """Requests left out because each may take more than is left of a limit on money or of a daily ceiling."""


def affordable(
    requests: Sequence[GenerationRequest],
    *,
    most: int | None = None,
    left_usd: float = math.inf,
    worst: WorstCost = lambda request: 0.0,
) -> Affordable:
    """Take every generator's first sample, then every generator's second, and so on, up to the limits.

    Those beyond ``most``, the remaining budget of candidates, are dropped silently. Each reserves its worst cost from
    ``left_usd``; one that costs too much is skipped, and a later, cheaper one may still fit.
    """
    granted, over = list[int](), list[int]()
    for place in limit_order(requests)[: None if most is None else max(0, most)]:
        cost = worst(requests[place])
        if cost <= left_usd:
            left_usd -= cost
            granted.append(place)
        else:
            over.append(place)
    return Affordable(
        requests=[requests[place] for place in sorted(granted)], over_budget=[requests[place] for place in sorted(over)]
    )


def limit_order(requests: Sequence[GenerationRequest]) -> list[int]:
    """Indices of the requests in the order in which limits are applied: by sample, then as given."""
    return sorted(range(len(requests)), key=lambda place: (requests[place].sample_index, place))


def spent(requests: Iterable[GenerationRequest], candidates: Iterable[Candidate], worst: WorstCost) -> Amount:
    """Upper bound on the use of requests: the cost that each candidate states, else the worst cost of its request.
    Requests that were never sent use nothing."""
    stated = {candidate.candidate_id: candidate for candidate in candidates}
    total = Amount()
    for request in requests:
        candidate = stated.get(request.candidate_id)
        cost = None if candidate is None else candidate.cost_usd
        # A request that failed after it was sent states its possible cost.
        unsent = candidate is not None and candidate.failure in (FailureKind.NOT_SENT, FailureKind.BUDGET)
        if cost is not None or not unsent:
            total += Amount.of(worst(request) if cost is None else cost)
    return total


def no_prices(configs: Iterable[GeneratorConfig]) -> str | None:
    """Message for a limit on money if a generator without prices makes the costs unbounded; else None."""
    names = [
        config.name
        for config in configs
        if isinstance(config, OpenAIGenerator) and config.usd_per_million_tokens is None
    ]
    if not names:
        return None
    return (
        f"max_usd needs the prices of every generator that is asked, and the recipe has none for {', '.join(names)}; "
        "set usd_per_million_tokens there, or ask other generators"
    )


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
        """The part of a pass within the daily ceilings, and the hold on its worst cost. Raises CeilingReachedError if
        none of it fits."""
        order, cost = limit_order(plan.requests), self.known(worst)
        hold = await self.reserve([Amount.of(cost(plan.requests[place])) for place in order])
        granted = {order[place] for place in hold.granted}
        if not granted:
            left = ", ".join(
                f"{each.left:.6g} of {each.limit:g} {each.kind} ({each.account}, until {each.resets_at})"
                for each in await self.status()
            )
            raise CeilingReachedError(f"of the day's ceilings is left: {left}; the cheapest candidate may take more")
        within = [request for place, request in enumerate(plan.requests) if place in granted]
        over = [request for place, request in enumerate(plan.requests) if place not in granted]
        return replace(plan, requests=within, over_budget=[*plan.over_budget, *over]), hold

    async def reserve(self, wanted: Sequence[Amount]) -> Hold:
        """See ``Ledger.reserve``. If the caller is cancelled meanwhile, the hold is released."""
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
            account, total = SERVICE if name == SERVICE else "key", self.ledger.spent(name)
            used = {"usd": total.usd, "candidates": total.candidates}
            for kind, limit in ceilings.model_dump(exclude_none=True).items():
                left = max(0.0, limit - used[kind])
                statuses.append(CeilingStatus(account=account, kind=kind, limit=limit, left=left, resets_at=resets_at))
        return statuses
