"""Reasoning Gym: where answers stand, what makes two the same, who judges them, and where questions come from."""

import pytest
from task_data import label, write

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Verdict
from raydebm.tasks import reasoning_gym
from raydebm.tasks.libraries import LibraryError
from raydebm.tasks.reasoning_gym import ReasoningGym, problem_of, sources
from raydebm.tasks.reasoning_gym.answers import find_answer, normal_form

TASK = ReasoningGym()
GCD = "Find the greatest common divisor of 36 and 60."


def judged(question, text, **gold):
    problem = problem_of(question)
    known = Gold(task=TASK.name, problem_id=problem.problem_id, value={"answer": None, **gold})
    return label(TASK, problem, known, text)


@pytest.fixture
def _without_package(monkeypatch):
    monkeypatch.setattr(sources, "is_installed", lambda: False)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So it is <answer> 42 </answer>.", "42"),
        ("<answer>1</answer> No: <answer>2</answer>", "2"),
        ("I write <answer> tags at the end. <answer>7</answer>", "7"),
        ("<answer>1</answer> and then <answer>cut off", "1"),
        ("<answer></answer>", None),
        ("The answer is 42.", None),
        ("<answer>" * 200_000, None),
    ],
)
def test_the_answer_is_the_last_complete_part(text, answer):
    assert find_answer(text) == answer


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("8.0", "8"),
        ("1,234.50", "1234.5"),
        ("0x0B1d", "0xb1d"),
        ("a   b", "a b"),
        ('["a", "b"]', "['a','b']"),
        ("(1, 2)", "[1,2]"),
        ('{"0": 1}', "{0: 1}"),
        ("1 2 \n3 4", "1 2\n3 4"),
    ],
)
def test_answers_that_mean_the_same_have_one_form(first, second):
    assert normal_form(first) == normal_form(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0101", "101"),
        ("12", "1 2"),
        ("A B", "a b"),
        ("[1, NaN]", "[1, Infinity]"),
        ("1   2\n3", "1 2\n3"),
    ],
)
def test_answers_that_mean_something_else_have_another(first, second):
    assert normal_form(first) != normal_form(second)


@pytest.mark.parametrize("text", ["[" * 30_000, "(" * 500, "{1, 2}", "[b'x']", "[1, 1e999]", "[", "{'a': {1}}"])
def test_what_is_no_list_or_map_stays_text(text):
    assert normal_form(text) == text


@pytest.mark.parametrize(("answer", "verdict"), [("12.0", Verdict.CORRECT), ("6", Verdict.INCORRECT)])
def test_the_expected_answer_is_the_label_where_no_verifier_is_at_hand(answer, verdict):
    assert judged(GCD, f"<answer>{answer}</answer>", answer="12").verdict is verdict


def test_without_reference_answer_and_verifier_there_is_no_label():
    judgement = judged("Solve this cube.", "<answer>U R</answer>")
    assert judgement.verdict is Verdict.UNLABELED
    assert "no reference answer" in judgement.reason


def test_a_verifier_that_fails_gives_no_label(monkeypatch):
    def lost(*_, **__):
        raise LibraryError("it took more than 10 s")

    monkeypatch.setattr(reasoning_gym, "score_of", lost)
    judgement = judged("Which?", "<answer>x</answer>", entry={"dataset": "gcd", "config": {"seed": 1}, "index": 0})
    assert judgement.verdict is Verdict.UNLABELED
    assert "it took more than 10 s" in judgement.reason


@pytest.mark.usefixtures("_without_package")
def test_data_sets_take_turns_so_that_a_limit_takes_some_of_each(tmp_path):
    rows = [{"question": f"{name} {n}?", "expected_answer": "1", "dataset": name} for name in "ab" for n in range(3)]
    pairs = TASK.load("train", source=write(tmp_path / "problems.jsonl", *rows), limit=4)
    assert [problem.prompt for problem, _ in pairs] == ["a 0?", "b 0?", "a 1?", "b 1?"]


@pytest.mark.usefixtures("_without_package")
def test_without_the_package_questions_load_and_a_warning_says_so_once(tmp_path, caplog):
    rows = [{"question": f"{n}?", "expected_answer": "1", "dataset": "gcd", "config": {"seed": 1}} for n in range(3)]
    golds = [gold.value for _, gold in TASK.load("train", source=write(tmp_path / "problems.jsonl", *rows))]
    assert golds == [{"answer": "1"}] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "questions are judged by their expected answer, not by reasoning-gym's verifier: the package is not installed "
        "(pip install 'raydebm[reasoning-gym]')"
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"expected_answer": "1"}, "field 'question' is missing"),
        ({"question": "  ", "expected_answer": "1"}, "the question is empty"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, message):
    with pytest.raises(TaskDataError, match=message) as error:
        list(TASK.load("train", source=write(tmp_path / "problems.jsonl", row)))
    assert "problems.jsonl:1" in str(error.value)


@pytest.mark.parametrize(
    "source",
    ["generate", "generate:gcd?size=many", "generate:"],
)
def test_an_unreadable_generator_says_how_it_is_written(source):
    with pytest.raises(TaskDataError, match="size"):
        list(TASK.load("train", source=source))


@pytest.mark.parametrize("content", ["{", "[]", '{"configs": 3}'])
def test_bad_settings_beside_the_problems_are_an_error(tmp_path, content):
    source = write(tmp_path / "problems_x.jsonl", {"question": "Q?", "expected_answer": "1"})
    (tmp_path / "configs_x.json").write_text(content, encoding="utf-8")
    with pytest.raises(TaskDataError, match=r"configs_x\.json"):
        list(TASK.load("train", source=source))
