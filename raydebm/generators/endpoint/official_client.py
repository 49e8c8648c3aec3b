"""The official ``openai`` client as everything here uses it: no redirects, no reply without a limit to its length.

Import it where it is needed: the client takes 0.5 s to import.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import openai

from raydebm.generators.endpoint.api_keys import address_and_headers
from raydebm.generators.replies import ReplyError, read_whole

if TYPE_CHECKING:
    from httpx2 import Request, Response

_OF_THE_PACKED_REPLY = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class LongReplyError(ReplyError, openai.OpenAIError):
    """A reply that is too long. The client hands its own kind of errors on and does not ask again for them."""


class _OverAiohttp(openai.DefaultAioHttpClient):
    async def send(self, request: "Request", *, stream: bool = False, **options: Any) -> "Response":
        return await _bounded(await super().send(request, stream=True, **options), stream=stream)


class _OverHttpx(openai.DefaultAsyncHttpxClient):
    async def send(self, request: "Request", *, stream: bool = False, **options: Any) -> "Response":
        return await _bounded(await super().send(request, stream=True, **options), stream=stream)


async def _bounded(response: "Response", *, stream: bool) -> "Response":
    """The response, read to its end unless it is wanted as a stream. Errors are read in any case, for their words."""
    if stream and response.is_success:
        return response
    try:
        content = await read_whole(response.aiter_bytes())
    except ReplyError as error:
        raise LongReplyError(str(error), is_lost=error.is_lost) from None
    finally:
        await response.aclose()
    kept = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_PACKED_REPLY]
    return type(response)(
        response.status_code, headers=kept, content=content, request=response.request, extensions=response.extensions
    )


def official_client(
    base_url: str,
    *,
    api_key: str | None,
    headers: Mapping[str, str],
    timeout_s: float,
    max_retries: int,
    over_aiohttp: bool = True,
) -> openai.AsyncOpenAI:
    """A client of one endpoint.

    Args:
        base_url: of the endpoint; may name a user and a password.
        api_key: None for endpoints that take no key.
        headers: of every request.
        timeout_s: longest silence.
        max_retries: of calls that failed in passing.
        over_aiohttp: False for ``httpx``, which sends files.
    """
    address, access = address_and_headers(base_url, api_key, headers)
    kind = _OverAiohttp if over_aiohttp else _OverHttpx
    return openai.AsyncOpenAI(
        api_key=api_key or "none",
        base_url=address,
        default_headers=access,
        timeout=timeout_s,
        max_retries=max_retries,
        http_client=kind(timeout=timeout_s, follow_redirects=False),
    )
