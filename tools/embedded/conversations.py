"""Training sequences: a puzzle as a chat, with a label for every token."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from puzzle_traces import (
    Piece,
    Pieces,
    Style,
    answer_json,
    draw_plan,
    learned,
    skipped,
)
from raydebm.tasks.base import FEEDBACK, RULES
from raydebm.tasks.constraints import violations_of
from raydebm.tasks.knights_knaves import KnightsKnaves, problem_of
from raydebm.tasks.knights_knaves.logic import Assignment
from raydebm.tasks.knights_knaves.puzzles import Puzzle
from tokenizer import token_id

SECOND_PASS_SHARE = 0.22
"""Share of conversations with a second pass."""
QUALITY_FEEDBACK = (
    "Your answer may be wrong. Check each step again, then give your final answer in the same output format."
)
"""Triage's feedback on a first answer that breaks no rule (``decision.feedback.QUALITY_FEEDBACK``)."""

IGNORED = -100
"""Label of tokens that are not learned, which PyTorch's cross-entropy ignores."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids and their labels: the label of a token is at its own position, not shifted."""

    ids: list[int]
    labels: list[int]


def draw_conversation(rng: random.Random, puzzle: Puzzle, style: Style) -> Pieces:
    """A first pass, or with probability ``SECOND_PASS_SHARE`` a second pass after a wrong (rarely a right) answer."""
    pieces = skipped("<|user|>", puzzle.quiz, "<|assistant|>")
    refuted: Assignment | None = None
    if rng.random() < SECOND_PASS_SHARE:
        answer, feedback = _first_answer(rng, puzzle)
        if feedback != QUALITY_FEEDBACK:
            refuted = answer
        pieces += skipped(answer_json(puzzle, answer), "<|end|>", "<|user|>", feedback, "<|assistant|>")
    plan = draw_plan(rng, puzzle, style, refuted=refuted)
    return [*pieces, *style.write(puzzle, plan, rng), *learned("<|end|>")]


def _first_answer(rng: random.Random, puzzle: Puzzle) -> tuple[Assignment, str]:
    """An answer of the first pass, and the feedback on it."""
    if rng.random() < 0.1:
        return puzzle.solution, QUALITY_FEEDBACK
    answer = puzzle.solution
    while answer == puzzle.solution:
        answer = tuple(rng.random() < 0.5 for _ in puzzle.names)
    return answer, constraint_feedback(puzzle, answer)


def constraint_feedback(puzzle: Puzzle, answer: Assignment) -> str:
    """The task's feedback on a wrong answer."""
    roles = {name: "knight" if knight else "knave" for name, knight in zip(puzzle.names, answer, strict=True)}
    broken = violations_of(KnightsKnaves.constraints, problem_of(puzzle.quiz), roles)
    return FEEDBACK.replace(RULES, "\n".join(f"- {violation.message}" for violation in broken))


def encode(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> Encoded:
    """Tokenise the whole text at once, and give every token the label of the piece in which it begins."""
    encoding = tokenizer.encode("".join(piece.text for piece in pieces), add_special_tokens=False)
    labels: list[int] = []
    remaining = iter(piece for piece in pieces if piece.text)
    piece, end = next(remaining), 0
    end = len(piece.text)
    for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
        while start >= end:
            piece = next(remaining)
            end += len(piece.text)
        labels.append(_label(tokenizer, piece, token))
    return Encoded(encoding.ids, labels)


def _label(tokenizer: Tokenizer, piece: Piece, token: int) -> int:
    if piece.label is None:
        return IGNORED
    return token if piece.label == piece.text else token_id(tokenizer, piece.label)
