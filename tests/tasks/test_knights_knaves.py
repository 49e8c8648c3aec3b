"""Knights & Knaves: logic, wording, reading, answers, constraint, labels."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_data import cpu_within, differing, read, relabelled, write

from raydebm.errors import ConfigError, TaskDataError
from raydebm.records import Problem, Verdict
from raydebm.tasks.constraints import violations_of
from raydebm.tasks.knights_knaves import KnightsKnaves
from raydebm.tasks.knights_knaves.logic import Statement, broken_statements, check_statement, is_true, solutions
from raydebm.tasks.knights_knaves.puzzles import PARTS, make_puzzle, part_of
from raydebm.tasks.knights_knaves.wording import SPEECHES, Roles, claim_text, quiz_text, read_claim, read_quiz

QUIZ = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    "lie. You meet 3 inhabitants: Amelia, Penelope, and Evelyn. Amelia said that Evelyn is not a knight. Penelope was "
    'heard saying, "Penelope is a knight or Evelyn is a knave". "Penelope is a knight if and only if Penelope is a '
    'knave," Evelyn declared. So who is a knight and who is a knave?'
)
SOLUTION = {"Amelia": "knight", "Penelope": "knight", "Evelyn": "knave"}
T, L = "telling-truth", "lying"


@pytest.fixture
def task() -> KnightsKnaves:
    return KnightsKnaves()


@pytest.fixture
def problem(task: KnightsKnaves) -> Problem:
    return task.problem_from_text(QUIZ)


def statements_of(num_people: int) -> st.SearchStrategy[Statement]:
    atoms = st.tuples(st.sampled_from((T, L)), st.integers(0, num_people - 1))
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(("and", "or", "->", "<=>")), inner, inner),
            st.tuples(st.sampled_from(("and", "or")), inner, inner, inner),
        ),
        max_leaves=5,
    )


# Logic


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ((L, 0), False),
        (("not", (T, 1)), True),
        (("and", (T, 0), (L, 1)), True),
        (("or", (L, 0), (T, 1)), False),
        (("->", (T, 0), (T, 1)), False),
        (("->", (T, 1), (T, 1)), True),
        (("<=>", (L, 0), (T, 1)), True),
        (("and", (T, 0), (T, 0), (T, 1)), False),
    ],
)
def test_truth_when_only_the_first_is_a_knight(statement: Statement, expected: bool) -> None:
    assert is_true(statement, (True, False)) is expected


@given(st.lists(statements_of(3), min_size=3, max_size=3))
def test_the_solver_finds_exactly_the_worlds_that_break_nothing(statements: list[Statement]) -> None:
    worlds = [(a, b, c) for c in (False, True) for b in (False, True) for a in (False, True)]
    assert solutions(statements) == [world for world in worlds if not broken_statements(statements, world)]


def test_broken_statements_are_those_that_disagree_with_their_speaker() -> None:
    assert broken_statements([(T, 1), (L, 0)], (True, False)) == [0]


@pytest.mark.parametrize("value", [("telling-truth", 5), ("maybe", 0), (1,), ("not", ("lying", 0), ("lying", 1)), "x"])
def test_malformed_statements_are_refused(value: object) -> None:
    with pytest.raises(TaskDataError, match="not a statement"):
        check_statement(value, 2)


# Own puzzles


@pytest.mark.parametrize("num_people", range(2, 9))
def test_own_puzzles_have_one_solution_and_read_back(num_people: int) -> None:
    for index in range(20):
        puzzle = make_puzzle(num_people, part="train", seed=3, index=index)
        reading = read_quiz(puzzle.quiz)
        assert (reading.names, reading.statements) == (puzzle.names, puzzle.statements)
        assert solutions(puzzle.statements) == [puzzle.solution]


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_part_has_only_its_own_logic_forms(part: str) -> None:
    forms = [make_puzzle(2, part=part, seed=0, index=index).statements for index in range(50)]
    assert {part_of(form) for form in forms} == {part}


@pytest.mark.parametrize("num_people", [1, 13])
def test_impossible_sizes_are_refused(num_people: int) -> None:
    with pytest.raises(ConfigError, match="people"):
        make_puzzle(num_people, part="train", seed=0, index=0)


# Reading


@pytest.mark.parametrize("speech", SPEECHES)
def test_every_speech_is_read(speech: str) -> None:
    said = ("->", (T, 0), (L, 1))
    names = ("Zoey", "Luke")
    speeches = [speech.format(name=name, claim=claim_text(said, names)) for name in names]
    assert read_quiz(quiz_text(names, speeches)).statements == (said, said)


@given(statements_of(3))
@settings(max_examples=200)
def test_any_claim_reads_back_to_the_same_truth(statement: Statement) -> None:
    names, roles = ("Ann", "Bob", "Cyd"), Roles("altruist", "egoist")
    again = read_claim(claim_text(statement, names, roles), names, roles)
    worlds = [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]
    assert [is_true(again, world) for world in worlds] == [is_true(statement, world) for world in worlds]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("You meet 3 inhabitants: Amelia, Penelope, and Evelyn.", ""), "no inhabitants"),
        (("Amelia said that Evelyn is not a knight.", ""), "nothing was said by Amelia"),
        (("Evelyn is not a knight", "Nobody is a knight"), "not one of the inhabitants"),
        (("Evelyn is not a knight", "Evelyn is not a spy"), "unknown role"),
        (("Evelyn is not a knight", "the moon is made of cheese"), "cannot read the claim"),
        (("Amelia said that Evelyn is not a knight.", "It rained."), "who says what"),
    ],
)
def test_unreadable_puzzles_say_what_is_wrong(task: KnightsKnaves, change: tuple[str, str], message: str) -> None:
    with pytest.raises(TaskDataError, match=message):
        task.problem_from_text(QUIZ.replace(*change))


@pytest.mark.parametrize("claim", ["(" * 5000 + "Amelia is a knight" + ")" * 5000, "that " * 6000])
def test_endless_claims_are_refused_at_once(task: KnightsKnaves, claim: str) -> None:
    with cpu_within(3), pytest.raises(TaskDataError):
        task.problem_from_text(QUIZ.replace("Evelyn is not a knight", claim))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(TaskDataError, match=r"\w"):
        KnightsKnaves().problem_from_text(text)


def test_all_published_puzzles_read_back_to_their_statements(shared_data: Path) -> None:
    folder = shared_data / "knights_knaves"
    count = 0
    for split in ("train", "test"):
        for row in read(folder / f"problems_kk_{split}.jsonl.gz"):
            reading = read_quiz(row["quiz"])
            assert list(reading.names) == row["names"]
            said = ast.literal_eval(row["statements"])
            assert reading.statements == tuple(check_statement(part, row["n_people"]) for part in said)
            assert solutions(reading.statements) == [tuple(row["solution"])]
            count += 1
    assert count == 5000


def test_other_roles_and_nested_claims_solve_to_the_published_gold(shared_data: Path) -> None:
    for row in read(shared_data / "knights_knaves" / "problems_rg_kk.jsonl.gz"):
        reading = read_quiz(row["question"])
        (solution,) = solutions(reading.statements)
        told = [f"{name} is {reading.roles.phrase(k)}" for name, k in zip(reading.names, solution, strict=True)]
        assert f"{', '.join(told[:-1])}, and {told[-1]}." == row["gold"]


# Loading


def test_generated_splits_share_no_logic_form(task: KnightsKnaves) -> None:
    forms = {
        split: {str(problem.data["statements"]) for problem, _ in task.load(split, source="generate:2-3", limit=120)}
        for split in ("train", "test")
    }
    assert not forms["train"] & forms["test"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": QUIZ}, "a.jsonl:1: field 'quiz' is missing"),
        ({"quiz": QUIZ, "solution": [True, True, True]}, "a.jsonl:1: solution"),
        ({"quiz": QUIZ.replace("Evelyn is not a knight", "Amelia is a knave")}, "exactly one solution"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(
    task: KnightsKnaves, tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskDataError, match=message):
        list(task.load("test", source=write(tmp_path / "a.jsonl", row)))


@pytest.mark.parametrize("source", ["generate:1-4", "generate:4-2", "generate:many", "/no/such/file.jsonl"])
def test_unknown_sources_are_refused(task: KnightsKnaves, source: str) -> None:
    with pytest.raises(TaskDataError, match=r"unknown source|does not exist"):
        list(task.load("test", source=source))


def test_the_published_set_is_read_size_by_size(task: KnightsKnaves, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def rows(name: str, configuration: str, *, otherwise: str) -> list[tuple[str, dict[str, Any]]]:
        asked.append((name, configuration))
        return [("a row", {"quiz": make_puzzle(n, part="test", seed=0, index=0).quiz}) for n in (2, 3)]

    monkeypatch.setattr("raydebm.tasks.knights_knaves.puzzles.hub_rows", rows)
    difficulties = [problem.difficulty for problem, _ in task.load("test", source="hub:K-and-K/knights-and-knaves")]
    assert (asked, difficulties) == ([("K-and-K/knights-and-knaves", "test")], ["2 people", "3 people"])


# Answers


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SOLUTION),
        f"```json\n{json.dumps(SOLUTION, indent=2)}\n```\nHope this helps!",
        '{"amelia": "Knight", "PENELOPE": "a knight", "Evelyn": "KNAVE"}',
        "{'Amelia': 'knight', 'Penelope': 'knight', 'Evelyn': 'knave',}",
        f'Is it {{"Amelia": "knave", "Penelope": "knave", "Evelyn": "knave"}}? {{"answer": {json.dumps(SOLUTION)}}}',
        "<answer>Amelia is a knight, Penelope is a knight, and Evelyn is a knave</answer> Evelyn is a knight? No.",
        "<answer>- **Amelia**: knight\n- **Penelope**: knight\n- **Evelyn**: **knave**</answer>",
        "<answer>Amelia = knight; Penelope -> knight; Evelyn is the knave",
        "<answer>| Amelia | knight |\n| Penelope | knight |\n| Evelyn | **knave** |</answer>",
        "<answer>**Knights:** Amelia and Penelope\n**Knave:** Evelyn</answer>",
        f'{json.dumps(SOLUTION)}\n\nWait, if {{"Amelia": "knave", "Penelope": "knave", "Evelyn": "knave"}}, they lie.',
    ],
)
def test_answers_are_found_however_they_are_written(task: KnightsKnaves, problem: Problem, text: str) -> None:
    assert task.parse(problem, text) == SOLUTION


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer>Amelia is a knight</answer>",
        '{"Amelia": "knight", "Penelope": "knight", "Evelyn": "spy"}',
        '{"Amelia": "knight or knave", "Penelope": "knight or knave", "Evelyn": "knight or knave"}',
        "<answer>Amelia is not a knight, Penelope is not a knight, Evelyn is not a knave</answer>",
        "<answer>Amelia is a knight, Penelope is a knight, Evelyn is a knave, Evelyn is a knight</answer>",
        "Amelia is a knight, Penelope is a knight, and Evelyn is a knave.",
    ],
)
def test_incomplete_and_contradictory_texts_have_no_answer(task: KnightsKnaves, problem: Problem, text: str) -> None:
    assert task.parse(problem, text) is None


def test_other_roles_are_rendered_in_the_puzzles_own_words(task: KnightsKnaves) -> None:
    quiz = QUIZ.replace("knight", "egoist").replace("knave", "angel").replace("a angel", "an angel")
    problem = task.problem_from_text(quiz.replace("a egoist", "an egoist"))
    assert task.render(problem, SOLUTION) == '{"Amelia": "egoist", "Penelope": "egoist", "Evelyn": "angel"}'


# Constraint and labels


def test_a_broken_statement_is_quoted_with_its_truth(task: KnightsKnaves, problem: Problem) -> None:
    answer = {"Amelia": "knave", "Penelope": "knight", "Evelyn": "knave"}
    (violation,) = violations_of(task.constraints, problem, answer)
    assert violation.message == (
        'Amelia said "Evelyn is not a knight". With your answer that is true, but your answer makes Amelia a knave.'
    )
    assert violation.penalty == pytest.approx(1 / 3)


@pytest.mark.parametrize("num_people", [2, 5])
def test_only_the_solution_has_no_penalty(task: KnightsKnaves, num_people: int) -> None:
    puzzle = make_puzzle(num_people, part="test", seed=9, index=0)
    problem = task.problem_from_text(puzzle.quiz)
    for world in range(2**num_people):
        knights = tuple(bool(world >> person & 1) for person in range(num_people))
        answer = {name: "knight" if k else "knave" for name, k in zip(puzzle.names, knights, strict=True)}
        assert (not violations_of(task.constraints, problem, answer)) == (knights == puzzle.solution)


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        (json.dumps(SOLUTION), Verdict.CORRECT, ""),
        (json.dumps(SOLUTION | {"Evelyn": "knight"}), Verdict.INCORRECT, "wrong role: Evelyn"),
        ("I give up.", Verdict.INCORRECT, "no answer for every inhabitant"),
    ],
)
def test_verdicts(task: KnightsKnaves, tmp_path: Path, text: str, verdict: Verdict, reason: str) -> None:
    ((problem, gold),) = task.load("test", source=write(tmp_path / "a.jsonl", {"quiz": QUIZ}))
    judgement = task.judge(problem, gold, text)
    assert (judgement.verdict, judgement.reason) == (verdict, reason)


def test_labels_of_a_recorded_pool_are_the_recorded_ones(shared_data: Path) -> None:
    """Of 11 models, on puzzles with other role words."""
    folder = shared_data / "knights_knaves"
    rows = read(folder / "pool_rg_kk.jsonl.gz")
    labelled_rows = relabelled(KnightsKnaves(), folder / "problems_rg_kk.jsonl.gz", rows)
    assert len(labelled_rows) == 1320
    assert differing(labelled_rows) == []
