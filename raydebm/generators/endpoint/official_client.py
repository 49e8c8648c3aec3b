"""The official ``openai`` client without redirects and with a limit on the size of replies.

Import it on use: the client takes 0.5 s to import.
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
    """A reply over the size limit. The client passes on errors of its own class without a retry."""


class _OverAiohttp(openai.DefaultAioHttpClient):
    async def send(self, request: "Request", *, stream: bool = False, **options: Any) -> "Response":
        return await _bounded(await super().send(request, stream=True, **options), stream=stream)


class _OverHttpx(openai.DefaultAsyncHttpxClient):
    async def send(self, request: "Request", *, stream: bool = False, **options: Any) -> "Response":
        return await _bounded(await super().send(request, stream=True, **options), stream=stream)


async def _bounded(response: "Response", *, stream: bool) -> "Response":
    """The response, read to its end unless it is streamed. Errors are always read, for their message."""
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
        base_url: the endpoint's URL; may have user and password.
        api_key: API key. None for endpoints without one.
        headers: headers of every request.
        timeout_s: longest silence.
        max_retries: number of retries after transient failures.
        over_aiohttp: whether to use aiohttp; ``httpx`` is needed for sending files.
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
