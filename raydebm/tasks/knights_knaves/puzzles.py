"""Generator of puzzles with exactly one solution, reproducible in every process.

The logic forms are divided into three parts (``train``, ``test`` and ``build``, the training data of the embedded
models) by a digest of the statements. So no two parts share a puzzle, even under other names.
"""

import random
from dataclasses import dataclass

from raydebm.errors import ConfigError
from raydebm.identity import content_id, seed_for
from raydebm.tasks.knights_knaves.logic import MAX_PEOPLE, Assignment, Statement, solutions
from raydebm.tasks.knights_knaves.wording import NAMES, SPEECHES, claim_text, quiz_text

PARTS: dict[str, range] = {"train": range(0, 4), "test": range(4, 8), "build": range(8, 16)}
"""Sixteenths of the space of logic forms: a quarter, a quarter and a half."""

_OPERATORS = ("atom", "not", "and", "or", "->", "<=>")


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle with its one solution."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: Assignment
    quiz: str


def part_of(statements: tuple[Statement, ...]) -> str:
    """Part of the space of logic forms that contains these statements."""
    sixteenth = int(content_id(statements, length=1), 16)
    return next(part for part, share in PARTS.items() if sixteenth in share)


def make_puzzle(num_people: int, *, part: str, seed: int, index: int) -> Puzzle:
    """Puzzle number ``index`` with ``num_people`` people in a part of the space.

    Raises:
        ConfigError: an unknown part, or an unsupported size.
    """
    if part not in PARTS:
        raise ConfigError(f"unknown part {part!r}; known: {', '.join(PARTS)}")
    return draw_puzzle(random.Random(seed_for("knights_knaves", part, seed, index, num_people)), num_people, part=part)


def draw_puzzle(rng: random.Random, num_people: int, *, part: str) -> Puzzle:
    """Sample puzzles until one has exactly one solution and is in ``part``.

    Raises:
        ConfigError: an unsupported size.
    """
    if not 2 <= num_people <= MAX_PEOPLE:
        raise ConfigError(f"puzzles have 2 to {MAX_PEOPLE} people, not {num_people}")
    while True:
        statements = tuple(_draw_statement(rng, num_people) for _ in range(num_people))
        assignments = solutions(statements)
        if len(assignments) == 1 and part_of(statements) == part:
            break
    names = tuple(rng.sample(NAMES, num_people))
    speeches = [
        rng.choice(SPEECHES).format(name=name, claim=claim_text(said, names))
        for name, said in zip(names, statements, strict=True)
    ]
    return Puzzle(names=names, statements=statements, solution=assignments[0], quiz=quiz_text(names, speeches))


def _draw_statement(rng: random.Random, num_people: int) -> Statement:
    """Sample one of six forms with equal probability, as in the published data at depth 1 and width 2."""
    operator = rng.choice(_OPERATORS)
    if operator == "atom":
        return _draw_atom(rng, num_people)
    if operator == "not":
        return ("not", _draw_atom(rng, num_people))
    left = right = _draw_atom(rng, num_people)
    while right == left:
        right = _draw_atom(rng, num_people)
    return (operator, left, right)


def _draw_atom(rng: random.Random, num_people: int) -> Statement:
    return (rng.choice(("telling-truth", "lying")), rng.randrange(num_people))
