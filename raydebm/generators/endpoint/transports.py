"""Two ways to carry a chat completion over HTTP: plain aiohttp, and the official ``openai`` client.

Both carry bytes only. What a reply means, and what is done about it, is decided once, above them. Neither follows a
redirect: prompts would go to an address that no recipe names, such as one inside the operator's network.
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
_OPENAI_ARGUMENTS = frozenset({"model", "messages", "temperature", "top_p", "max_tokens", "seed", "stop"})
_CONNECT_S = 30.0
"""Longest wait for a connection."""


class CarrierError(Exception):
    """No complete reply came back (refused, reset, cut off, too late). Asking again may help."""


class LostReplyError(CarrierError):
    """The request was sent, and its connection was lost before the reply was whole.

    Most providers write on for a client that has left, and bill it: asking again may pay twice.
    """


class LateReplyError(LostReplyError):
    """The request was sent and its reply did not come in time."""


class Transport(Protocol):
    async def post(self, body: Body) -> HttpReply:
        """Send one chat completion and read the whole reply.

        Raises:
            LateReplyError: the request was sent, and no complete reply came back in time.
            LostReplyError: the request was sent, and its connection broke off.
            CarrierError: no complete reply came back for another reason.
            ReplyError: the reply is too long to be read.
        """
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


def environment_proxy(url: str) -> str | None:
    """The proxy that ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` name for an address."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


class AiohttpTransport:
    """The bulk path. The session belongs to the event loop in which the first request is sent."""

    def __init__(self, base_url: str, *, api_key: str | None, headers: Mapping[str, str], timeout_s: float) -> None:
        import aiohttp  # 0.2 s of imports that plans and recorded pools do not need

        address, self._headers = address_and_headers(base_url, api_key, headers)
        self._url = address.rstrip("/") + "/chat/completions"
        # A connection has at most half of the time, so that a total that runs out means a request that was sent.
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(_CONNECT_S, timeout_s / 2))
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            # No limit here: the generator's semaphores bound what is in flight. The proxy is looked up once, because
            # aiohttp's own `trust_env` does it for every request, in a thread, at the price of half the request.
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
            raise CarrierError(f"connection failed: none within {self._timeout.connect:g} s") from error
        except TimeoutError as error:
            raise LateReplyError(f"no reply within {self._timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # the last: of a malformed address
            kind = CarrierError if isinstance(error, _unsent_errors()) else LostReplyError
            raise kind(f"connection failed: {type(error).__name__}: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpReply(status=response.status, headers=headers, content=content)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class OpenAIClientTransport:
    """The official client over its aiohttp transport, with its own retries off.

    Kept for endpoints and middlewares that are set up through that client; it spends several times the CPU per call
    of the plain path (``benchmarks/bench_generation.py``).
    """

    def __init__(self, base_url: str, *, api_key: str | None, headers: Mapping[str, str], timeout_s: float) -> None:
        import openai  # 0.5 s of imports that only this path needs

        from raydebm.generators.endpoint.official_client import official_client

        self._errors = (openai.APIConnectionError, openai.APIStatusError)
        self._status_error = openai.APIStatusError
        self._timeout_s = timeout_s
        self._client = official_client(base_url, api_key=api_key, headers=headers, timeout_s=timeout_s, max_retries=0)

    async def post(self, body: Body) -> HttpReply:
        arguments = {key: value for key, value in body.items() if key in _OPENAI_ARGUMENTS}
        extra = {key: value for key, value in body.items() if key not in _OPENAI_ARGUMENTS}
        try:
            raw = await self._client.chat.completions.with_raw_response.create(
                **arguments, extra_body=extra, extra_headers=tracing.outgoing()
            )
            response = raw.http_response
        except self._errors as error:
            if not isinstance(error, self._status_error):
                if _is_late(error):
                    raise LateReplyError(f"no reply within {self._timeout_s:g} s") from error
                kind = CarrierError if _has_cause(error, _unsent_errors()) else LostReplyError
                raise kind(f"connection failed: {error} ({error.__cause__!r})") from error
            response = error.response
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpReply(status=response.status_code, headers=headers, content=response.content)

    async def aclose(self) -> None:
        await self._client.close()


def _is_late(error: BaseException) -> bool:
    """Whether the time ran out after the request was sent.

    The client's own exception says the same of a timed-out connection; which it was stands among its causes.
    """
    import aiohttp

    return _has_cause(error, (aiohttp.SocketTimeoutError,))


def _unsent_errors() -> tuple[type[BaseException], ...]:
    """What says that there was no connection to send a request over."""
    import aiohttp

    return aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ValueError


def _has_cause(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kinds):
        cause = cause.__cause__
    return cause is not None
