"""`raydebm task`: what it writes works, and what is wrong is said in one line with exit code 1."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def starter_files(tmp_path_factory):
    """A folder in which `task new` has written the task «reply»."""
    folder = tmp_path_factory.mktemp("starter")
    subprocess.run([sys.executable, "-m", "raydebm", "task", "new", "reply"], check=True, timeout=240, cwd=folder)
    return folder


@pytest.fixture
def starter(starter_files, monkeypatch):
    monkeypatch.chdir(starter_files)
    return starter_files


def test_a_new_task_is_valid_and_its_answers_are_as_intended(raydebm, starter):
    done = raydebm("task", "validate", "reply/task.yaml", "--answers", "reply/answers.jsonl")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 row(s), 12 problem(s)" in done.stdout
    told = "48 answer(s), the first 20 of them above; 45 parsed, 24 break no constraint; 27 correct, 21 incorrect"
    assert told in done.stdout
    assert "warning" not in done.stdout


def test_the_field_of_the_texts_can_be_named(raydebm, starter):
    answers = (starter / "reply" / "answers.jsonl").read_text(encoding="utf-8")
    (starter / "said.jsonl").write_text(answers.replace('"text":', '"said":'), encoding="utf-8")

    done = raydebm("task", "validate", "reply/task.yaml", "--answers", "said.jsonl", "--text-field", "said")

    assert "45 parsed, 24 break no constraint; 27 correct, 21 incorrect" in done.stdout


def test_nothing_is_overwritten(raydebm, starter):
    done = raydebm("task", "new", "reply")

    assert done.returncode == 2
    assert "'reply' exists and is not empty; choose another name or --folder" in done.stderr


def test_bad_rows_are_all_listed(raydebm, starter, tmp_path):
    rows = [
        {"id": "a", "kind": "k", "message": "m", "paid": 1, "expected_refund": 1},
        {"id": "b", "kind": "k", "message": "m", "expected_refund": 1},
        {"id": "c", "kind": "k", "message": "m", "paid": 1, "expected_refund": "all"},
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    done = raydebm("task", "validate", "reply/task.yaml", "--data", str(data))

    assert done.returncode == 1
    assert "rows.jsonl:2: field 'paid' is missing" in done.stdout
    assert "rows.jsonl:3: field 'expected_refund' must be a number, got 'all'" in done.stdout
    assert "1 row(s), 1 problem(s)" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_rows_without_what_a_rule_reads_or_without_gold_are_warned_about(raydebm, starter, tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"id": "a", "kind": "k", "message": "m", "paid": None}))
    done = raydebm("task", "validate", "reply/task.yaml", "--data", str(data))

    assert "warning: 1 of 1 rows have no reference answer" in done.stdout
    assert "warning: constraint 'refund' reads problem.paid, which 1 of 1 rows do not have" in done.stdout


def test_a_copy_of_the_reference_answer_is_warned_about(raydebm, tmp_path, monkeypatch):
    """The gold column is removed, but another column may contain the same value."""
    task = {"name": "leaky", "instructions": "Answer.", "prompt": "{question}"}
    tree = {**task, "gold": {"field": "gold"}, "data": {"train": "rows.jsonl", "fields": ["notes"]}}
    (tmp_path / "leaky.yaml").write_text(json.dumps(tree))
    row = {"question": "Who wrote it?", "notes": {"solution": "Johann Wolfgang"}, "gold": "Johann Wolfgang"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))

    monkeypatch.chdir(tmp_path)
    done = raydebm("task", "validate", "leaky.yaml")

    assert "warning: in 1 of 1 rows another column in the prompt contains the reference answer" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], "task file 'nowhere.yaml' does not exist"),
        (["reply/task.yaml", "--answers", "nowhere.jsonl"], "'nowhere.jsonl' does not exist"),
        (["reply/task.yaml", "--answers", "reply/train.jsonl"], "no usable line"),
        (["gsm8k", "--answers", "reply/answers.jsonl"], "task 'gsm8k' has none; give a file of problems with --data"),
    ],
)
def test_what_is_missing_is_named(raydebm, starter, arguments, words):
    done = raydebm("task", "validate", *arguments)

    assert done.returncode == 1
    assert words in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_task_for_a_file_of_ones_own_is_valid_and_names_its_columns(raydebm, tmp_path, monkeypatch):
    (tmp_path / "mine.csv").write_text("question,hint\nHow many?,few\n")

    monkeypatch.chdir(tmp_path)
    done = raydebm("task", "new", "mine", "--data", "mine.csv")
    assert done.returncode == 0, done.stderr
    assert "question: {question}\n  hint: {hint}" in (tmp_path / "mine" / "task.yaml").read_text()

    checked = raydebm("task", "validate", "mine/task.yaml")
    assert checked.returncode == 0, checked.stdout
    assert "2 row(s), 1 problem(s), 1 row(s) repeated" in checked.stdout
