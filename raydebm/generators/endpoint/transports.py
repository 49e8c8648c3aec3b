"""Keys, and HTTP transport of chat completions to one or several servers. The caller interprets replies.

Redirects are not followed, because prompts would be sent to an address that is not in the recipe, such as one inside
the operator's network.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from raydebm import tracing
from raydebm.config import OpenAIGenerator
from raydebm.errors import MissingKeyError
from raydebm.generators.replies import HttpReply, read_whole

if TYPE_CHECKING:
    import aiohttp

Body = Mapping[str, Any]
_CONNECT_S = 30.0
"""Maximum time to connect, in seconds."""


class TransportError(Exception):
    """No complete reply was received (refused, reset, cut off, late). A retry may help."""


class LostReplyError(TransportError):
    """The request was sent, but its connection was lost before the reply was complete.

    Most providers go on generating and bill the request after a disconnect, so a retry may be billed again.
    """


class LateReplyError(LostReplyError):
    """The request was sent, but its reply was late."""


class Transport(Protocol):
    async def post(self, body: Body) -> HttpReply:
        """Send one chat completion and read the whole reply.

        Raises:
            LateReplyError: the request was sent, but no complete reply arrived in time.
            LostReplyError: the request was sent, but its connection broke off.
            TransportError: no complete reply arrived for another reason.
            ReplyError: the reply exceeds the size limit.
        """
        ...

    async def aclose(self) -> None: ...


def environment_proxy(url: str) -> str | None:
    """Proxy for an address from ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


class AiohttpTransport:
    """Transport over aiohttp. The session is bound to the event loop of the first request."""

    def __init__(self, base_url: str, *, api_key: str | None, headers: Mapping[str, str], timeout_s: float) -> None:
        import aiohttp  # 0.2 s of imports that plans and recorded pools do not need

        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = dict(headers) | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        # Connecting may take at most half of the total time, so a total timeout means that the request was sent.
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(_CONNECT_S, timeout_s / 2))
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            # No limit here: the generator's semaphores bound the requests in flight. The proxy is looked up once,
            # because aiohttp's `trust_env` does so in a thread for every request, at half the cost of the request.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                headers=self._headers,
                timeout=self._timeout,
                proxy=environment_proxy(self._url),
            )
        return self._session

    async def post(self, body: Body) -> HttpReply:
        import aiohttp

        try:
            async with self._open().post(
                self._url, json=dict(body), headers=tracing.outgoing(), allow_redirects=False
            ) as response:
                content = await read_whole(response.content.iter_any())
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportError(f"connection failed: no connection within {self._timeout.connect:g} s") from error
        except TimeoutError as error:
            raise LateReplyError(f"no reply within {self._timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a malformed address
            kind = TransportError if isinstance(error, aiohttp.ClientConnectorError | ValueError) else LostReplyError
            raise kind(f"connection failed: {type(error).__name__}: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpReply(status=response.status, headers=headers, content=content)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key that is safe to pass between processes: its repr hides it."""

    value: str | None

    def __repr__(self) -> str:
        return "Secret(***)"


def key_of(config: OpenAIGenerator) -> Secret:
    """The endpoint's key from the environment. ``Secret(None)`` if the endpoint needs no key.

    Raises:
        MissingKeyError: the environment variable is not set.
    """
    if config.api_key_env is None:
        return Secret(None)
    value = os.environ.get(config.api_key_env)
    if not value:
        raise MissingKeyError(config.name, config.api_key_env)
    return Secret(value)


REST_S = 30.0
"""Seconds for which a failed server gets no requests."""
_NOT_TAKEN = frozenset({502, 503})


@dataclass(slots=True, eq=False)
class _Replica:
    url: str
    transport: Transport
    num_open: int = 0
    rests_until: float = float("-inf")


class Replicas:
    """Transport to several servers of the same model, for one event loop."""

    def __init__(
        self,
        transports: Mapping[str, Transport],
        *,
        rest_s: float = REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with all servers available. The least busy server is asked; ties go to the first. A server that failed
        gets no requests for ``rest_s``, unless all have failed."""
        self._replicas = [_Replica(url, transport) for url, transport in transports.items()]
        self._rest_s = rest_s
        self._clock = clock

    async def post(self, body: Body) -> HttpReply:
        """Ask the servers one after another until one takes the request.

        Raises:
            LostReplyError: a server took the request, but its reply was late or broke off.
            TransportError: no server could be reached.
        """
        left = list(self._replicas)
        while True:
            replica = self._choose(left)
            left.remove(replica)
            try:
                reply = await self._ask(replica, body)
            except LostReplyError:
                raise
            except TransportError as error:
                if not left:
                    message = f"none of {len(self._replicas)} servers took the request; last {replica.url}: {error}"
                    raise TransportError(message) from error
            else:
                if reply.status not in _NOT_TAKEN or not left:
                    return reply
                self._let_rest(replica)

    async def aclose(self) -> None:
        for replica in self._replicas:
            await replica.transport.aclose()

    async def _ask(self, replica: _Replica, body: Body) -> HttpReply:
        replica.num_open += 1
        try:
            return await replica.transport.post(body)
        except TransportError:
            self._let_rest(replica)
            raise
        finally:
            replica.num_open -= 1

    def _choose(self, left: list[_Replica]) -> _Replica:
        """The least busy server that is not resting. If all are resting, the one whose rest ends first."""
        awake = [replica for replica in left if replica.rests_until <= self._clock()]
        if awake:
            return min(awake, key=lambda replica: replica.num_open)
        return min(left, key=lambda replica: replica.rests_until)

    def _let_rest(self, replica: _Replica) -> None:
        replica.rests_until = self._clock() + self._rest_s
