"""Admission control of one ingress replica: a bounded number of requests runs, a bounded number waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from raydebm.errors import ServiceError
from raydebm.serving.failures import overloaded

MAX_WAIT_S = 30.0
"""Longest time in the queue. Requests that wait longer are answered 503."""


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
        self._max_waiting, self._on_change = max_waiting, on_change
        self._places = asyncio.Semaphore(max_running)
        self.num_running = self.num_waiting = 0

    def check(self) -> None:
        """Raise ServiceError (503) if the queue is full."""
        if self._places.locked() and self.num_waiting >= self._max_waiting:
            raise overloaded(f"{self.num_running} requests run and {self.num_waiting} wait here; try again")

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, after waiting for one.

        Raises:
            ServiceError: 503.
        """
        self.check()
        self.num_waiting += 1
        if self._places.locked():
            self._on_change()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._places.acquire()
        except TimeoutError as error:
            raise overloaded(f"no place became free within {MAX_WAIT_S:g} s; try again") from error
        finally:
            self.num_waiting -= 1
        self.num_running += 1
        self._on_change()
        try:
            yield
        finally:
            self.num_running -= 1
            self._places.release()
            self._on_change()
