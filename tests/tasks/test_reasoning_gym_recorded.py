"""The rules beside the recorded verdicts of 51,785 answers, and the recipe's problems (docs/tasks/reasoning_gym.md)."""

import gzip
import json
from collections import Counter

import pytest

from raydebm.tasks.reasoning_gym.answers import find_answer
from raydebm.tasks.reasoning_gym.rules import READERS, read_puzzle

KNOWN_DIFFERENCES = {"cryptarithm": 22, "knight_swap": 17, "puzzle24": 9, "countdown": 2}
"""Of which kind, and why, stands on the page of the task."""


def lines(file):
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture(scope="module")
def problems(shared_data):
    return lines(shared_data / "reasoning_gym" / "problems_easy.jsonl.gz")


def test_every_recorded_question_of_a_kind_with_rules_is_read(problems):
    read = {problem["problem_id"]: read_puzzle(problem["question"].strip()) for problem in problems}
    for problem in problems:
        reading = read[problem["problem_id"]]
        assert (None if reading is None else reading[0]) == (
            problem["dataset"] if problem["dataset"] in READERS else None
        )


def test_rules_are_exact_for_every_recorded_question_but_ladders(problems):
    readings = [(problem, read_puzzle(problem["question"].strip())) for problem in problems]
    exact = Counter(problem["dataset"] for problem, puzzle in readings if puzzle and puzzle[1].exactness().exact)
    assert (exact.total(), set(READERS) - set(exact)) == (540, {"word_ladder"})


def test_exact_rules_agree_with_recorded_verdicts_up_to_known_differences(problems, shared_data):
    by_id = {problem["problem_id"]: problem for problem in problems}
    differences: Counter[str] = Counter()
    num_checked = 0
    for row in lines(shared_data / "reasoning_gym" / "pool_easy.jsonl.gz"):
        problem = by_id[row["problem_id"]]
        puzzle = read_puzzle(problem["question"].strip())
        if puzzle is None or not puzzle[1].exactness().exact:
            continue
        answer = find_answer(row["text"])
        is_right = answer is not None and not list(puzzle[1].faults(answer))
        num_checked += 1
        differences[problem["dataset"]] += is_right != row["correct"]
    assert num_checked == 9918
    assert +differences == Counter(KNOWN_DIFFERENCES)
