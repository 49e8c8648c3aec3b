"""What every task must keep, whatever it is about. A new task adds a ``Case`` and no test."""

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_data import label, write

from raydebm.identity import canonical_json
from raydebm.records import Gold, Problem, Verdict
from raydebm.run.tables import PROBLEM
from raydebm.tasks import BUILT_IN, get_task
from raydebm.tasks.answers import render_number
from raydebm.tasks.base import GoldFromAnswer, Task
from raydebm.tasks.constraints import violations_of


@dataclass(frozen=True, kw_only=True)
class Case:
    rows: Callable[[], list[dict[str, Any]]]
    """Small data in the task's own file format. No gold answer may stand in a question by chance."""
    other_gold: Callable[[dict[str, Any]], dict[str, Any]]
    """The same row with another gold answer, or without one where the format allows that."""
    gold_answer: Callable[[Gold], Any]
    answers: Callable[[Problem], st.SearchStrategy[Any]]
    """Any answer that could be given, right or wrong."""


def gsm8k_rows() -> list[dict[str, Any]]:
    asked = [
        ("nine times two", "18"),
        ("1,000 plus 80", "1,080"),
        ("one half of -5", "-2.5"),
        ("one third of ten", "10/3"),
    ]
    return [
        {"question": f"How many are {what}?", "answer": f"It is easy.\n#### {number}", "problem_id": f"own/{index}"}
        for index, (what, number) in enumerate(asked)
    ]


def puzzle_rows() -> list[dict[str, Any]]:
    pairs = get_task("knights_knaves").load("train", source="generate:2-4", limit=6, seed=1)
    return [
        {
            "quiz": problem.prompt,
            "solution": [gold.value["roles"][name] == "knight" for name in problem.data["names"]],
            "problem_id": f"own/{index}",
        }
        for index, (problem, gold) in enumerate(pairs)
    ]


def story_rows() -> list[dict[str, Any]]:
    told = [
        ("Mack fell.", "Who is the most likely murderer?", ["Mackenzie", "Ana"], 1),
        ("Keys were moved.", "Which location is the most likely place she would look?", ["box", "desk", "car"], 0),
        ("Three of us came.", "How would you uniquely allocate us?", ["Cook: Tom, Mop: Ann", "Cook: Ann, Mop: Tom"], 1),
    ]
    return [
        {"narrative": story, "question": asked, "choices": choices, "answer_index": index, "problem_id": f"own/{story}"}
        for story, asked, choices, index in told
    ]


def program_rows() -> list[dict[str, Any]]:
    asked = [
        (
            "Print the sum of the two numbers.",
            "a, b = map(int, input().split())\nprint(a + b)",
            ["2 3", "10 -4"],
            ["5", "6"],
        ),
        (
            "Print every word of the line in a line of its own.",
            "for w in input().split():\n    print(w)",
            ["b a"],
            ["b\na"],
        ),
    ]
    rows = [
        {
            "question": question,
            "input_output": json.dumps({"inputs": inputs, "outputs": outputs}),
            "difficulty": "EASY",
            "solutions": json.dumps([program]),
        }
        for question, program, inputs, outputs in asked
    ]
    called = {"fn_name": "double", "inputs": [[3], [[1, "x"]]], "outputs": [[6], [[1, "x", 1, "x"]]]}
    return [
        *rows,
        {
            "question": "Give back twice what you get.",
            "starter_code": "def double(value):\n\t",
            "input_output": json.dumps(called),
            "solutions": json.dumps(["def double(value):\n    return value + value"]),
        },
    ]


def with_other_outputs(row: dict[str, Any]) -> dict[str, Any]:
    known = json.loads(row["input_output"])
    return {
        **row,
        "input_output": json.dumps({**known, "outputs": [["other"]] * len(known["inputs"])}),
        "solutions": None,
    }


def math_rows() -> list[dict[str, Any]]:
    asked = [
        ("nine halves", "\\frac{9}{2}"),
        ("the interval above 3", "(3,\\infty)"),
        ("both roots of 19", "\\pm\\sqrt{19}"),
        ("twice x", "2x"),
    ]
    return [
        {"question": f"Write {what} in LaTeX.", "gold": latex, "level": 1, "problem_id": f"own/{index}"}
        for index, (what, latex) in enumerate(asked)
    ]


def gym_rows() -> list[dict[str, Any]]:
    """Questions with a number, words and a grid as the answer."""
    asked = [
        ("gcd", "arithmetic", "Find the greatest common divisor of 36 and 60.", "12"),
        ("word_sorting", "algorithmic", "Sort these words: pear fig", "fig, pear"),
        ("manipulate_matrix", "algorithmic", "Rotate: 1 2 / 3 4", "3 1\n4 2"),
    ]
    return [
        {"dataset": name, "category": group, "question": text, "expected_answer": answer, "problem_id": f"own/{name}"}
        for name, group, text, answer in asked
    ]


