"""What scripted models say about Knights & Knaves puzzles, the same in every process."""

import hashlib
import json
from collections.abc import Iterable, Mapping

Roles = Mapping[str, str]
"""``knight`` or ``knave`` by name."""
OTHER = {"knight": "knave", "knave": "knight"}


def number_of(*parts: object) -> int:
    """A number from 0 to 2**32 - 1 that follows from JSON values."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:4])


def solution_of(said: Iterable[str], solutions: Mapping[str, Roles]) -> Roles:
    """Solution of the puzzle that a chat is about.

    Args:
        said: contents of the chat's messages.
        solutions: everybody's role, by the puzzle's text.
    """
    messages = list(said)
    return next(roles for text, roles in solutions.items() if any(text in message for message in messages))


def with_one_wrong(roles: Roles, number: int) -> Roles:
    """The roles with that of one person changed, whom the number picks."""
    person = sorted(roles)[number % len(roles)]
    return {**roles, person: OTHER[roles[person]]}
