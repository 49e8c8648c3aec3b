"""TACO: reading its data, prompts, and verdicts of whole completions."""

import json

import pytest
from task_data import write

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Verdict
from raydebm.tasks.taco import Taco, problem_of

STDIN = {
    "question": "Print twice the number.",
    "input_output": json.dumps({"inputs": ["2\n", ["1", "2"]], "outputs": ["4\n", ["3"]]}),
    "difficulty": "EASY",
}
CALL = {
    "question": "Double the number.",
    "starter_code": "def double(n):\n\t",
    "input_output": json.dumps({"fn_name": "double", "inputs": [[2]], "outputs": [[4]]}),
    "difficulty": "MEDIUM_HARD",
}


@pytest.fixture
def task():
    return Taco()


def only(task, tmp_path, row):
    [pair] = task.load("test", source=write(tmp_path / "t.jsonl", row))
    return pair


def test_tests_on_stdin_are_texts(task, tmp_path):
    problem, gold = only(task, tmp_path, STDIN)
    assert gold.value == {
        "kind": "stdin",
        "tests": [{"input": "2\n", "output": "4\n"}, {"input": "1\n2", "output": "3"}],
    }
    assert problem.prompt == (
        "Print twice the number.\n\nRead the input from standard input and print the answer to standard output."
    )


def test_calls_keep_their_values_and_the_prompt_shows_the_head(task, tmp_path):
    problem, gold = only(task, tmp_path, CALL)
    assert gold.value == {"kind": "call", "function": "double", "tests": [{"input": [2], "output": [4]}]}
    assert "```python\ndef double(n):\n```" in problem.prompt
    assert problem.prompt.endswith(
        "Complete the function `double`. It is called with its arguments, and what it returns is the answer."
    )
    assert problem.data["function"] == "double"


@pytest.mark.parametrize(
    ("given", "difficulty"),
    [("MEDIUM_HARD", "MEDIUM_HARD"), ("UNKNOWN_DIFFICULTY", "UNKNOWN"), (None, "UNKNOWN")],
)
def test_difficulty_is_the_official_label(task, tmp_path, given, difficulty):
    problem, _ = only(task, tmp_path, {**STDIN, "difficulty": given})
    assert problem.difficulty == difficulty


def test_very_hard_problems_are_left_out_as_in_the_paper(task, tmp_path):
    source = write(tmp_path / "t.jsonl", {**STDIN, "difficulty": "VERY_HARD"}, CALL)

    class All(Taco):
        excluded_difficulties = frozenset()

    assert [problem.difficulty for problem, _ in task.load("train", source=source)] == ["MEDIUM_HARD"]
    assert len(list(All().load("train", source=source))) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "?", "input_output": '{"inputs": ["1"], "outputs": []}'}, "as many inputs as outputs"),
        ({"question": "?", "input_output": "[]"}, "must be JSON with as many inputs as outputs"),
        (
            {"question": "?", "input_output": '{"fn_name": "f", "inputs": [1], "outputs": [1]}'},
            "the inputs of function 'f' must be lists",
        ),
    ],
)
def test_a_row_not_as_described_is_named(task, tmp_path, row, message):
    with pytest.raises(TaskDataError, match=rf"bad\.jsonl:1: .*{message}"):
        list(task.load("test", source=write(tmp_path / "bad.jsonl", row)))


def test_the_hub_data_set_is_read_like_a_file(task, monkeypatch):
    asked = []

    def rows(name, configuration, *, split):
        asked.append((name, split))
        return [("a row", row) for row in (STDIN, CALL)]

    monkeypatch.setattr("raydebm.tasks.sources.hub_rows", rows)
    assert len(list(task.load("train"))) == 2
    assert asked == [("BAAI/TACO", "train")]


def test_words_around_published_prompts_are_no_part_of_the_statement():
    assert problem_of("\nQUESTION:\nAdd.\nUse Standard Input format\nANSWER:\n").prompt == problem_of("Add.").prompt


def test_a_typed_statement_asks_for_a_program_on_stdin(task):
    assert task.problem_from_text(" Add two numbers.\n") == problem_of("Add two numbers.")


def test_a_text_without_words_is_no_problem(task):
    with pytest.raises(TaskDataError, match="a programming problem needs words"):
        task.problem_from_text("12 + 3")


def test_text_without_a_program_is_no_code(task):
    problem = problem_of("?")
    gold = Gold(task="taco", problem_id=problem.problem_id, value={"kind": "stdin", "tests": []})
    judgement = task.judge(problem, gold, "I do not know.")
    assert (judgement.verdict, judgement.severity) == (Verdict.INCORRECT, 7)
    assert judgement.reason == "no_code: no program in the text"


def test_without_tests_there_is_no_verdict(task):
    problem = problem_of("?")
    gold = Gold(task="taco", problem_id=problem.problem_id, value={"kind": "stdin", "tests": []})
    judgement = task.judge(problem, gold, "```python\nprint(1)\n```")
    assert (judgement.verdict, judgement.reason) == (Verdict.UNLABELED, "no tests for this problem")


@pytest.mark.parametrize(
    ("text", "verdict", "reason", "severity"),
    [
        ("```python\nprint(2 * int(input()))\n```", Verdict.INCORRECT, "wrong_answer in test 2 of 2", 1),
        ("```python\nprint(4 if int(input()) == 2 else 3)\n```", Verdict.CORRECT, "", None),
        (
            "```python\nprint(\n```",
            Verdict.INCORRECT,
            "syntax_error in test 1 of 2: SyntaxError: '(' was never closed (solution.py, line 1)",
            6,
        ),
    ],
)
def test_judge(isolated, task, tmp_path, text, verdict, reason, severity):
    problem, gold = only(task, tmp_path, STDIN)
    judgement = task.judge(problem, gold, text)
    assert (judgement.verdict, judgement.reason, judgement.severity) == (verdict, reason, severity)
