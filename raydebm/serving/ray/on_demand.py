"""What a replica loads when it is first asked for, and lets go when it was not asked for long. Does not know: Ray."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Asked(Generic[Value]):
    value: Value
    asked_at: float


class OnDemand(Generic[Key, Value]):
    """Loaded values by key. Belongs to one event loop."""

    def __init__(
        self,
        load: Callable[[Key], Value],
        *,
        idle_s: float,
        close: Callable[[Value], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            load: may take long; is called in a thread, once at a time.
            idle_s: seconds after which a value that was not asked for makes room; longer than any use of one.
            close: for values that make room; None: they are dropped.
            clock: seconds.
        """
        self._load, self._idle_s, self._close, self._clock = load, idle_s, close, clock
        self._loaded: dict[Key, _Asked[Value]] = {}
        self._loading = asyncio.Lock()

    @property
    def by_use(self) -> list[tuple[Key, Value]]:
        """What is loaded, the one asked for last at the end."""
        ordered = sorted(self._loaded.items(), key=lambda entry: entry[1].asked_at)
        return [(key, loaded.value) for key, loaded in ordered]

    def put(self, key: Key, value: Value) -> None:
        """Take a value that was loaded elsewhere, as if it had just been asked for."""
        self._loaded[key] = _Asked(value, self._clock())

    async def get(self, key: Key) -> Value:
        """The value, loaded where it is not there; what is there stays in use meanwhile. Errors of ``load`` pass."""
        if key not in self._loaded:
            async with self._loading:
                if key not in self._loaded:
                    self.put(key, await asyncio.to_thread(self._load, key))
        loaded = self._loaded[key]
        loaded.asked_at = self._clock()
        await self._let_go(keep=key)
        return loaded.value

    async def _let_go(self, keep: Key) -> None:
        now = self._clock()
        idle = [key for key, loaded in self._loaded.items() if key != keep and now - loaded.asked_at > self._idle_s]
        for loaded in [self._loaded.pop(key) for key in idle]:
            if self._close is not None:
                await self._close(loaded.value)
