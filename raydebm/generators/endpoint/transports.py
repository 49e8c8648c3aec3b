"""HTTP transport of chat completions. The caller interprets replies.

Redirects are not followed: prompts would be sent to an address that is not in the recipe, such as one inside the
operator's network.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from raydebm import tracing
from raydebm.generators.endpoint.api_keys import address_and_headers
from raydebm.generators.replies import HttpReply, read_whole

if TYPE_CHECKING:
    import aiohttp

Body = Mapping[str, Any]
_CONNECT_S = 30.0
"""Longest wait for a connection."""


class CarrierError(Exception):
    """No complete reply was received (refused, reset, cut off, late). A retry may help."""


class LostReplyError(CarrierError):
    """The request was sent, and its connection was lost before the reply was complete.

    Most providers continue to generate and bill after a disconnect, so a retry may be billed twice.
    """


class LateReplyError(LostReplyError):
    """The request was sent and its reply was late."""


class Transport(Protocol):
    async def post(self, body: Body) -> HttpReply:
        """Send one chat completion and read the whole reply.

        Raises:
            LateReplyError: the request was sent, and no complete reply arrived in time.
            LostReplyError: the request was sent, and its connection broke off.
            CarrierError: no complete reply arrived for another reason.
            ReplyError: the reply exceeds the size limit.
        """
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


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

        address, self._headers = address_and_headers(base_url, api_key, headers)
        self._url = address.rstrip("/") + "/chat/completions"
        # Connecting may use at most half of the time, so a timeout of the whole means that the request was sent.
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(_CONNECT_S, timeout_s / 2))
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            # No limit here: the generator's semaphores bound the requests in flight. The proxy is looked up once,
            # because aiohttp's own `trust_env` does it for every request, in a thread, at half the cost of the request.
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
            raise CarrierError(f"connection failed: no connection within {self._timeout.connect:g} s") from error
        except TimeoutError as error:
            raise LateReplyError(f"no reply within {self._timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a malformed address
            kind = CarrierError if isinstance(error, _unsent_errors()) else LostReplyError
            raise kind(f"connection failed: {type(error).__name__}: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpReply(status=response.status, headers=headers, content=content)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _unsent_errors() -> tuple[type[BaseException], ...]:
    """Errors that occur before a request is sent."""
    import aiohttp

    return aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ValueError
