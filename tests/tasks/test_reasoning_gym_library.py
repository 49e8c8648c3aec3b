"""The package reasoning-gym behind the task: its questions, its verifiers, and answers that attack them."""

import json

import pytest

from raydebm.records import Candidate, Verdict
from raydebm.tasks.labels import label_candidate
from raydebm.tasks.reasoning_gym import ReasoningGym
from raydebm.tasks.reasoning_gym.library import Library, LibraryError, is_installed, library

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs reasoning-gym (pip install 'raydebm[reasoning-gym]')")

CONFIG = {"seed": 3, "size": 4}
TASK = ReasoningGym()


@pytest.fixture(scope="module")
def shared():
    yield library()
    library().close()


def scored(shared, dataset, answer):
    question = shared.entries(dataset, CONFIG).questions[0][0]
    return shared.score(dataset, CONFIG, 0, question=question, answer=answer)


def loaded(folder, row):
    file = folder / "problems_x.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    [(problem, gold)] = TASK.load("train", source=str(file))
    return problem, gold


def test_generated_questions_are_the_same_in_every_process(shared):
    other = Library()
    try:
        assert other.entries("word_ladder", CONFIG) == shared.entries("word_ladder", CONFIG)
    finally:
        other.close()


def test_a_verifier_judges_by_meaning_where_texts_differ(tmp_path, shared):
    question, _ = shared.entries("complex_arithmetic", CONFIG).questions[0]
    row = {"dataset": "complex_arithmetic", "question": question, "expected_answer": "?", "config": CONFIG}
    problem, gold = loaded(tmp_path, row)
    answer = shared.entries("complex_arithmetic", CONFIG).questions[0][1]
    text = f"<answer>({answer})</answer>"
    candidate = Candidate(candidate_id="c", task=TASK.name, problem_id=problem.problem_id, generator="g", text=text)
    assert label_candidate(TASK, problem, gold, candidate).verdict is Verdict.CORRECT


def test_recorded_questions_find_their_entry_by_the_settings_beside_them(tmp_path, shared):
    question, answer = shared.entries("gcd", CONFIG).questions[2]
    (tmp_path / "configs_x.json").write_text(json.dumps({"configs": {"gcd": CONFIG}}), encoding="utf-8")
    _, gold = loaded(tmp_path, {"dataset": "gcd", "question": question, "expected_answer": answer})
    assert gold.value == {"answer": answer, "entry": {"dataset": "gcd", "config": CONFIG, "index": 2}}


def test_a_question_that_this_version_does_not_make_has_no_entry(tmp_path):
    row = {"dataset": "gcd", "question": "Find the gcd of 4 and 6.", "expected_answer": "2", "config": CONFIG}
    assert loaded(tmp_path, row)[1].value == {"answer": "2"}


@pytest.mark.parametrize("dataset", ["binary_matrix", "spiral_matrix", "string_insertion", "n_queens"])
def test_no_answer_is_evaluated(shared, tmp_path, dataset):
    mark = tmp_path / "mark"
    scored(shared, dataset, f"open({str(mark)!r}, 'w')")
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
def test_no_formula_is_evaluated_as_code(shared, tmp_path, dataset, attack):
    mark = tmp_path / "mark"
    assert scored(shared, dataset, attack.format(mark=str(mark))) < 0.5
    assert not mark.exists()


def test_a_verifier_that_computes_on_and_on_is_ended_and_the_next_call_works():
    quick = Library(score_cpu_s=2.0)
    try:
        question, answer = quick.entries("simple_integration", CONFIG).questions[0]
        with pytest.raises(LibraryError, match="more than 2 s of CPU time"):
            quick.score("simple_integration", CONFIG, 0, question=question, answer="9**9**9**9")
        assert quick.score("simple_integration", CONFIG, 0, question=question, answer=answer) == 1.0
    finally:
        quick.close()


def test_an_entry_of_another_question_is_not_scored(shared):
    with pytest.raises(LibraryError, match="another question"):
        shared.score("gcd", CONFIG, 0, question="What?", answer="1")


@pytest.mark.parametrize(("dataset", "config"), [("no_such", {}), ("gcd", {"no_such": 1}), ("gcd", {"size": -1})])
def test_a_data_set_that_cannot_be_made_is_an_error(shared, dataset, config):
    with pytest.raises(LibraryError):
        shared.entries(dataset, config)
