"""Texts that the embedded generators learn to write: guess, check, revise and answer, in four styles.

A trace is a list of pieces. A piece is learned unchanged, skipped, or learned as another text: where a wrong guess
first differs from the solution, the label is the text of the solution. The generators thus learn to guess right, and to
check right and wrong guesses.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raydebm.tasks.knights_knaves.logic import Assignment, Statement, broken_statements, is_true
from raydebm.tasks.knights_knaves.puzzles import Puzzle
from raydebm.tasks.knights_knaves.wording import claim_text

_JOINTS = {"and": " and ", "or": " or ", "<=>": " if and only if "}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and the text to learn in its place: itself, another text of one token, or None to skip it."""

    text: str
    label: str | None


Pieces = list[Piece]


@dataclass(frozen=True, slots=True)
class TracePlan:
    """Plan of one trace: wrong guesses in order, then the solution, checked or (``gives_up``) not."""

    wrong: tuple[Assignment, ...]
    gives_up: bool = False

    def guesses(self, puzzle: Puzzle) -> tuple[Assignment, ...]:
        """Guesses that are checked."""
        return self.wrong if self.gives_up else (*self.wrong, puzzle.solution)


@dataclass(frozen=True, slots=True)
class Style:
    """A generator's style of writing, and its limit on guesses."""

    name: str
    write: Callable[[Puzzle, TracePlan, random.Random], Pieces]
    max_wrong: tuple[int, ...]
    """Maximum number of wrong guesses, by number of people from 2 to 8."""


def text_of(pieces: Sequence[Piece]) -> str:
    """The text of all pieces."""
    return "".join(piece.text for piece in pieces)


def learned(*texts: str) -> Pieces:
    """Pieces that are learned."""
    return [Piece(text, text) for text in texts]


def skipped(*texts: str) -> Pieces:
    """Pieces that are read but not learned, such as wrong guesses."""
    return [Piece(text, None) for text in texts]


def answer_json(puzzle: Puzzle, knights: Assignment) -> str:
    """The answer in the JSON form that the task parses."""
    return json.dumps({name: _role(knight) for name, knight in zip(puzzle.names, knights, strict=True)})


def draw_plan(rng: random.Random, puzzle: Puzzle, style: Style, *, refuted: Assignment | None = None) -> TracePlan:
    """Sample wrong guesses, each preferably consistent with the statements that earlier guesses broke.

    Args:
        refuted: wrong answer of the first pass, if the trace is a second pass.
    """
    most = style.max_wrong[min(len(puzzle.names), 8) - 2]
    wanted = min(rng.randint(0, most), rng.randint(0, most + 1))
    seen, wrong = [refuted] if refuted else [], list[Assignment]()
    while len(wrong) < wanted:
        guess = _wrong_guess(rng, puzzle, seen)
        if guess is None:
            break
        seen.append(guess)
        wrong.append(guess)
    gives_up = len(wrong) == most and len(puzzle.names) > 2 and rng.random() < 0.8
    return TracePlan(wrong=tuple(wrong), gives_up=gives_up)


def _wrong_guess(rng: random.Random, puzzle: Puzzle, seen: Sequence[Assignment]) -> Assignment | None:
    """A new wrong assignment, preferably one that satisfies the first statement broken by each guess in ``seen``."""
    num_people = len(puzzle.names)
    lessons = {broken_statements(puzzle.statements, guess)[0] for guess in seen}
    best: tuple[int, Assignment] | None = None
    for _ in range(12):
        guess = tuple(rng.random() < 0.5 for _ in range(num_people))
        if guess == puzzle.solution or guess in seen:
            continue
        broken = broken_statements(puzzle.statements, guess)
        if not broken:
            continue
        rank = 10 * len(lessons.intersection(broken)) + len(broken)
        if best is None or rank < best[0]:
            best = (rank, guess)
        if rank < 10 and rng.random() < 0.5:
            break
    return None if best is None else best[1]


def guess_pieces(
    puzzle: Puzzle, guess: Assignment, *, role_text: Callable[[bool], str], between: str, with_names: bool = True
) -> Pieces:
    """Pieces with everyone's role. The labels are the solution's roles, up to the first role that differs."""
    pieces: Pieces = []
    on_the_way = True
    for person, knight in enumerate(guess):
        pieces += learned(*([between] if person else []), *([puzzle.names[person]] if with_names else []))
        pieces.append(Piece(role_text(knight), role_text(puzzle.solution[person]) if on_the_way else None))
        on_the_way = on_the_way and knight == puzzle.solution[person]
    return pieces


def _claim_pieces(
    puzzle: Puzzle,
    statement: Statement,
    guess: Assignment,
    *,
    role_text: Callable[[bool], str] | None = None,
    mark: Callable[[bool], str] | None = None,
) -> Pieces:
    """The claim, optionally with the role of each name under the guess (``role_text``) and the truth of each atom.

    The role directly follows the name, as in the guess. A small transformer easily learns to copy it from there, and
    the truth of the atom then depends only on its two neighbours.
    """

    def atom(part: Statement) -> Pieces:
        person = part[1][1] if part[0] == "not" else part[1]
        name = puzzle.names[person]
        role = [role_text(guess[person])] if role_text else []
        truth = [mark(is_true(part, guess))] if mark else []
        return learned(name, *role, claim_text(part, puzzle.names)[len(name) :], *truth)

    operator, *parts = statement
    if operator in ("telling-truth", "lying", "not"):
        return atom(statement)
    left, right = (atom(part) for part in parts)
    if operator == "->":
        return [*learned("If "), *left, *learned(" then "), *right]
    return [*left, *learned(_JOINTS[operator]), *right]


