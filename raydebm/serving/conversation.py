"""A chat of several turns: which of them is the problem, and what becomes of the others.

The last user message is the problem. What stands before it is context: generators get it turn by turn, after the task's
own instructions; the ensemble reads the user's and assistant's turns before the problem. A client's system message
shapes answers, so generators see it; it is no part of the question, so the ensemble does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.errors import ServiceError
from raydebm.records import Message
from raydebm.serving.schema import ChatMessage

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of OpenAI's chats, and what generators are told: few endpoints know ``developer``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    problem: str
    """Text of the last user message."""
    context: tuple[Message, ...]
    """The turns before it, in their order; those without text are left out."""
    num_ignored: int
    """Messages after it, such as the start of an answer: generators write whole answers."""


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


def weave(messages: Sequence[Message], context: Sequence[Message]) -> tuple[Message, ...]:
    """The chat for generators: the task's instructions, the client's system messages, the earlier turns, the rest."""
    first = next((index for index, said in enumerate(messages) if said["role"] != "system"), len(messages))
    systems = [said for said in context if said["role"] == "system"]
    turns = [said for said in context if said["role"] != "system"]
    return (*messages[:first], *systems, *turns, *messages[first:])


def transcript(context: Sequence[Message], prompt: str) -> str:
    """The problem as the ensemble reads it; without earlier turns the prompt itself."""
    turns = [f"{said['role']}: {said['content']}" for said in context if said["role"] != "system"]
    return "\n\n".join([*turns, f"user: {prompt}"]) if turns else prompt


def _role(message: ChatMessage) -> str:
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        reason = f"a message with role {message.role!r} cannot be used; known: {known}. Tool calls are not supported"
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
