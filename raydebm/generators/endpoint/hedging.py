"""Asking a slow endpoint a second time: the first answer counts, the other request is cancelled.

The rules:

1. a request is repeated when it has taken longer than a fixed time, or than 95 % of this generator's last ``WINDOW``
   requests (of which ``MIN_SEEN`` must be known);
2. it is repeated once, with the same seed, so that both draw the same candidate as far as the endpoint keeps to seeds;
3. at most every tenth request is repeated, and none while the generator has no free place: where everything is slow, a
   second request makes it slower;
4. a failure counts only when the other request has failed too.

The time counts from when a request is sent, not from when it begins to wait for its place.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
HedgeAfter = Literal["p95"] | float
"""Seconds, or the 95th percentile of what this generator's last requests took."""

WINDOW = 200
MIN_SEEN = 20
MAX_SHARE = 0.1


class Hedging:
    """Counts one generator's requests and says when one is repeated."""

    def __init__(self, after: HedgeAfter, *, on_repeat: Callable[[bool], None] | None = None) -> None:
        """
        Args:
            after: seconds, or ``"p95"``.
            on_repeat: told of every repeated request whether the repetition answered first.
        """
        self._after = after
        self._on_repeat = on_repeat
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._num_requests = self._num_repeated = 0

    def wait_s(self) -> float | None:
        """Seconds after which a request is slow; None while nothing tells."""
        if not isinstance(self._after, str):
            return self._after
        if len(self._seconds) < MIN_SEEN:
            return None
        return sorted(self._seconds)[math.ceil(0.95 * len(self._seconds)) - 1]

    async def first_of(self, call: Callable[[], Awaitable[T]], *, has_place: Callable[[], bool]) -> T:
        """The result that counts: what came first, and of two that came at the same moment the first request's.

        Args:
            call: sends the request; called once or twice.
            has_place: whether the generator can take another request now.

        Raises:
            Exception: of the first request, when none gave a result.
        """
        self._num_requests += 1
        clock = asyncio.get_running_loop().time
        started = clock()
        tasks = [asyncio.ensure_future(call())]
        try:
            _, pending = await asyncio.wait(tasks, timeout=self.wait_s())
            if pending and has_place() and self._num_repeated < MAX_SHARE * self._num_requests:
                self._num_repeated += 1
                tasks.append(asyncio.ensure_future(call()))
                pending = set(tasks)
            while pending and not _results(tasks):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            results = _results(tasks)
            if len(tasks) == 2 and self._on_repeat is not None:
                self._on_repeat(bool(results) and not _results(tasks[:1]))
            if results:
                # A request that was overtaken would have taken longer still: it stays among the slow ones.
                self._seconds.append(clock() - started)
            return results[0] if results else tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _results(tasks: "Sequence[asyncio.Future[T]]") -> list[T]:
    return [task.result() for task in tasks if task.done() and not task.cancelled() and task.exception() is None]
