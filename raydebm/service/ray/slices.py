"""Fair scheduling of concurrent calls in short slices.

A call with hundreds of texts is scored in slices, so a later call waits for one slice and not for every earlier call. A
slice takes one item of each waiting call in turn, as many as run in about ``slice_s``.
Does not know: torch, Ray, ensembles.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

SLICE_S = 0.05
MAX_TEXTS = 256
"""Maximum number of items per slice."""
FIRST_CHARS = 1_000
"""Characters of a slice before the speed is known: few, because slices grow quickly and a long one delays others."""
GROWTH = 2.0

W = TypeVar("W")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Call(Generic[W, R]):
    """One call and its results so far."""

    work: Sequence[W]
    done: "asyncio.Future[None]"
    results: list[R] = field(default_factory=list)
    num_taken: int = 0


class SliceQueue(Generic[W, R]):
    """Runs the work of concurrent calls, one slice at a time."""

    def __init__(
        self,
        run: Callable[[Sequence[Sequence[W]]], Sequence[Sequence[R]]],
        *,
        size: Callable[[W], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        run: scores one slice in a thread: items per call to results per call, in order.
        """
        self._run, self._size, self._clock = run, size, clock
        self.slice_s, self.max_texts = SLICE_S, MAX_TEXTS
        self._chars = float(FIRST_CHARS)
        self._waiting: deque[_Call[W, R]] = deque()
        """Calls with items left, the next in turn first."""
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, work: Sequence[W]) -> list[R]:
        """Return the results of the items, in their order. The remaining items of a cancelled call are dropped."""
        if not work:
            return []
        call: _Call[W, R] = _Call(work, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            await call.done
        finally:
            if call in self._waiting:
                self._waiting.remove(call)
        return call.results

    async def _work(self) -> None:
        while self._waiting:
            taken = self._next_slice()
            began = self._clock()
            try:
                results = await asyncio.to_thread(self._run, list(taken.values()))
            except Exception as error:  # noqa: BLE001 - whatever broke, it broke for these calls, and they raise it
                for call in taken:
                    if not call.done.done():
                        call.done.set_exception(error)
                    if call in self._waiting:
                        self._waiting.remove(call)
                continue
            self._learn([self._size(item) for items in taken.values() for item in items], self._clock() - began)
            for call, call_results in zip(taken, results, strict=True):
                call.results.extend(call_results)
                if len(call.results) == len(call.work) and not call.done.done():
                    call.done.set_result(None)

    def _next_slice(self) -> dict[_Call[W, R], list[W]]:
        taken: dict[_Call[W, R], list[W]] = {}
        num_chars = num_items = 0
        while self._waiting and num_items < self.max_texts:
            call = self._waiting[0]
            size = self._size(call.work[call.num_taken])
            if taken and num_chars + size > self._chars:
                break
            taken.setdefault(call, []).append(call.work[call.num_taken])
            num_chars, num_items, call.num_taken = num_chars + size, num_items + 1, call.num_taken + 1
            self._waiting.popleft()
            if call.num_taken < len(call.work):
                self._waiting.append(call)
        return taken

    def _learn(self, sizes: Sequence[int], seconds: float) -> None:
        """Shrink when a slice of several items takes too long; grow while full ones take less than half of the time."""
        if seconds > self.slice_s and len(sizes) > 1:
            self._chars = sum(sizes) * max(1 / GROWTH, self.slice_s / seconds)
        elif seconds < self.slice_s / GROWTH and sum(sizes) * GROWTH >= self._chars:
            self._chars *= GROWTH
