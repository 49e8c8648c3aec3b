"""From the messages of a body to a conversation: which of them is the problem, and what can be read."""

from collections.abc import Sequence

from raydebm.errors import ServiceError
from raydebm.serving.api.schema.request_bodies import ChatMessage
from raydebm.serving.core.conversation import ROLES, Conversation

CALLS = ("tool_calls", "function_call")
"""Fields in which an assistant's turn calls tools."""


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Raises ServiceError for no user message, an empty one, an unknown role, tool calls, or a part that is no text."""
    roles = [_role(message) for message in messages]
    asked = max((index for index, role in enumerate(roles) if role == "user"), default=None)
    if asked is None:
        message = "messages hold no message with role 'user'; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    problem = _text(messages[asked])
    if not problem.strip():
        message = "the last user message is empty; its content is the problem"
        raise ServiceError(message, 400, "missing_text", "messages")
    turns = ({"role": role, "content": _text(said)} for role, said in zip(roles, messages[:asked], strict=False))
    return Conversation(
        problem=problem,
        context=tuple(turn for turn in turns if turn["content"].strip()),
        num_ignored=len(messages) - 1 - asked,
    )


def _role(message: ChatMessage) -> str:
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        reason = f"a message with role {message.role!r} cannot be used; known: {known}. Tool calls are not supported"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    extra = message.model_extra or {}
    if call := next((name for name in CALLS if extra.get(name)), None):
        reason = f"a message with {call!r} cannot be read; only texts can, so leave the turns about tools out"
        raise ServiceError(reason, 400, "unsupported_content", "messages")
    return ROLES[message.role]


def _text(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type != "text":
            reason = f"content part of type {part.type!r} cannot be read; only 'text' parts can"
            raise ServiceError(reason, 400, "unsupported_content", "messages")
    return "".join(part.text or "" for part in message.content)
