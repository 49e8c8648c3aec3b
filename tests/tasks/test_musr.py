"""MuSR: reading its data, the split, and which choice a completion names."""

import json
from collections import Counter

import pytest
from task_data import write

from raydebm.errors import TaskDataError
from raydebm.records import Verdict
from raydebm.tasks.musr import Musr, choose_tests, problem_of

MURDER = "Who is the most likely murderer?"
PLACE = "Which location is the most likely place Emma would look to find the key given the story?"
TEAM = "Given the story, how would you uniquely allocate each person to make sure both tasks are done?"
ROW = {"narrative": "Mack fell.", "question": MURDER, "choices": ["Mackenzie", "Ana"], "answer_index": 1}


@pytest.fixture
def task():
    return Musr()


@pytest.fixture
def problem():
    return problem_of("Mack fell.", MURDER, ["Mackenzie", "Ana"])


@pytest.fixture
def rooms():
    return problem_of("Keys were moved.", PLACE, ["kitchen", "kitchen drawer", "Emma's bag"])


def made_up():
    """Rows with as many stories and problems as the published data: pairs, fours and single ones."""
    rows = []
    for story in range(125):
        rows += [{**ROW, "narrative": f"Murder {story}.\n\n{name} ran."} for name in ("Ana", "Mackenzie")]
    for story in range(64):
        for person in ("Emma", "Tom", "Ann", "Bob"):
            question = PLACE.replace("Emma", person)
            rows.append({**ROW, "narrative": f"Placement {story}.\n\nMore.", "question": question})
    rows += [{**ROW, "narrative": f"Team {story}.\n\nMore.", "question": TEAM} for story in range(250)]
    return rows


# Loading


def test_the_published_form_gives_prompt_and_gold(task, tmp_path):
    [(problem, gold)] = task.load("test", source=write(tmp_path / "test.jsonl", ROW))
    assert problem.prompt == f"Mack fell.\n\n{MURDER}\n\n1. Mackenzie\n2. Ana"
    assert problem.data == {"choices": ["Mackenzie", "Ana"]}
    assert gold.value == {"choice": "2"}


def test_the_hub_keeps_choices_as_the_text_of_a_list(task, tmp_path):
    row = {**ROW, "choices": "['Mackenzie', \"Ana's aunt\"]", "answer_choice": "Ana's aunt"}
    [(problem, _)] = task.load("test", source=write(tmp_path / "test.jsonl", row))
    assert problem.data["choices"] == ["Mackenzie", "Ana's aunt"]


def test_a_folder_of_files_is_one_set(task, tmp_path):
    (tmp_path / "murder_mysteries.json").write_text(json.dumps([{**ROW, "narrative": f"Tale {i}."} for i in range(5)]))
    teams = [{**ROW, "narrative": f"Team {i}.", "question": TEAM} for i in range(5)]
    write(tmp_path / "team_allocation.jsonl.gz", *teams)
    loaded = {split: list(task.load(split, source=str(tmp_path))) for split in ("train", "test")}
    assert [len(loaded["train"]), len(loaded["test"])] == [8, 2]


def test_each_hub_split_is_a_subset(task, monkeypatch):
    asked = []

    def rows(name, *, split):
        asked.append((name, split))
        return [("a row", ROW)]

    monkeypatch.setattr("raydebm.tasks.musr.hub_rows", rows)
    list(task.load("train"))
    assert asked == [("TAUR-Lab/MuSR", name) for name in ("murder_mysteries", "object_placements", "team_allocation")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choices": None}, "choices must be a list, got NoneType"),
        ({"choices": ["Ana"]}, "at least two, all different"),
        ({"answer_index": 2}, "answer_index must be from 0 to 1, got 2"),
        ({"answer_choice": "Mackenzie"}, "answer_index 1 is 'Ana', but answer_choice is 'Mackenzie'"),
    ],
)
def test_a_row_not_as_described_is_named(task, tmp_path, change, message):
    with pytest.raises(TaskDataError, match=rf"test\.jsonl:1: .*{message}"):
        list(task.load("test", source=write(tmp_path / "test.jsonl", {**ROW, **change})))


