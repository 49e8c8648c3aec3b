"""A chat of several turns: which of them is the problem, and what becomes of the others.

The last user message is the problem. What stands before it is context: generators get it turn by turn, after the task's
own instructions; the ensemble reads the user's and assistant's turns before the problem. A client's system message
shapes answers, so generators see it; it is no part of the question, so the ensemble does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.records import Message

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of OpenAI's chats, and what generators are told: few endpoints know ``developer``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, with the one message that is the problem."""

    problem: str
    """Text of the last user message."""
    context: tuple[Message, ...]
    """The turns before it, in their order; those without text are left out."""
    num_ignored: int
    """Messages after it, such as the start of an answer: generators write whole answers."""


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
