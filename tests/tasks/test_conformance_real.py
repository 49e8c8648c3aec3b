"""The protocol on published problems, where a folder of recorded data is at hand."""

import functools

import pytest

from raydebm.records import Verdict
from raydebm.tasks import BUILT_IN, get_task

SOURCES = {
    "gsm8k": "gsm8k",
    "knights_knaves": "knights_knaves/problems_kk_test.jsonl.gz",
    "math500": "math",
    "musr": "musr",
    "reasoning_gym": "reasoning_gym/problems_easy.jsonl.gz",
    "taco": "code/problems_taco_test1000.jsonl.gz",
    "travelplanner": "travelplanner",
}
GOLD_ANSWERS = {
    "gsm8k": lambda gold: gold.value["answer"],
    "knights_knaves": lambda gold: gold.value["roles"],
    "math500": lambda gold: gold.value["answer"],
    "musr": lambda gold: gold.value["choice"],
}
"""Tasks whose gold is an answer. Programs and plans have tests of their own."""

every_task = pytest.mark.parametrize("name", sorted(BUILT_IN))


@functools.cache
def loaded(name, folder, split="test"):
    return list(get_task(name).load(split, source=str(folder / SOURCES[name]), limit=150))


@pytest.fixture(autouse=True)
def _database(shared_data, monkeypatch):
    monkeypatch.setenv("RAYDEBM_TRAVELPLANNER_DB", str(shared_data / "travelplanner" / "database"))


@every_task
def test_ids_are_unique(name, shared_data):
    ids = [problem.problem_id for problem, _ in loaded(name, shared_data)]
    assert len(set(ids)) == len(ids) > 0


@every_task
def test_train_and_test_share_no_problem(name, shared_data):
    if name in {"knights_knaves", "reasoning_gym", "taco"}:
        pytest.skip("the recorded file is one part")
    parts = [{problem.problem_id for problem, _ in loaded(name, shared_data, split)} for split in ("train", "test")]
    assert not parts[0] & parts[1]


@pytest.mark.parametrize("name", sorted(GOLD_ANSWERS))
def test_published_gold_passes_its_own_checker(name, shared_data):
    task = get_task(name)
    wrong = [
        problem.problem_id
        for problem, gold in loaded(name, shared_data)
        if task.judge(problem, gold, task.render(problem, GOLD_ANSWERS[name](gold))).verdict is not Verdict.CORRECT
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted({*BUILT_IN} - {"travelplanner"}))  # its trips are sent as rows
def test_a_question_typed_in_is_the_published_problem(name, shared_data):
    task = get_task(name)
    for problem, _ in loaded(name, shared_data)[:40]:
        assert task.problem_from_text(problem.prompt).problem_id == problem.problem_id