def _role(knight: bool) -> str:
    return "knight" if knight else "knave"


def _answer_pieces(puzzle: Puzzle, knights: Assignment) -> Pieces:
    pieces = learned('{"')
    for person, (name, knight) in enumerate(zip(puzzle.names, knights, strict=True)):
        pieces += learned(*(['", "'] if person else []), name, '": "', _role(knight))
    return [*pieces, *learned('"}')]


def _checked(puzzle: Puzzle, guess: Assignment) -> range:
    """Indices of the people to check, up to the first whose statement the guess breaks."""
    broken = broken_statements(puzzle.statements, guess)
    return range(broken[0] + 1 if broken else len(guess))


def _write_ada(puzzle: Puzzle, plan: TracePlan, rng: random.Random) -> Pieces:
    """Prose. Every guess is checked statement by statement."""
    pieces: Pieces = []
    for guess in plan.guesses(puzzle):
        pieces += learned("Try: ")
        pieces += guess_pieces(puzzle, guess, role_text=_spaced_role, between=", ")
        pieces += learned(".\n")
        for person in _checked(puzzle, guess):
            statement, knight = puzzle.statements[person], guess[person]
            truth = is_true(statement, guess)
            pieces += learned(puzzle.names[person], _spaced_role(knight), ": ")
            pieces += _claim_pieces(puzzle, statement, guess, role_text=_spaced_role, mark=_yes_or_no)
            pieces += learned(f": {_truth(truth)}", ". Good.\n" if truth == knight else ". Bad.\n")
    pieces += learned("No more tries. Best guess:\n" if plan.gives_up else "All good.\n")
    return [*pieces, *_answer_pieces(puzzle, puzzle.solution)]


def _write_bo(puzzle: Puzzle, plan: TracePlan, rng: random.Random) -> Pieces:
    """A bullet list. Some statements that agree with the guess are not checked."""
    pieces: Pieces = []
    for guess in plan.guesses(puzzle):
        pieces += learned("- Suppose ")
        pieces += guess_pieces(puzzle, guess, role_text=_equals_role, between="; ")
        pieces += learned("\n")
        for person in _checked(puzzle, guess):
            statement, knight = puzzle.statements[person], guess[person]
            fits = is_true(statement, guess) == knight
            if fits and rng.random() < 0.25:
                continue
            pieces += learned("- ", puzzle.names[person], _equals_role(knight), " says ")
            pieces += _claim_pieces(
                puzzle, statement, guess, role_text=_equals_role, mark=lambda true: " [T]" if true else " [F]"
            )
            pieces += learned(" => possible\n" if fits else " => impossible\n")
    if plan.gives_up:
        pieces += learned("- I stop here.\n")
    return [*pieces, *learned("Answer: "), *_answer_pieces(puzzle, puzzle.solution)]


def _write_cy(puzzle: Puzzle, plan: TracePlan, rng: random.Random) -> Pieces:
    """A table with one guess per row. Instead of checks, it names the first misfit."""
    pieces: Pieces = []
    for person, name in enumerate(puzzle.names):
        pieces += learned(*([" | "] if person else []), name)
    pieces += learned("\n")
    for guess in plan.guesses(puzzle):
        pieces += guess_pieces(puzzle, guess, role_text=_role, between=" | ", with_names=False)
        broken = broken_statements(puzzle.statements, guess)
        pieces += learned(" | ", *([puzzle.names[broken[0]], " misfit\n"] if broken else ["all fit\n"]))
    if plan.gives_up:
        pieces += learned("perhaps\n")
    return [*pieces, *learned("=> "), *_answer_pieces(puzzle, puzzle.solution)]


def _write_dee(puzzle: Puzzle, plan: TracePlan, rng: random.Random) -> Pieces:
    """Prose. One guess per person, without checks."""
    pieces: Pieces = []
    for name, statement, knight in zip(puzzle.names, puzzle.statements, puzzle.solution, strict=True):
        claim = _claim_pieces(puzzle, statement, puzzle.solution)
        pieces += [*learned(name, " says "), *claim, *learned(". I think ", name, f" is a {_role(knight)}", ".\n")]
    return [*pieces, *learned("So the answer is "), *_answer_pieces(puzzle, puzzle.solution), *learned(".")]


def _spaced_role(knight: bool) -> str:
    return f" {_role(knight)}"


def _equals_role(knight: bool) -> str:
    return f" = {_role(knight)}"


def _yes_or_no(true: bool) -> str:
    return " (yes)" if true else " (no)"


def _truth(value: bool) -> str:
    return "true" if value else "false"


STYLES: dict[str, Style] = {
    "kk-ada": Style("kk-ada", _write_ada, (3, 5, 4, 3, 2, 1, 1)),
    "kk-bo": Style("kk-bo", _write_bo, (2, 2, 2, 1, 1, 1, 1)),
    "kk-cy": Style("kk-cy", _write_cy, (3, 4, 4, 3, 3, 3, 3)),
    "kk-dee": Style("kk-dee", _write_dee, (0, 0, 0, 0, 0, 0, 0)),
}
