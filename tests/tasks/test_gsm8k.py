"""GSM8K: reading its data, and our labels beside the recorded ones."""

from collections import Counter
from dataclasses import replace

import pytest
from task_data import differing, read, relabelled, write

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Verdict
from raydebm.tasks.gsm8k import Gsm8k, problem_of

ROWS = [
    {"question": "How many are 9 times 2?", "answer": "9*2=<<9*2=18>>18\n#### 18"},
    {"question": "How much are 1,000 and 80 dollars?", "answer": "1000+80=1080\n#### 1,080"},
]


@pytest.fixture
def task():
    return Gsm8k()


@pytest.mark.parametrize(("split", "num_problems"), [("train", 120), ("test", 80)])
def test_problems_that_come_with_the_package_are_read_by_name(task, split, num_problems):
    assert len(list(task.load(split, source="embedded:gsm8k_small_llms"))) == num_problems


def test_gold_is_the_number_after_the_hashes(task, tmp_path):
    pairs = list(task.load("test", source=write(tmp_path / "any.jsonl", *ROWS)))
    assert [gold.value for _, gold in pairs] == [{"answer": "18"}, {"answer": "1080"}]


def test_a_bare_gold_field_wins(task, tmp_path):
    [(_, gold)] = task.load("test", source=write(tmp_path / "t.jsonl", {"question": "How many?", "gold": "-2.50"}))
    assert gold.value == {"answer": "-2.5"}


def test_the_sources_own_id_is_kept_as_an_alias(task, tmp_path):
    [(problem, _)] = task.load("test", source=write(tmp_path / "t.jsonl", {**ROWS[0], "problem_id": "gsm8k/test/0"}))
    assert problem == replace(problem_of(ROWS[0]["question"]), data={"source_id": "gsm8k/test/0"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "#### 1"}, r"bad\.jsonl:1: field 'question' is missing; found answer"),
        ({"question": "How many?"}, r"bad\.jsonl:1: field 'answer' is missing; found question"),
        ({"question": "How many?", "answer": "none"}, r"bad\.jsonl:1: no number in the reference answer 'none'"),
    ],
)
def test_a_row_not_as_described_is_named(task, tmp_path, row, message):
    with pytest.raises(TaskDataError, match=message):
        list(task.load("test", source=write(tmp_path / "bad.jsonl", row)))


@pytest.mark.parametrize(
    ("num_words", "expected"), [(35, "up to 35 words"), (36, "36-50 words"), (50, "36-50 words"), (51, "over 50 words")]
)
def test_difficulty_is_the_length_of_the_question(num_words, expected):
    assert problem_of("word " * num_words).difficulty == expected


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ("#### 18", Verdict.CORRECT, ""),
        ("#### $18.00", Verdict.CORRECT, ""),
        ("#### 17", Verdict.INCORRECT, "answered 17, not 18"),
        ("#### 18.4", Verdict.INCORRECT, "answered 18.4, not 18"),
        ("I cannot say.", Verdict.INCORRECT, "no number in the text"),
    ],
)
def test_judge(task, text, verdict, reason):
    problem = problem_of("How many are 9 times 2?")
    judgement = task.judge(problem, Gold(task="gsm8k", problem_id=problem.problem_id, value={"answer": "18"}), text)
    assert (judgement.verdict, judgement.reason) == (verdict, reason)


def test_labels_of_the_example_solutions_are_the_recorded_ones(shared_data):
    folder = shared_data / "gsm8k"
    labelled = relabelled(Gsm8k(), folder, read(folder / "pool_openai_example_solutions.jsonl.gz"))
    assert 1 - len(differing(labelled)) / len(labelled) >= 0.995


def test_labels_of_the_zeroeval_pool_differ_only_where_the_recorded_rule_is_cruder(shared_data):
    """The recorded rule takes the first number of the first answer field: it reads "2 + 8 + 6 = 16" as 2, "$9 500" as 9
    and "160 - r" as 160, and does not see that a model corrected itself in a second answer."""
    folder = shared_data / "gsm8k"
    labelled = relabelled(Gsm8k(), folder, read(folder / "pool_zeroeval.jsonl.gz"))
    others = differing(labelled)
    assert 1 - len(others) / len(labelled) >= 0.994
    single = [row for row, _ in others if row["text"].count('"answer"') < 2 and "=" not in (row["answer"] or "")]
    assert 1 - len(single) / len(labelled) >= 0.9995
    assert Counter(verdict for _, verdict in others)[Verdict.INCORRECT] <= 11
