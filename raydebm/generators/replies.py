"""Parsing of chat completions: answer, reasoning, usage, cost and errors.

In:   status, headers and bytes of an HTTP reply.
Out:  a ``Completion``, or a ``ReplyError`` that says whether a retry can help.
"""

import json
import re
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raydebm.generators.requests import NO_USAGE, LogProbs, TokenUsage
from raydebm.records import FailureKind, well_formed

MAX_REPLY_BYTES = 64 * 2**20
"""Size limit of one decompressed reply, far above the longest answers with log-probabilities of all tokens."""
_RETRY_STATUS = frozenset({408, 409, 425, 429})
_FATAL_STATUS = frozenset({401})
_DOUBTFUL_STATUS = frozenset({402, 404})
"""Refusals that may concern the account, the model, or one request: OpenRouter answers 402 if ``max_tokens`` exceeds
the credit, and 404 if no provider of the model supports the parameters."""
_UNBILLED_STATUS = frozenset({401, 402, 403, 404, 429})
"""Refusals before any sampling."""
_LOST_STATUS = frozenset({502, 504})
"""Statuses by which a gateway reports that the reply broke off or was late."""
_UNBILLED = TokenUsage(prompt_tokens=0, completion_tokens=0, cost_usd=0.0)
_EXCERPT_CHARS = 300
_END_OF_THINKING = "</think>"
_MAX_AMOUNT = 2**53
"""Larger amounts are invalid and do not fit into a table's column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A usable answer."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    usage: TokenUsage
    logprobs: LogProbs | None = None
    """Log-probabilities of the answer's tokens. None if the endpoint returns none."""


class ReplyError(Exception):
    """A reply without a usable answer. Generators turn it into a candidate with ``error``."""

    def __init__(
        self,
        message: str,
        *,
        retry: bool = False,
        status: int | None = None,
        usage: TokenUsage = NO_USAGE,
        failure: FailureKind | None = None,
        is_lost: bool = False,
    ) -> None:
        super().__init__(well_formed(message))
        self.failure = failure
        """Kind of failure if nothing was sent, else None."""
        self.retry = retry
        """Whether a retry may help."""
        self.status = status
        self.is_lost = is_lost
        """Whether a text may have been sampled and billed without arriving."""
        self.usage = usage
        """Usage of the failed request, if the endpoint states it."""

    @property
    def fatal(self) -> bool:
        """Whether every other request to this endpoint will fail for the same reason."""
        return self.status in _FATAL_STATUS

    @property
    def doubtful(self) -> bool:
        """Whether the failure may concern all requests or only this one."""
        return self.status in _DOUBTFUL_STATUS


async def read_whole(chunks: AsyncIterable[bytes]) -> bytes:
    """Join the decompressed chunks of a reply.

    Raises:
        ReplyError: the reply exceeds ``MAX_REPLY_BYTES``.
    """
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > MAX_REPLY_BYTES:
            message = f"the reply is longer than {MAX_REPLY_BYTES} bytes and was not read to its end"
            raise ReplyError(message, is_lost=True)
    return bytes(content)


def read_reply(reply: HttpReply) -> Completion:
    """Parse the first choice of a reply.

    Raises:
        ReplyError: the reply has no usable answer.
    """
    if 300 <= reply.status < 400:
        raise _redirect_error(reply)
    if reply.status != 200:
        usage = _UNBILLED if reply.status in _UNBILLED_STATUS else NO_USAGE
        content = reply.content.decode("utf-8", errors="replace")
        raise _status_error(reply.status, content, usage, is_lost=reply.status in _LOST_STATUS)
    try:
        body = json.loads(reply.content)
    except (ValueError, RecursionError) as error:
        message = f"the reply is not JSON ({len(reply.content)} bytes): {error}"
        raise ReplyError(message, retry=True, is_lost=True) from error
    if not isinstance(body, dict):
        raise ReplyError(f"the reply is a JSON {type(body).__name__}, not an object", retry=True, is_lost=True)
    usage = _usage(body.get("usage"))
    if body.get("error"):  # some gateways answer 200 with the provider's error in the body
        raise _error_in_body(body["error"], usage)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ReplyError("the reply has no choices", usage=usage)
    if choices[0].get("error"):
        raise _error_in_body(choices[0]["error"], usage)
    return _completion(choices[0], usage)


