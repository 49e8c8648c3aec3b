"""Prompts that an endpoint keeps for a while and bills for less when they come again.

Providers keep the beginning of a prompt on the machine that has read it: OpenAI and others by themselves, better with a
``prompt_cache_key``; Anthropic's models where a part of the prompt is marked. Equal prompts must come close together,
and the second one after the first one was read.

Does not know: HTTP, prices.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

from raydebm.config import EndpointGenerator
from raydebm.identity import content_id
from raydebm.records import GenerationRequest

_MARK = {"cache_control": {"type": "ephemeral"}}


def hinted(body: dict[str, Any], config: EndpointGenerator) -> dict[str, Any]:
    """The body of a chat completion with what ``prompt_cache`` adds.

    The key is the same for equal prompts. The marks are on a system message, which problems of a task share, and on the
    last one, which samples of a problem share.
    """
    messages: list[dict[str, Any]] = body["messages"]
    if config.prompt_cache == "key":
        return body | {"prompt_cache_key": content_id("prompt", messages, length=32)}
    if config.prompt_cache == "control":
        last = len(messages) - 1
        marked = [
            _marked(message) if place == last or message["role"] == "system" else message
            for place, message in enumerate(messages)
        ]
        return body | {"messages": marked}
    return body


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"content": [{"type": "text", "text": message["content"], **_MARK}]}


class FirstReplies:
    """Lets one request with each prompt go ahead, and the others when it is answered or has failed."""

    def __init__(self) -> None:
        self._done: dict[Hashable, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, request: GenerationRequest) -> AsyncIterator[None]:
        """Within it the request may be sent."""
        prompt = tuple(tuple(sorted(message.items())) for message in request.messages)
        if (first := self._done.get(prompt)) is not None:
            await first.wait()
            yield
            return
        done = self._done[prompt] = asyncio.Event()
        try:
            yield
        finally:
            done.set()
