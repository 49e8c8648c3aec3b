"""What the embedded generators were taught: right traces lead to the solution, and every check in them is true."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conversations
from conversations import constraint_feedback
from puzzle_traces import STYLES, draw_plan, guess_pieces, text_of
from raydebm.decision import feedback as triage_feedback
from raydebm.tasks.knights_knaves import KnightsKnaves, problem_of
from raydebm.tasks.knights_knaves.logic import broken_statements, is_true
from raydebm.tasks.knights_knaves.puzzle_reading import read_claim
from raydebm.tasks.knights_knaves.puzzles import Puzzle, draw_puzzle
from raydebm.tasks.knights_knaves.wording import KNIGHTS

seeds = st.integers(0, 2**31)
sizes = st.integers(2, 6)


def drawn(seed: int, size: int) -> tuple[random.Random, Puzzle]:
    rng = random.Random(seed)
    return rng, draw_puzzle(rng, size, part="build")


@pytest.mark.parametrize("name", sorted(STYLES))
@given(seed=seeds, size=sizes)
@settings(max_examples=40)
def test_a_trace_ends_in_the_solution(name: str, seed: int, size: int) -> None:
    rng, puzzle = drawn(seed, size)
    text = text_of(STYLES[name].write(puzzle, draw_plan(rng, puzzle, STYLES[name]), rng))
    answer = KnightsKnaves().parse(problem_of(puzzle.quiz), text)
    assert answer == {n: KNIGHTS.word(k) for n, k in zip(puzzle.names, puzzle.solution, strict=True)}


@given(seed=seeds, size=sizes)
@settings(max_examples=40)
def test_every_line_that_ada_writes_is_true(seed: int, size: int) -> None:
    rng, puzzle = drawn(seed, size)
    text = text_of(STYLES["kk-ada"].write(puzzle, draw_plan(rng, puzzle, STYLES["kk-ada"]), rng))
    guess: tuple[bool, ...] = ()
    for line in text.splitlines():
        if line.startswith("Try: "):
            roles = dict(re.findall(r"(\w+) (knight|knave)", line))
            guess = tuple(roles[name] == "knight" for name in puzzle.names)
        check = re.fullmatch(r"(\w+) (knight|knave): (.*): (true|false)\. (Good|Bad)\.", line)
        if check is None:
            continue
        person = puzzle.names.index(check[1])
        claim = re.sub(r" \((yes|no)\)|(?<=[a-z]) (knight|knave)(?= is )", "", check[3])
        assert read_claim(claim, puzzle.names, KNIGHTS) == puzzle.statements[person]
        assert guess[person] == (check[2] == "knight")
        assert is_true(puzzle.statements[person], guess) == (check[4] == "true")
        assert (guess[person] == (check[4] == "true")) == (check[5] == "Good")


@given(seed=seeds, size=sizes)
@settings(max_examples=40)
def test_every_mark_that_bo_writes_is_true(seed: int, size: int) -> None:
    rng, puzzle = drawn(seed, size)
    text = text_of(STYLES["kk-bo"].write(puzzle, draw_plan(rng, puzzle, STYLES["kk-bo"]), rng))
    for role, negation, said, mark in re.findall(r" = (knight|knave) is (not )?a (knight|knave) \[(T|F)\]", text):
        assert ((role == said) != bool(negation)) == (mark == "T")


@given(seed=seeds, size=sizes)
@settings(max_examples=40)
def test_every_row_that_cy_writes_names_the_first_misfit(seed: int, size: int) -> None:
    rng, puzzle = drawn(seed, size)
    text = text_of(STYLES["kk-cy"].write(puzzle, draw_plan(rng, puzzle, STYLES["kk-cy"]), rng))
    for row in re.findall(r"^(?:knight|knave) .*$", text, flags=re.MULTILINE):
        *roles, verdict = row.split(" | ")
        broken = broken_statements(puzzle.statements, [role == "knight" for role in roles])
        assert verdict == (f"{puzzle.names[broken[0]]} misfit" if broken else "all fit")


@given(seed=seeds)
@settings(max_examples=40)
def test_wrong_guesses_are_wrong_and_never_repeat_the_refuted_answer(seed: int) -> None:
    rng, puzzle = drawn(seed, 3)
    refuted = tuple(not knight for knight in puzzle.solution)
    plan = draw_plan(rng, puzzle, STYLES["kk-ada"], refuted=refuted)
    assert len({*plan.wrong, refuted, puzzle.solution}) == len(plan.wrong) + 2


def test_a_wrong_guess_is_labelled_by_the_solution_where_it_first_leaves_it() -> None:
    puzzle = draw_puzzle(random.Random(5), 3, part="build")
    first, second, third = puzzle.solution
    pieces = guess_pieces(puzzle, (first, not second, third), role_text=KNIGHTS.word, between=", ")
    labels = [piece.label for piece in pieces if piece.text != ", "]
    names, words = puzzle.names, [KNIGHTS.word(knight) for knight in puzzle.solution]
    assert labels == [names[0], words[0], names[1], words[1], names[2], None]


def test_doubt_is_worded_as_triage_words_it() -> None:
    assert conversations.QUALITY_FEEDBACK == triage_feedback.QUALITY_FEEDBACK


def test_feedback_lists_every_broken_statement() -> None:
    puzzle = draw_puzzle(random.Random(8), 4, part="build")
    wrong = tuple(not knight for knight in puzzle.solution)
    text = constraint_feedback(puzzle, wrong)
    assert text.count("\n- ") == len(broken_statements(puzzle.statements, wrong))