def _completion(choice: Mapping[str, Any], usage: TokenUsage) -> Completion:
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    finish_reason = choice.get("finish_reason")
    text, thought = split_reasoning(_content_text(message.get("content")))
    reasoning = message.get("reasoning") or message.get("reasoning_content") or thought
    if not text.strip():
        raise ReplyError(_why_empty(finish_reason, bool(reasoning), message.get("refusal")), usage=usage)
    return Completion(
        text=well_formed(text),
        reasoning=well_formed(reasoning) if isinstance(reasoning, str) else None,
        finish_reason=well_formed(finish_reason) if isinstance(finish_reason, str) else None,
        usage=usage,
        logprobs=_logprobs(choice.get("logprobs"), after_thinking=thought is not None),
    )


def _logprobs(value: object, *, after_thinking: bool) -> LogProbs | None:
    """The answer's log-probabilities from ``choices[0].logprobs``. None if absent or invalid.

    Args:
        after_thinking: whether the content begins with thinking, whose tokens do not count.
    """
    entries = value.get("content") if isinstance(value, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return None
    start = answer_start([str(entry.get("token")) for entry in entries]) if after_thinking else 0
    logprobs = [entry.get("logprob") for entry in entries[start:]]
    if not logprobs or not all(_is_logprob(logprob) for logprob in logprobs):
        return None
    return LogProbs.of([min(logprob, 0.0) for logprob in logprobs])


def _is_logprob(value: Any) -> bool:
    """Whether the value can be a log-probability. Rounding may put it slightly above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MAX_AMOUNT <= value < 1e-3


def _content_text(content: object) -> str:
    """Text of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def split_reasoning(content: str) -> tuple[str, str | None]:
    """(answer, thinking) of a completion that may begin with ``<think>…</think>``.

    If the chat template writes the opening tag, the completion has only the closing one. If an opening tag is never
    closed, the whole text is thinking.
    """
    head, closing, tail = content.partition(_END_OF_THINKING)
    opened = re.match(r"\s*<think>", head)
    if closing:
        return tail.lstrip(), (head[opened.end() :] if opened else head).strip()
    if opened:
        return "", head[opened.end() :].strip()
    return content, None


def answer_start(tokens: Sequence[str]) -> int:
    """Number of tokens before the answer of a completion that begins with thinking. All if the thinking never ends."""
    written = ""
    for count, token in enumerate(tokens, start=1):
        written += token
        if _END_OF_THINKING in written:
            return count
    return len(tokens)


def _why_empty(finish_reason: object, has_reasoning: bool, refusal: object) -> str:
    if isinstance(refusal, str) and refusal:
        return f"the model refused: {refusal[:_EXCERPT_CHARS]}"
    if finish_reason == "content_filter":
        return "the endpoint's content filter withheld the answer"
    if finish_reason == "length" and has_reasoning:
        return "all tokens went into reasoning, so there is no answer; raise max_tokens"
    if finish_reason == "length":
        return "the token limit was reached before any text; raise max_tokens"
    return f"the reply's content is empty (finish_reason {finish_reason!r})"


def _usage(value: object) -> TokenUsage:
    if not isinstance(value, Mapping):
        return NO_USAGE
    cost: Any = value.get("cost")
    return TokenUsage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        completion_tokens=_count(value.get("completion_tokens")),
        cost_usd=float(cost) if _is_number(cost) else None,
    )


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and _is_number(value) else None


def _is_number(value: Any) -> bool:
    """Whether the value is a number from 0 to ``_MAX_AMOUNT`` and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_AMOUNT


def _redirect_error(reply: HttpReply) -> ReplyError:
    target = reply.headers.get("location", "nowhere")[:_EXCERPT_CHARS]
    message = (
        f"HTTP {reply.status}: the endpoint redirects to {target}, which is not followed; "
        "if that address is right, set it as the generator's base_url"
    )
    return ReplyError(message, status=reply.status)


def _status_error(status: int, content: str, usage: TokenUsage, *, is_lost: bool = False) -> ReplyError:
    detail = _message_in(" ".join(content.split()))[:_EXCERPT_CHARS]
    return ReplyError(
        f"HTTP {status}" + (f": {detail}" if detail else ""),
        retry=status in _RETRY_STATUS or status >= 500,
        status=status,
        usage=usage,
        is_lost=is_lost,
    )


def _message_in(text: str) -> str:
    """The message of ``{"error": {"message": …}}``, else the text itself."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, Mapping) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _error_in_body(error: object, usage: TokenUsage) -> ReplyError:
    code = error.get("code") if isinstance(error, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError, OverflowError):
        status = 500
    return _status_error(status, str(message), usage)
