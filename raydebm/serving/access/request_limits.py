"""How much is taken on: requests per minute and at once per key, and a bounded queue for all.

All of it is counted in this process: with several ingress replicas, each has these limits for itself.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from raydebm.errors import ServiceError
from raydebm.serving.access.keys import ApiKey
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError
from raydebm.serving.settings.app_args import LimitArgs
from raydebm.serving.spending.ceilings import Account, account_of
from raydebm.serving.spending.ledger import Ledger


class TokenBucket:
    """``per_minute`` requests a minute on average, and as many at once after a quiet minute (at least one)."""

    def __init__(self, per_minute: float, *, now: float) -> None:
        self._per_second = per_minute / 60
        self._size = max(1.0, per_minute)
        self._tokens, self._at = self._size, now

    def take(self, now: float, count: int = 1) -> float:
        """0 when so many requests may go; else the seconds until they may. What is refused costs nothing.

        More than a minute's worth goes where a minute's worth may go, and those that come later wait for it.
        """
        self._tokens = min(self._size, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        needed = min(float(count), self._size)
        if self._tokens >= needed:
            self._tokens -= count
            return 0.0
        return (needed - self._tokens) / self._per_second

    def put_back(self) -> None:
        """Forget one request that was let in."""
        self._tokens = min(self._size, self._tokens + 1)


@dataclass(slots=True)
class KeyUse:
    """What one key does, and how much it may do."""

    name: str = ""
    bucket: TokenBucket | None = None
    """None: any rate."""
    max_open: int | None = None
    num_open: int = 0
    """Open requests, with the further parts of each that run at the same time."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    account: Account | None = None
    """What it may spend today; None: nothing is limited."""
    clock: Callable[[], float] = time.monotonic

    def charge(self, count: int = 1) -> None:
        """Count one more request, such as each further one of a batch.

        Args:
            count: so many, which go together or not at all.

        Raises:
            TooManyError: 429, with the seconds to wait.
        """
        if self.bucket is not None and (wait_s := self.bucket.take(self.clock(), count)):
            of_many = f" with the {count} problems of this request" if count > 1 else ""
            words = f"key {self.name!r} is above its requests per minute{of_many}; try again in {math.ceil(wait_s)} s"
            raise TooManyError(words, 429, wait_s)

    def charge_problems(self, count: int) -> None:
        """Count a request as what it holds, where it was counted as one when it came in; refused, it counts nothing.

        Raises:
            TooManyError: 429, with the seconds to wait.
        """
        if self.bucket is not None:
            self.bucket.put_back()
            self.charge(count)

    @property
    def is_full(self) -> bool:
        """Whether no further request may be open."""
        return self.max_open is not None and self.num_open >= self.max_open

    async def take(self) -> None:
        """Open one more part of a request, as soon as the key may. New requests go before it."""
        while self.is_full:
            self.freed.clear()
            await self.freed.wait()
        self.num_open += 1

    def give_back(self) -> None:
        """Close a request, or one part of one."""
        self.num_open -= 1
        self.freed.set()


class KeyLimits:
    """Rate, concurrency and daily spending of each key."""

    def __init__(
        self, limits: LimitArgs, clock: Callable[[], float] = time.monotonic, *, ledger: Ledger | None = None
    ) -> None:
        """
        Args:
            limits: of the service.
            clock: seconds, for rates.
            ledger: counts the days' spending; None: it is not counted.
        """
        self._limits, self._clock, self._ledger = limits, clock, ledger
        # By the whole key: one whose limits were changed in the keys file starts again.
        self._uses: dict[ApiKey, KeyUse] = {}

    @contextmanager
    def open(self, key: ApiKey | None) -> Iterator[KeyUse]:
        """Holds one of the key's places; a client without a key has no limits of its own.

        Raises:
            TooManyError: 429, with the seconds to wait.
        """
        if key is None:
            yield KeyUse(account=account_of(self._ledger, service=self._limits.per_day))
            return
        use = self._uses.setdefault(key, self._use(key))
        if use.is_full:
            raise TooManyError(f"key {key.name!r} has {use.max_open} open requests, its limit", 429, BUSY_RETRY_S)
        use.charge()
        use.num_open += 1
        try:
            yield use
        finally:
            use.give_back()

    def _use(self, key: ApiKey) -> KeyUse:
        per_minute = key.requests_per_minute or self._limits.requests_per_minute
        bucket = None if per_minute is None else TokenBucket(per_minute, now=self._clock())
        most = key.max_concurrent or self._limits.max_concurrent
        per_day = self._limits.key_per_day if key.per_day is None else key.per_day
        account = account_of(self._ledger, service=self._limits.per_day, key_name=key.name, key=per_day)
        return KeyUse(name=key.name, bucket=bucket, max_open=most, account=account, clock=self._clock)


class Intake:
    """Counts open requests, and refuses new ones once it is closed. It outlives changes of the application."""

    def __init__(self) -> None:
        self.num_open = 0
        self._closed = False

    def close(self) -> None:
        """Refuse every request from now on; what is open goes on."""
        self._closed = True

    @contextmanager
    def open(self) -> Iterator[None]:
        """Counts one request while it is answered.

        Raises:
            ServiceError: 503, the service is about to end.
        """
        if self._closed:
            raise ServiceError("the service is shutting down; try again, on another replica", 503, "shutting_down")
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1


class Admission:
    """A bounded number of requests runs, a bounded number waits, and the next one is refused at once. A request of many
    parts counts as many as run."""

    def __init__(self, limits: LimitArgs, *, on_change: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            limits: of the service.
            on_change: called when a place was taken or given back, and when a request has to wait for one.
        """
        self._limits, self._on_change = limits, on_change
        self._places = asyncio.Semaphore(limits.max_running)
        self.num_running = self.num_waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Holds a place, after waiting for one in the order of arrival.

        Raises:
            TooManyError: 503.
        """
        await self._enter()
        self._count_one()
        try:
            yield
        finally:
            self.give_back()

    async def take(self) -> None:
        """Take one more place for a request that has one, in the order of asking. It is never refused, and is none of
        those that wait to begin."""
        await self._places.acquire()
        self._count_one()

    def give_back(self) -> None:
        """Leave a place to who comes next."""
        self.num_running -= 1
        self._places.release()
        self._on_change()

    def check(self) -> None:
        """Raises TooManyError (503) when a request that came now could not even wait."""
        if self._places.locked() and self.num_waiting >= self._limits.max_waiting:
            words = f"{self.num_running} requests run and {self.num_waiting} wait here; try again"
            raise TooManyError(words, 503, BUSY_RETRY_S)

    async def _enter(self) -> None:
        self.check()
        self.num_waiting += 1
        if self._places.locked():
            self._on_change()
        try:
            async with asyncio.timeout(self._limits.max_wait_s):
                await self._places.acquire()
        except TimeoutError as error:
            words = f"no place became free within {self._limits.max_wait_s:g} s; try again"
            raise TooManyError(words, 503, BUSY_RETRY_S) from error
        finally:
            self.num_waiting -= 1

    def _count_one(self) -> None:
        self.num_running += 1
        self._on_change()