def trip_rows() -> list[dict[str, Any]]:
    from travelplanner_world import QUERY, row

    return [
        row(),
        row(query=QUERY.replace("2 people", "a group of 2"), problem_id="own/2"),
        row(query=f"Hello! {QUERY}", problem_id="own/3", budget=2000),
    ]


def itineraries(problem: Problem) -> st.SearchStrategy[Any]:
    places = {
        "current_city": ["from Ada to Bree", "Bree", "from Cole to Ada", "-"],
        "lunch": ["Bree Curry, Bree", "Cole Cafe, Cole", "Moon Diner, Cole", "-"],
        "attraction": ["Old Mill, Bree;"],
    }
    day = st.fixed_dictionaries(
        {name: st.sampled_from(values) for name, values in places.items()},
        optional={"dinner": st.just('d\' Curry "House", Bree')},
    )
    return st.lists(day, min_size=1, max_size=6).map(
        lambda days: [{"day": number, **entry} for number, entry in enumerate(days, start=1)]
    )


CASES = {
    "travelplanner": Case(
        rows=trip_rows,
        other_gold=lambda row: {**row, "annotated_plan": None},
        gold_answer=lambda gold: gold.value["annotated_plan"],
        answers=itineraries,
    ),
    "math500": Case(
        rows=math_rows,
        other_gold=lambda row: {**row, "gold": "123456"},
        gold_answer=lambda gold: gold.value["answer"],
        answers=lambda problem: st.sampled_from(["5", "-1/3", "\\sqrt{2}", "(1,2)", "[1,2)", "2x+1", "even"]),
    ),
    "taco": Case(
        rows=program_rows,
        other_gold=with_other_outputs,
        gold_answer=lambda gold: gold.value["solution"],
        answers=lambda problem: st.integers(0, 9).map(lambda number: f"print({number})\nprint('```')"),
    ),
    "reasoning_gym": Case(
        rows=gym_rows,
        other_gold=lambda row: {**row, "expected_answer": "123456"},
        gold_answer=lambda gold: gold.value["answer"],
        answers=lambda problem: st.sampled_from(
            ["5", "-1.5", "6 + 2", "6 - 2", "true", "fig, pear", '["a","b"]', "3 1\n4 2", "0101", "1/3"]
        ),
    ),
    "musr": Case(
        rows=story_rows,
        other_gold=lambda row: {**row, "answer_index": 1 - row["answer_index"]},
        gold_answer=lambda gold: gold.value["choice"],
        answers=lambda problem: st.integers(1, len(problem.data["choices"])).map(str),
    ),
    "gsm8k": Case(
        rows=gsm8k_rows,
        other_gold=lambda row: {**row, "answer": "#### 123456"},
        gold_answer=lambda gold: gold.value["answer"],
        answers=lambda problem: st.fractions(max_denominator=1000).map(render_number),
    ),
    "knights_knaves": Case(
        rows=puzzle_rows,
        other_gold=lambda row: {name: value for name, value in row.items() if name != "solution"},
        gold_answer=lambda gold: gold.value["roles"],
        answers=lambda problem: st.fixed_dictionaries(
            {name: st.sampled_from(["knight", "knave"]) for name in problem.data["names"]}
        ),
    ),
}


every_task = pytest.mark.parametrize("name", sorted(BUILT_IN))


def load(name: str, rows: list[dict[str, Any]]) -> list[tuple[Problem, Gold]]:
    with tempfile.TemporaryDirectory() as folder:
        return list(get_task(name).load("train", source=write(Path(folder) / "train.jsonl", *rows)))


@functools.cache
def loaded(name: str) -> list[tuple[Problem, Gold]]:
    return load(name, CASES[name].rows())


