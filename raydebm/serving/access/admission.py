"""How much one ingress replica takes on: a bounded number of requests runs, a bounded number waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from raydebm.errors import ServiceError
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError
from raydebm.serving.settings.app_args import LimitArgs

MAX_WAIT_S = 30.0
"""A request that has waited so long is answered 503."""


class Intake:
    """Counts open requests, and refuses new ones once it is closed. It outlives changes of the application."""

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
    """Places of the requests that run, and the queue for them, in the order of arrival."""

    def __init__(self, limits: LimitArgs, *, on_change: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            limits: ``max_running`` and ``max_waiting``.
            on_change: called when a place is taken or given back, and when a request begins to wait.
        """
        self._limits, self._on_change = limits, on_change
        self._places = asyncio.Semaphore(limits.max_running)
        self.num_running = self.num_waiting = 0

    def check(self) -> None:
        """Raises TooManyError (503) when a request that came now could not even wait."""
        if self._places.locked() and self.num_waiting >= self._limits.max_waiting:
            words = f"{self.num_running} requests run and {self.num_waiting} wait here; try again"
            raise TooManyError(words, 503, BUSY_RETRY_S)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, after waiting for one.

        Raises:
            TooManyError: 503.
        """
        self.check()
        self.num_waiting += 1
        if self._places.locked():
            self._on_change()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._places.acquire()
        except TimeoutError as error:
            words = f"no place became free within {MAX_WAIT_S:g} s; try again"
            raise TooManyError(words, 503, BUSY_RETRY_S) from error
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
