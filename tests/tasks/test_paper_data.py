"""The paper's problems by one name: digests, rules, and refusals."""

import json
import logging

import pytest
from task_data import write

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks import get_task
from raydebm.tasks.knights_knaves.puzzles import make_puzzle
from raydebm.tasks.paper_data import PAPER, load_paper_problems
from raydebm.tasks.taco.sources import NUM_PROBLEMS, NUM_TEST, is_clean, paper_problems


def test_the_paper_has_so_many_problems():
    assert {task: data.counts for task, data in PAPER.items()} == {
        "gsm8k": {"train": 7473, "test": 1319},
        "musr": {"train": 605, "test": 151},
        "travelplanner": {"train": 175, "test": 50},
        "taco": {"train": 601, "test": 94},
        "knights_knaves": {"train": 6200, "test": 700},
        "math500": {"test": 500},
    }


@pytest.mark.parametrize(
    ("task", "folder", "split"),
    [
        ("gsm8k", "gsm8k", "train"),
        ("gsm8k", "gsm8k", "test"),
        ("math500", "math", "test"),
        ("travelplanner", "travelplanner", "train"),
        ("travelplanner", "travelplanner", "test"),
    ],
)
def test_a_whole_copy_of_the_published_data_has_them_all(shared_data, task, folder, split):
    pairs = load_paper_problems(get_task(task), split, source=str(shared_data / folder))
    assert len(pairs) == PAPER[task].counts[split]


def test_a_source_with_other_problems_is_refused(tmp_path):
    file = write(tmp_path / "test.jsonl", {"question": "How many?", "answer": "#### 3"})
    with pytest.raises(TaskDataError, match=r"gsm8k test: the source's 1 problems are not the paper's 1319; use"):
        load_paper_problems(get_task("gsm8k"), "test", source=file)


def test_a_task_that_is_not_the_papers_has_none():
    with pytest.raises(TaskDataError, match=r"no problems of task 'reasoning_gym'.* gsm8k, musr"):
        load_paper_problems(get_task("reasoning_gym"), "train")


def test_a_split_that_the_paper_does_not_use_is_the_tasks_own(tmp_path):
    file = write(tmp_path / "train.jsonl", {"problem": "What is 1 + 1?", "answer": "2"})
    assert len(load_paper_problems(get_task("math500"), "train", source=file)) == 1


def taco(name, prompt="Add two numbers.", **value):
    gold = {"tests": [{"input": "1", "output": "1"}], "solution": "print(1)"} | value
    return Problem(task="taco", problem_id=name, prompt=prompt), Gold(task="taco", problem_id=name, value=gold)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (taco("a"), True),
        (taco("a", tests=[]), False),
        (taco("a", solution=""), False),
        (taco("a", prompt="See the picture.\n<image>"), False),
        (taco("a", prompt="See ![the graph](x.png)."), False),
        (taco("a", prompt="An image of n pixels."), True),
    ],
)
def test_what_is_a_clean_problem(pair, expected):
    assert is_clean(*pair) is expected


def test_the_order_of_the_data_does_not_choose_the_problems_of_taco():
    pairs = [taco(f"p{index}") for index in range(NUM_PROBLEMS + 100)]
    chosen = {split: [problem.problem_id for problem, _ in paper_problems(pairs, split)] for split in ("train", "test")}
    assert {split: len(ids) for split, ids in chosen.items()} == {"train": 601, "test": NUM_TEST}
    assert not set(chosen["train"]) & set(chosen["test"])
    again = [problem.problem_id for problem, _ in paper_problems(reversed(pairs), "test")]
    assert again == chosen["test"]


def test_both_parts_of_taco_are_chosen_from_the_one_split_that_it_has(tmp_path):
    rows = [
        {"question": f"Print {index}.", "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]}),
         "solutions": json.dumps(["print(1)"]), "difficulty": "EASY"}
        for index in range(NUM_PROBLEMS + 5)
    ]  # fmt: skip
    file = write(tmp_path / "taco.jsonl.gz", *rows)
    counts = {split: len(load_paper_problems(get_task("taco"), split, source=file)) for split in ("train", "test")}
    assert counts == {"train": 601, "test": 94}


def test_another_number_of_problems_than_the_papers_is_told(tmp_path, caplog):
    puzzle = make_puzzle(2, part="test", seed=0, index=0)
    file = write(tmp_path / "test.jsonl", {"quiz": puzzle.quiz})
    with caplog.at_level(logging.WARNING):
        pairs = load_paper_problems(get_task("knights_knaves"), "test", source=file)
    assert len(pairs) == 1
    assert "knights_knaves test: found 1 problems, but the paper has 700" in caplog.text
