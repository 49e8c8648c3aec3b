"""The package reasoning-gym behind the task: its questions, its verifiers, and answers that attack them."""

import json

import pytest
from task_data import label, write

from raydebm.records import Verdict
from raydebm.tasks.libraries import LibraryError, LibraryProcess
from raydebm.tasks.reasoning_gym import ReasoningGym
from raydebm.tasks.reasoning_gym.sources import entries_of, is_installed, score_of

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs reasoning-gym (pip install 'raydebm[reasoning-gym]')")

CONFIG = {"seed": 3, "size": 4}
TASK = ReasoningGym()


def scored(dataset, answer):
    question = entries_of(dataset, CONFIG)[1][0][0]
    return score_of(dataset, CONFIG, 0, question=question, answer=answer)


def loaded(folder, row):
    [pair] = TASK.load("train", source=write(folder / "problems_x.jsonl", row))
    return pair


def test_generated_questions_are_the_same_in_every_process():
    other = LibraryProcess("reasoning-gym")
    try:
        again = other.ask({"entries": "word_ladder", "config": CONFIG}, cpu_s=60.0)
        assert list(map(tuple, again["entries"])) == entries_of("word_ladder", CONFIG)[1]
    finally:
        other.close()


def test_a_verifier_judges_by_meaning_where_texts_differ(tmp_path):
    question, _ = entries_of("complex_arithmetic", CONFIG)[1][0]
    row = {"dataset": "complex_arithmetic", "question": question, "expected_answer": "?", "config": CONFIG}
    problem, gold = loaded(tmp_path, row)
    answer = entries_of("complex_arithmetic", CONFIG)[1][0][1]
    assert label(TASK, problem, gold, f"<answer>({answer})</answer>").verdict is Verdict.CORRECT


def test_recorded_questions_find_their_entry_by_the_settings_beside_them(tmp_path):
    question, answer = entries_of("gcd", CONFIG)[1][2]
    (tmp_path / "configs_x.json").write_text(json.dumps({"configs": {"gcd": CONFIG}}), encoding="utf-8")
    _, gold = loaded(tmp_path, {"dataset": "gcd", "question": question, "expected_answer": answer})
    assert gold.value == {"answer": answer, "entry": {"dataset": "gcd", "config": CONFIG, "index": 2}}


def test_a_question_that_this_version_does_not_make_has_no_entry(tmp_path):
    row = {"dataset": "gcd", "question": "Find the gcd of 4 and 6.", "expected_answer": "2", "config": CONFIG}
    assert loaded(tmp_path, row)[1].value == {"answer": "2"}


@pytest.mark.parametrize("dataset", ["binary_matrix", "spiral_matrix", "string_insertion", "n_queens"])
def test_no_answer_is_evaluated(tmp_path, dataset):
    mark = tmp_path / "mark"
    scored(dataset, f"open({str(mark)!r}, 'w')")
    assert not mark.exists()


@pytest.mark.parametrize("dataset", ["simple_integration", "intermediate_integration", "countdown", "puzzle24"])
@pytest.mark.parametrize(
    "attack",
    [
        "open({mark!r}, 'w')",
        "Integer(1).__class__",
        "[open({mark!r}, 'w') for x in [1]][0]",
        "sin(open({mark!r}, 'w'))",
    ],
)
def test_no_formula_is_evaluated_as_code(tmp_path, dataset, attack):
    mark = tmp_path / "mark"
    assert scored(dataset, attack.format(mark=str(mark))) < 0.5
    assert not mark.exists()


def test_a_verifier_that_computes_on_and_on_is_ended_and_the_next_call_works(monkeypatch):
    monkeypatch.setattr("raydebm.tasks.reasoning_gym.sources.SCORE_CPU_S", 2.0)
    with pytest.raises(LibraryError, match="more than 2 s of CPU time"):
        scored("simple_integration", "9**9**9**9")
    question, answer = entries_of("simple_integration", CONFIG)[1][0]
    assert score_of("simple_integration", CONFIG, 0, question=question, answer=answer) == 1.0


def test_an_entry_of_another_question_is_not_scored():
    with pytest.raises(LibraryError, match="another question"):
        score_of("gcd", CONFIG, 0, question="What?", answer="1")


@pytest.mark.parametrize(("dataset", "config"), [("no_such", {}), ("gcd", {"no_such": 1}), ("gcd", {"size": -1})])
def test_a_data_set_that_cannot_be_made_is_an_error(dataset, config):
    with pytest.raises(LibraryError):
        entries_of(dataset, config)
