"""The bodies of requests, read as a whole before a request takes a place, so that a slow client holds up no other.

A client has ``max_body_s`` for its whole body. Above ``max_uploading`` bodies at once the one that began first is given
up: an honest client is done in milliseconds and is never the oldest of many, while clients that trickle only push out
each other.
"""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from raydebm.errors import ServiceError
from raydebm.serving.settings.app_args import LimitArgs


class Uploads:
    """The bodies that are being read now."""

    def __init__(self, limits: LimitArgs, *, max_bytes: int) -> None:
        """
        Args:
            limits: ``max_body_s`` and ``max_uploading``.
            max_bytes: of one body.
        """
        self._limits, self._max_bytes = limits, max_bytes
        self._open: dict[object, asyncio.Timeout] = {}
        """The oldest first."""

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, which may be empty.

        Raises:
            ServiceError: 413 for a body above the limit, whatever its Content-Length says; 408 for one that does not
                come in time, or that was given up for others.
            ClientDisconnect: the client went away meanwhile.
        """
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            raise self._too_large()
        if len(self._open) >= self._limits.max_uploading:
            self._give_up_oldest()
        token = object()
        try:
            async with asyncio.timeout(self._limits.max_body_s) as time_left:
                self._open[token] = time_left
                return await self._read(receive)
        except TimeoutError as error:
            words = f"the body did not arrive within {self._limits.max_body_s:g} s, or others waited; send it again"
            raise ServiceError(words, 408, "body_too_slow") from error
        finally:
            self._open.pop(token, None)

    async def _read(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _give_up_oldest(self) -> None:
        oldest = self._open.pop(next(iter(self._open)))
        if not oldest.expired():  # its time may just be up, and the task that reads not yet have been told
            oldest.reschedule(asyncio.get_running_loop().time())

    def _too_large(self) -> ServiceError:
        return ServiceError(f"the body is larger than {self._max_bytes} bytes", 413, "body_too_large")


def replayed(body: bytes, receive: Receive) -> Receive:
    """What an application receives whose body was read before: the body in one message, then what comes after it."""
    pending = [body]

    async def receive_again() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return receive_again
