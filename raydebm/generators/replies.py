"""Reading a chat completion: the answer apart from the reasoning, usage, cost, and what can be wrong with it.

In:   status, headers and bytes of an HTTP reply.
Out:  a ``Completion``, or a ``ReplyError`` that says whether asking again can help.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_RETRY_STATUS = frozenset({408, 409, 425, 429})
_FATAL_STATUS = frozenset({401, 402, 404})
_EXCERPT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A usable answer."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """As the endpoint states it (``usage.cost``); None when it does not."""


class ReplyError(Exception):
    """A reply without a usable answer. Becomes an error row and never leaves the generators."""

    def __init__(
        self, message: str, *, retry: bool = False, fatal: bool = False, status: int | None = None, usage: object = None
    ) -> None:
        super().__init__(message)
        self.retry = retry
        """Asking again may help."""
        self.fatal = fatal
        """Every other request to this endpoint will fail the same way."""
        self.status = status
        self.usage = usage if isinstance(usage, Mapping) else {}
        """What the failed request was billed for, where the endpoint says so."""


def read_reply(reply: HttpReply) -> Completion:
    """
    Raises:
        ReplyError: the reply has no usable answer.
    """
    if reply.status != 200:
        raise _status_error(reply.status, reply.content)
    try:
        body = json.loads(reply.content)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply is not JSON ({len(reply.content)} bytes): {error}", retry=True) from error
    if not isinstance(body, dict):
        raise ReplyError(f"the reply is a JSON {type(body).__name__}, not an object", retry=True)
    if body.get("error"):  # some gateways answer 200 and put the provider's error into the body
        raise _error_in_body(body["error"])
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ReplyError("the reply has no choices", usage=body.get("usage"))
    if choices[0].get("error"):
        raise _error_in_body(choices[0]["error"])
    return _completion(choices[0], body.get("usage"))


def _completion(choice: Mapping[str, Any], usage: object) -> Completion:
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    finish_reason = choice.get("finish_reason")
    text, thought = split_reasoning(_content_text(message.get("content")))
    reasoning = message.get("reasoning") or message.get("reasoning_content") or thought
    if not text.strip():
        raise ReplyError(_why_empty(finish_reason, bool(reasoning), message.get("refusal")), usage=usage)
    counts = usage if isinstance(usage, Mapping) else {}
    return Completion(
        text=text,
        reasoning=reasoning if isinstance(reasoning, str) else None,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        completion_tokens=_count(counts.get("completion_tokens")),
        cost_usd=stated_cost(counts),
    )


def _content_text(content: object) -> str:
    """A message's content: text, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def split_reasoning(content: str) -> tuple[str, str | None]:
    """(answer, thinking) of a completion that may open with ``<think>…</think>``.

    Chat templates that write the opening tag themselves leave a completion with the closing one only. An opening tag
    that is never closed means that the whole text is thinking.
    """
    head, closing, tail = content.partition("</think>")
    opened = re.match(r"\s*<think>", head)
    if closing:
        return tail.lstrip(), (head[opened.end() :] if opened else head).strip()
    if opened:
        return "", head[opened.end() :].strip()
    return content, None


def _why_empty(finish_reason: object, has_reasoning: bool, refusal: object) -> str:
    if isinstance(refusal, str) and refusal:
        return f"the model refused: {refusal[:_EXCERPT_CHARS]}"
    if finish_reason == "content_filter":
        return "the endpoint's content filter withheld the answer"
    if finish_reason == "length" and has_reasoning:
        return "all tokens went into reasoning and none into an answer; raise max_tokens"
    if finish_reason == "length":
        return "the token limit was reached before any text; raise max_tokens"
    return f"the reply's content is empty (finish_reason {finish_reason!r})"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def stated_cost(usage: Mapping[str, Any]) -> float | None:
    """``usage.cost`` in US dollars, as OpenRouter gives it."""
    cost = usage.get("cost")
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None


def _status_error(status: int, content: bytes) -> ReplyError:
    text = " ".join(content.decode("utf-8", errors="replace").split())
    detail = _message_in(text)[:_EXCERPT_CHARS]
    return ReplyError(
        f"HTTP {status}" + (f": {detail}" if detail else ""),
        retry=status in _RETRY_STATUS or status >= 500,
        fatal=status in _FATAL_STATUS,
        status=status,
    )


def _message_in(text: str) -> str:
    """The message of ``{"error": {"message": …}}``, else the text itself."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, Mapping) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _error_in_body(error: object) -> ReplyError:
    code = error.get("code") if isinstance(error, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError):
        status = 500
    return _status_error(status, str(message).encode())