def test_the_recorded_sample_loads(task, shared_data):
    pairs = [pair for split in ("train", "test") for pair in task.load(split, source=str(shared_data / "musr"))]
    assert Counter(problem.difficulty for problem, _ in pairs) == {
        "murder mysteries": 5,
        "object placements": 20,
        "team allocation": 6,
    }
    assert all(task.judge(problem, gold, task.render(problem, gold.value["choice"])).verdict is Verdict.CORRECT
               for problem, gold in pairs)  # fmt: skip


# Split


def problems(rows):
    return [problem_of(row["narrative"], row["question"], row["choices"]) for row in rows]


def test_of_756_problems_151_are_for_testing():
    all_problems = problems(made_up())
    assert [len(all_problems), len(choose_tests(all_problems))] == [756, 151]


def test_no_story_is_on_both_sides():
    all_problems = problems(made_up())
    tests = choose_tests(all_problems)
    sides = {(p.prompt.split("\n")[0], p.problem_id in tests) for p in all_problems}
    assert len(sides) == 125 + 64 + 250


# Typed questions


@pytest.mark.parametrize(("style", "labels"), [("{}. {}", "12"), ("({}) {}", "AB"), ("{} - {}", "12")])
def test_typed_choices_are_read(task, style, labels):
    lines = [style.format(label, name) for label, name in zip(labels, ["Mackenzie", "Ana"], strict=True)]
    assert task.problem_from_text("A tale.\n\nWho?\n\n" + "\n".join(lines)).data["choices"] == ["Mackenzie", "Ana"]


@pytest.mark.parametrize("end", ["", "\n1. Ana", "\n1. Ana\n3. Tom", "\n1. Ana\nB. Tom"])
def test_a_text_without_choices_is_no_problem(task, end):
    with pytest.raises(TaskDataError, match="no choices at the end"):
        task.problem_from_text(f"A tale. Who did it?{end}")


# Answers


@pytest.mark.parametrize(
    "text",
    [
        "#### 2",
        "#### 2. Ana",
        "#### 1. Mackenzie\nHe was away.\n#### 2. Ana\nShe was there.\n\n**Answer: (B)**",
        "Answer: (B)",
        "The answer is **Ana**, because Mackenzie was away.",
        "The answer is 2. Mackenzie had no motive.",
        '{"reasoning": "Mackenzie was away", "answer": "Ana"}',
        "Mackenzie had no motive.\n\nTherefore Ana is the murderer.",
        "Mackenzie had no motive, so the most likely murderer is Ana.",
        "Mackenzie could not have done it; it was **Ana**.",
        "The most likely murderer is Ana, not Mackenzie.",
        "#### 1\nMackenzie was away.\n#### 2\nAna was there.\n\nThe correct choice is 2.",
    ],
)
def test_a_choice_is_found_however_it_is_written(task, problem, text):
    assert task.parse(problem, text) == "2"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#### 3",
        "Answer: 1. Ana",
        "\\boxed{\\text{neither}}",
        '{"answer": null} Ana',
        "It could be Ana. It could be Mackenzie too.",
        "Anabel did it.",
        "Ana had the better motive, though Mackenzie held the knife.",
        "It was Ana who had no motive, so Mackenzie did it.",
        "Ana did it, not Mackenzie.",
    ],
)
def test_no_choice_or_two_is_no_answer(task, problem, text):
    assert task.parse(problem, text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is the kitchen drawer.", "2"),
        ("Emma would look in Emma\u2019s bag.", "3"),
        ("The kitchen is where it was moved, but Emma would look in the kitchen drawer.", "2"),
        ("Emma would most likely look in the kitchen, not in the bag.", "1"),
        ("She looks in the kitchen, then in the kitchen drawer.", None),
    ],
)
def test_longer_choices_are_not_mistaken_for_shorter_ones(task, rooms, text, expected):
    assert task.parse(rooms, text) == expected


def test_an_allocation_is_read_by_its_own_words(task):
    choices = ["Acting: Liam, Stage Designing: Emma and Sophia", "Acting: Emma, Stage Designing: Liam and Sophia"]
    text = "The best is:\n\nActing: Emma, Stage Designing: Liam and Sophia."
    assert task.parse(problem_of("A tale.", TEAM, choices), text) == "2"


def test_a_choice_that_begins_like_a_reference(task):
    question = problem_of("A tale.", "Who?", ["Tom", "A. Smith", "2 keys"])
    assert [task.parse(question, text) for text in ("#### A. Smith", "#### 2 keys", "#### 2")] == ["2", "3", "2"]
