"""An aiohttp server on a real socket, in a thread of its own or in the caller's loop."""

import asyncio
import threading
from typing import Self

from aiohttp import web


class ThreadedServer:
    """Use as a context manager: it serves from a thread of its own."""

    def __init__(self, *, port: int = 0) -> None:
        """
        Args:
            port: 0 for any that is free; ``port`` says which once it serves.
        """
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        """Base URL of an OpenAI-compatible endpoint."""
        return f"http://127.0.0.1:{self.port}/v1"

    def app(self) -> web.Application:
        """The routes."""
        raise NotImplementedError

    async def start(self) -> None:
        """Serve in the running loop."""
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(60)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