def parts(value: Any) -> list[Any]:
    """The value and everything inside it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [value, *(part for child in inside for part in parts(child))]


@every_task
def test_follows_the_protocol_and_knows_its_name(name):
    task = get_task(name)
    assert isinstance(task, Task)
    assert task.name == name


@every_task
def test_loads_every_row_and_pairs_problems_with_their_gold(name):
    assert len(loaded(name)) == len(CASES[name].rows())
    assert all(problem.problem_id == gold.problem_id for problem, gold in loaded(name))
    assert {record.task for pair in loaded(name) for record in pair} == {name}


@every_task
def test_reordering_the_data_changes_no_id(name):
    reordered = load(name, CASES[name].rows()[::-1])
    assert [problem.problem_id for problem, _ in reordered[::-1]] == [problem.problem_id for problem, _ in loaded(name)]


@every_task
def test_gold_passes_its_own_checker(name):
    task, case = get_task(name), CASES[name]
    for problem, gold in loaded(name):
        text = task.render(problem, case.gold_answer(gold))
        assert label(task, problem, gold, f"Let me think.\n{text}").verdict is Verdict.CORRECT


@every_task
def test_gold_breaks_no_constraint(name):
    task, case = get_task(name), CASES[name]
    assert [
        list(violations_of(task.constraints, problem, case.gold_answer(gold))) for problem, gold in loaded(name)
    ] == [[]] * len(loaded(name))


def test_the_record_of_a_problem_has_no_gold_field():
    assert not {"gold", "answer", "solution", "label"} & {field.name for field in fields(Problem)}


@every_task
def test_a_problem_is_the_same_whatever_its_gold(name):
    changed = load(name, [CASES[name].other_gold(row) for row in CASES[name].rows()])
    assert [problem for problem, _ in changed] == [problem for problem, _ in loaded(name)]


@every_task
def test_no_gold_stands_in_the_problem(name):
    for problem, gold in loaded(name):
        answer = CASES[name].gold_answer(gold)
        assert answer not in parts(dict(problem.data))
        assert canonical_json(answer) not in canonical_json(PROBLEM.row(problem))


@every_task
def test_a_problem_survives_the_table(name):
    assert [PROBLEM.record(PROBLEM.row(problem)) for problem, _ in loaded(name)] == [p for p, _ in loaded(name)]


@every_task
def test_the_chat_holds_the_question_last(name):
    for problem, _ in loaded(name):
        messages = get_task(name).messages(problem)
        assert [message["role"] for message in messages] == ["system", "user"]
        assert problem.prompt in messages[-1]["content"]


@pytest.mark.parametrize("name", sorted({*BUILT_IN} - {"travelplanner"}))  # its trips are sent as rows
def test_a_typed_question_is_the_loaded_problem(name):
    for problem, _ in loaded(name):
        assert get_task(name).problem_from_text(problem.prompt).problem_id == problem.problem_id


@every_task
@given(data=st.data())
def test_rendered_answers_read_back(name, data):
    task = get_task(name)
    problem, _ = data.draw(st.sampled_from(loaded(name)))
    answer = data.draw(CASES[name].answers(problem))
    assert task.parse(problem, task.render(problem, answer)) == answer


@every_task
@given(data=st.data())
def test_answers_are_json_and_vote_by_what_they_mean(name, data):
    """Two answers share a key exactly when they are the same answer in canonical form."""
    task = get_task(name)
    problem, _ = data.draw(st.sampled_from(loaded(name)))
    first, second = (data.draw(CASES[name].answers(problem)) for _ in range(2))
    same = canonical_json(first) == canonical_json(second)
    assert (task.vote_key(problem, first) == task.vote_key(problem, second)) == same


@every_task
@given(data=st.data())
def test_violations_of_any_answer_are_positive_and_say_what_is_wrong(name, data):
    task = get_task(name)
    problem, _ = data.draw(st.sampled_from(loaded(name)))
    for violation in violations_of(task.constraints, problem, data.draw(CASES[name].answers(problem))):
        assert violation.penalty > 0
        assert violation.weight > 0
        assert violation.message


def test_the_defaults_of_every_task_are_documented(repository):
    """docs/tasks.md, the table of defaults."""
    page = (repository / "docs" / "tasks.md").read_text(encoding="utf-8")
    caps = ("max_correct", "max_incorrect")
    numbers = ("max_length", "batch_size", "patience", "learning_rate", "lambda_", "max_tokens")
    for name in BUILT_IN:
        defaults = get_task(name).defaults
        cells = [f"{getattr(defaults, field):g}" for field in numbers]
        cells += ["all" if (cap := getattr(defaults, field)) is None else str(cap) for field in caps]
        assert f"| `{name}` | {' | '.join(cells)} |" in page


@every_task
@given(data=st.data())
def test_gold_made_of_an_answer_judges_as_that_answer_would(name, data):
    """Where one right answer says which others are right: the answer itself is, and gold's own verdict stays."""
    task = get_task(name)
    if not isinstance(task, GoldFromAnswer):
        return
    problem, gold = data.draw(st.sampled_from(loaded(name)))
    answer = data.draw(CASES[name].answers(problem))
    text = task.render(problem, answer)
    made = task.gold_from_answer(problem, text)
    assert task.judge(problem, made, text).verdict is Verdict.CORRECT
    right = task.render(problem, CASES[name].gold_answer(gold))
    same = task.gold_from_answer(problem, right)
    assert task.judge(problem, same, text).verdict is task.judge(problem, gold, text).verdict
    assert task.gold_from_answer(problem, "no idea at all, sorry") is None


def test_tasks_whose_right_answers_differ_make_no_gold_of_one():
    assert [name for name in BUILT_IN if not isinstance(get_task(name), GoldFromAnswer)] == [
        "taco",
        "travelplanner",
        "reasoning_gym",
    ]
