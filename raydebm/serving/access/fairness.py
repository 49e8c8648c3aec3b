"""Which texts are scored next: the work of all calls in short slices, in turn by key, then by request.

A call with hundreds of texts is not scored in one go. Each slice takes one text of every waiting key's next request
after the other, as many as are scored in about ``slice_s``; so a call that comes later waits for one slice, not for
everybody before it. A request that comes while a slice runs is served before those in it.
Does not know: torch, Ray, ensembles.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

SLICE_S = 0.05
MAX_TEXTS = 256
"""Texts of one slice at most."""
FIRST_CHARS = 1_000
"""Characters of a slice before anything is known about the scorer's speed: few, because slices grow quickly, and a long
one delays others."""
GROWTH = 2.0

W = TypeVar("W")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Call(Generic[W, R]):
    """One call and what is done of it."""

    caller: Hashable
    request: Hashable
    work: Sequence[W]
    done: "asyncio.Future[None]"
    results: list[R] = field(default_factory=list)
    num_taken: int = 0

    @property
    def has_more(self) -> bool:
        return self.num_taken < len(self.work)


class FairQueue(Generic[W, R]):
    """Runs the work of concurrent calls in slices, one slice at a time."""

    def __init__(
        self,
        run: Callable[[Sequence[Sequence[W]]], Sequence[Sequence[R]]],
        *,
        size: Callable[[W], int],
        shared: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Args:
            run: does a slice in a thread: the items of each call in it to their results, in their order.
            size: of an item, in characters.
            shared: whether a slice may hold items of several calls.
            clock: seconds.
        """
        self._run, self._size, self._shared, self._clock = run, size, shared, clock
        self.slice_s, self.max_texts = SLICE_S, MAX_TEXTS
        self._chars = float(FIRST_CHARS)
        self._waiting: dict[Hashable, dict[Hashable, deque[_Call[W, R]]]] = {}
        """Caller -> request -> its calls with items left. Whose turn is next stands first, on each level."""
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, work: Sequence[W], *, caller: Hashable, request: Hashable) -> list[R]:
        """The results of the items, in their order. A cancelled call's remaining items are dropped.

        Args:
            work: the items.
            caller: who asks; each has the same share.
            request: what the items belong to; each of a caller's requests has the same share of it.
        """
        if not work:
            return []
        call: _Call[W, R] = _Call(caller, request, work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(caller, {}).setdefault(request, deque()).append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            await call.done
        finally:
            call.num_taken = len(call.work)
            self._drop(call)
        return call.results

    async def _work(self) -> None:
        while slice_ := self._next_slice():
            began = self._clock()
            try:
                results = await asyncio.to_thread(self._run, [items for _, items in slice_])
            except Exception as error:  # noqa: BLE001 - whatever broke, it broke for these calls, and they raise it
                for call, _ in slice_:
                    if not call.done.done():
                        call.done.set_exception(error)
                continue
            finally:
                self._let_newcomers_ahead([call for call, _ in slice_])
            self._learn(slice_, self._clock() - began)
            for (call, _), call_results in zip(slice_, results, strict=True):
                call.results.extend(call_results)
                if len(call.results) == len(call.work) and not call.done.done():
                    call.done.set_result(None)

    def _next_slice(self) -> list[tuple[_Call[W, R], list[W]]]:
        """The items of each call in the next slice; each call once."""
        taken: dict[_Call[W, R], list[W]] = {}
        num_chars = num_items = 0
        while num_items < self.max_texts and (call := self._next_call(taken)) is not None:
            work_item = call.work[call.num_taken]
            if taken and num_chars + self._size(work_item) > self._chars:
                break
            taken.setdefault(call, []).append(work_item)
            num_chars, num_items, call.num_taken = num_chars + self._size(work_item), num_items + 1, call.num_taken + 1
            self._end_turn(call)
        return list(taken.items())

    def _next_call(self, taken: Mapping[_Call[W, R], object]) -> _Call[W, R] | None:
        """Whose turn is next; None: no one's."""
        if taken and not self._shared:
            (call,) = taken
            return call if call.has_more else None
        if not self._waiting:
            return None
        requests = next(iter(self._waiting.values()))
        return next(iter(requests.values()))[0]

    def _end_turn(self, call: _Call[W, R]) -> None:
        """Send the caller, and its request, to the end of the line; a call without further items leaves it."""
        self._drop(call)
        requests = self._waiting.pop(call.caller, None)
        if requests is None:
            return
        if call.request in requests:
            requests[call.request] = requests.pop(call.request)
        self._waiting[call.caller] = requests

    def _let_newcomers_ahead(self, served: Sequence[_Call[W, R]]) -> None:
        """Send the callers and requests of a slice behind those that came while it ran, in their order."""
        callers, requests = {call.caller for call in served}, {(call.caller, call.request) for call in served}
        for caller in [caller for caller in self._waiting if caller in callers]:
            of_caller = self._waiting.pop(caller)
            served_last = sorted(of_caller, key=lambda request: (caller, request) in requests)
            self._waiting[caller] = {request: of_caller[request] for request in served_last}

    def _drop(self, call: _Call[W, R]) -> None:
        """Forget a call without further items, and who then waits for nothing."""
        requests = self._waiting.get(call.caller, {})
        calls = requests.get(call.request)
        if call.has_more or calls is None:
            return
        if call in calls:
            calls.remove(call)
        if not calls:
            del requests[call.request]
        if not requests:
            del self._waiting[call.caller]

    def _learn(self, slice_: Sequence[tuple[_Call[W, R], list[W]]], seconds: float) -> None:
        """Adapt the size of slices to the speed: shrink when one takes too long, which a single item cannot help; grow
        while full ones take less than half of their time."""
        sizes = [self._size(work_item) for _, items in slice_ for work_item in items]
        if seconds > self.slice_s and len(sizes) > 1:
            self._chars = sum(sizes) * max(1 / GROWTH, self.slice_s / seconds)
        elif seconds < self.slice_s / GROWTH and sum(sizes) * GROWTH >= self._chars:
            self._chars *= GROWTH
