"""Sources of puzzles, and a reproducible generator of puzzles with exactly one solution.

A digest of the statements divides the logic forms into three parts: ``train``, ``test`` and ``build``, which trains the
embedded models. Two parts never share a puzzle, even with other names.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from raydebm.errors import ConfigError, TaskDataError
from raydebm.identity import content_id, seed_for
from raydebm.tasks.knights_knaves.logic import MAX_PEOPLE, Assignment, Statement, solutions
from raydebm.tasks.knights_knaves.wording import NAMES, SPEECHES, claim_text, quiz_text
from raydebm.tasks.sources import JSON_LINES, Row, check_split, file_rows, hub_name, hub_rows, local_file

PARTS: dict[str, range] = {"train": range(0, 4), "test": range(4, 8), "build": range(8, 16)}
"""Sixteenths of the space of logic forms: a quarter, a quarter and a half."""

_OPERATORS = ("atom", "not", "and", "or", "->", "<=>")


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle with its only solution."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: Assignment
    quiz: str


def part_of(statements: tuple[Statement, ...]) -> str:
    """Part of the space of logic forms that contains these statements."""
    sixteenth = int(content_id(statements, length=1), 16)
    return next(part for part, share in PARTS.items() if sixteenth in share)


def make_puzzle(num_people: int, *, part: str, seed: int, index: int) -> Puzzle:
    """Puzzle number ``index`` of ``num_people`` people in a part of the space. ConfigError for an unknown part or an
    unsupported size."""
    if part not in PARTS:
        raise ConfigError(f"unknown part {part!r}; known: {', '.join(PARTS)}")
    return draw_puzzle(random.Random(seed_for("knights_knaves", part, seed, index, num_people)), num_people, part=part)


def draw_puzzle(rng: random.Random, num_people: int, *, part: str) -> Puzzle:
    """Sample puzzles until one has exactly one solution and is in ``part``. ConfigError for an unsupported size."""
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


DEFAULT_SIZES = range(2, 9)
DEFAULT_COUNTS = {"train": 6200, "test": 700}
"""Default limit of generated puzzles, as in the paper."""

HUB_DATASET = "K-and-K/knights-and-knaves"

_FILES = ("problems_kk_{split}.jsonl.gz", *JSON_LINES)
_GENERATE = re.compile(r"generate:(\d+)(?:-(\d+))?")


def rows(split: str, source: str | None, *, limit: int | None, seed: int) -> Iterator[tuple[str, Row]]:
    """(location, row in the published format) of each row, in the source's order."""
    check_split(split, tuple(DEFAULT_COUNTS), task="knights_knaves")
    if source is None or source.startswith("generate"):
        return _generated(split, _sizes(source), limit=limit, seed=seed)
    dataset = hub_name(source, HUB_DATASET)
    if dataset is not None:
        # The published set has one configuration per split, which has one hub split per size ("2ppl", ...).
        return hub_rows(dataset, split, otherwise="use a .jsonl file or generate:2-8")
    otherwise = f"a .jsonl file, a folder, generate:2-8, or hub:{HUB_DATASET}"
    return file_rows(local_file(source, split, otherwise=otherwise, names=_FILES))


def _sizes(source: str | None) -> range:
    if source is None:
        return DEFAULT_SIZES
    match = _GENERATE.fullmatch(source)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 2 <= least <= most <= MAX_PEOPLE:
        raise TaskDataError(f"unknown source {source!r}; sizes are written generate:2-4, from 2 to {MAX_PEOPLE} people")
    return range(least, most + 1)


def _generated(split: str, sizes: range, *, limit: int | None, seed: int) -> Iterator[tuple[str, Row]]:
    """Puzzles of alternating sizes. Repeated quizzes are skipped, so that ids are unique."""
    count = DEFAULT_COUNTS[split] if limit is None else limit
    seen: set[str] = set()
    index = 0
    while len(seen) < count:
        puzzle = make_puzzle(sizes[index % len(sizes)], part=split, seed=seed, index=index)
        index += 1
        if puzzle.quiz not in seen:
            seen.add(puzzle.quiz)
            yield f"generated puzzle {index}", {"quiz": puzzle.quiz, "solution": list(puzzle.solution)}
