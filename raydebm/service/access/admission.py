"""Admission control of one ingress replica: a bounded number of requests runs, a bounded number waits."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import fmean

from raydebm.errors import OverloadedError, ServiceError

MAX_WAIT_S = 30.0
"""Longest time in the queue. Requests that wait longer are answered 503."""
NUM_HELD = 64
"""Number of recent requests that the pace of the queue is estimated from."""
MAX_RETRY_S = 600
"""Longest ``Retry-After`` of a refused request."""


class Intake:
    """Count open requests, and refuse new ones once closed. Reloads keep the same object."""

    def __init__(self) -> None:
        self.num_open = 0
        self._closed = False

    def close(self) -> None:
        """Refuse requests from now on."""
        self._closed = True

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count a request while it is open.

        Raises:
            ServiceError: 503, closed.
        """
        if self._closed:
            raise ServiceError("the service is shutting down; try again, on another replica", 503, "shutting_down")
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1


class Admission:
    """Bounded set of running requests, with a first-come queue in front of it."""

    def __init__(self, max_running: int, max_waiting: int, *, on_change: Callable[[], None] = lambda: None) -> None:
        """Args:
        max_running: number of requests that run.
        max_waiting: number of requests that wait for a place.
        on_change: callback for each request that starts, ends or begins to wait.
        """
        self._max_running, self._max_waiting, self._on_change = max_running, max_waiting, on_change
        self._places = asyncio.Semaphore(max_running)
        self.num_running = self.num_waiting = 0
        self._begun_s: list[float] = []
        """Start times of the running requests, on the clock of the event loop."""
        self._held_s: deque[float] = deque(maxlen=NUM_HELD)
        """Running times of the latest requests."""

    def check(self) -> None:
        """Raise OverloadedError if the queue is full."""
        if self._places.locked() and self.num_waiting >= self._max_waiting:
            raise self._refusal(f"{self.num_running} requests run and {self.num_waiting} wait here")

    def _refusal(self, words: str) -> OverloadedError:
        """Refusal with the time until everybody in the queue, and one more, will have started at the present pace."""
        held_s = fmean(self._held_s) if self._held_s else 0.0
        so_far_s = asyncio.get_running_loop().time() - fmean(self._begun_s) if self._begun_s else 0.0
        wait_s = (self.num_waiting + 1) * max(held_s, so_far_s) / self._max_running
        return OverloadedError(words, min(max(math.ceil(wait_s), 1), MAX_RETRY_S))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, after waiting for one.

        Raises:
            OverloadedError: no place became free in time.
        """
        self.check()
        self.num_waiting += 1
        if self._places.locked():
            self._on_change()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._places.acquire()
        except TimeoutError as error:
            raise self._refusal(f"no place became free within {MAX_WAIT_S:g} s") from error
        finally:
            self.num_waiting -= 1
        self.num_running += 1
        self._on_change()
        begun_s = asyncio.get_running_loop().time()
        self._begun_s.append(begun_s)
        try:
            yield
        finally:
            self._begun_s.remove(begun_s)
            self._held_s.append(asyncio.get_running_loop().time() - begun_s)
            self.num_running -= 1
            self._places.release()
            self._on_change()
