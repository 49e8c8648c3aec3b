"""The places of one request whose parts run at the same time: each part that runs holds one.

A request has a place from its beginning to its end. Its parts go on in that place, one after the other, whatever other
requests hold: so none waits for itself, and no two wait for each other. Further parts run in further places, for which
the request stands in line with all others, once.
Does not know: HTTP, problems, prompts.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Part = Callable[[], Awaitable[T]]


class Line(Protocol):
    """Places that requests share."""

    async def take(self) -> None:
        """Take a place, after waiting for one."""
        ...

    def give_back(self) -> None:
        """Leave a place to others."""
        ...


class RequestPlaces:
    """Where the parts of one request run."""

    def __init__(self, *lines: Line) -> None:
        """
        Args:
            lines: a place is one in each of them, taken in this order. The request has its own already, and who gave it
                takes it back.
        """
        self._lines = lines

    async def run(self, parts: Sequence[Part[T]], most: int) -> list[T]:
        """The results of the parts, which begin in their order.

        Args:
            parts: make what is awaited.
            most: how many run at once, where there are places.

        Raises:
            ExceptionGroup: parts failed; the others were cancelled.
        """
        work = _Parts(self._lines, parts)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(most, len(parts)) - 1):
                group.create_task(work.go_on_elsewhere())
            await work.go_on_here()
        return [work.results[index] for index in range(len(parts))]


class _Parts(Generic[T]):
    """The parts that have not begun, and the results of those that have ended."""

    def __init__(self, lines: Sequence[Line], parts: Sequence[Part[T]]) -> None:
        self._lines, self._todo = lines, deque(enumerate(parts))
        self.results: dict[int, T] = {}
        self._num_busy = 0
        """Places in use. The request holds as many, and its own where none is in use."""
        self._in_line = asyncio.Lock()
        self._idle: set[asyncio.Task[Any] | None] = set()
        """Tasks that wait for a further place."""

    async def go_on_here(self) -> None:
        """Run parts in the request's own place until the last one has begun."""
        self._num_busy += 1
        try:
            while self._todo:
                await self._run_next()
        finally:
            self._end()
        for task in self._idle:
            if task is not None:
                task.cancel()

    async def go_on_elsewhere(self) -> None:
        """Run parts in further places, each in one that it waits for and gives back."""
        while self._todo:
            await self._take()
            if not self._todo:
                self._give_back()
                return
            self._num_busy += 1
            try:
                await self._run_next()
            finally:
                self._end()

    async def _run_next(self) -> None:
        index, part = self._todo.popleft()
        self.results[index] = await part()

    async def _take(self) -> None:
        task = asyncio.current_task()
        self._idle.add(task)
        try:
            async with self._in_line:
                with ExitStack() as taken:  # when one cannot be had, those before it are given back
                    for line in self._lines:
                        await line.take()
                        taken.callback(line.give_back)
                    taken.pop_all()
        finally:
            self._idle.discard(task)

    def _end(self) -> None:
        """Give a place back, whichever it was; the last one stands for the request's own."""
        self._num_busy -= 1
        if self._num_busy:
            self._give_back()

    def _give_back(self) -> None:
        for line in self._lines:
            line.give_back()
