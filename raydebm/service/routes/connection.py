"""Cancel a request's work, and everything upstream, as soon as its client disconnects.

Servers report a disconnect as a message that something must receive. Frameworks receive it for streams only, or at the
next event, which may be minutes away while candidates are sampled.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raydebm.errors import ServiceError

T = TypeVar("T")
KEEP_ALIVE_S = 15.0
"""Seconds without an event until a comment is sent, because proxies close idle connections."""
KEEP_ALIVE = ": keep-alive\n\n"
_LINE_ENDS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"})
"""Characters that many readers, including httpx, take for the end of a line, although events do not; as JSON escapes
them."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Result of the work, which is cancelled if the client disconnects.

    Raises:
        ServiceError: 499 after a disconnect; appears only in the log.
    """
    return await _first(work, request.receive)


async def _first(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ServiceError("the client closed the request", 499, "client_closed")
        return await task
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events of an async generator, which is closed if the client disconnects. Their data is JSON."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await _first(self._send_all(send), receive)
        except ServiceError:  # the client is gone, and the response has begun
            scope.setdefault("state", {})["client_closed"] = True

    async def _send_all(self, send: Send) -> None:
        try:
            async for text in _kept_alive(self._events):
                body = text.translate(_LINE_ENDS).encode("utf-8", "replace")
                await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            await self._events.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _kept_alive(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The events, with comments during pauses."""
    while True:
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while not (await asyncio.wait({coming}, timeout=KEEP_ALIVE_S))[0]:
                yield KEEP_ALIVE
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
        text = coming.result()
        if text is None:
            return
        yield text
