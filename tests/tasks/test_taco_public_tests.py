"""Which tests of a problem are public, in which forms they can be given, and that they are shown."""

import json

import pytest
from task_data import write

from raydebm.errors import TaskDataError
from raydebm.records import Problem
from raydebm.tasks.taco import Taco
from raydebm.tasks.taco.calls import PublicTest
from raydebm.tasks.taco.public_tests import MAX_TESTS, public_tests
from raydebm.tasks.taco.sources import problem_of

STATEMENT = "Double it.\n\n-----Example-----\nInput\n2\n\nOutput\n4\n"
SAMPLE = PublicTest(function=None, given="2\n", expected="4")


def given(*tests, function=None):
    return problem_of("Double it.", function=function, given=tests)


def only(tmp_path, row):
    [pair] = Taco().load("test", source=write(tmp_path / "t.jsonl", row))
    return pair


def test_where_several_outputs_are_right_only_the_input_counts():
    problem = problem_of(STATEMENT + "\nIf there are several answers, print any of them.\n")
    assert [(test.given, test.expected) for test in public_tests(problem)] == [("2\n", None)]


def test_a_docstring_gives_its_examples():
    problem = problem_of('def f(x):\n    """\n    >>> f(2)\n    4\n    """', function="f")
    assert public_tests(problem) == (PublicTest(function="f", given="(2,)", expected="4"),)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (given({"input": "2", "output": "4"}), SAMPLE),
        (given({"input": "2\n"}), PublicTest(function=None, given="2\n", expected=None)),
        (given("assert f(2) == (4,)", function="f"), PublicTest(function="f", given="(2,)", expected="(4,)")),
        (given("assert f(2) == 4"), PublicTest(function="f", given="(2,)", expected="4")),
    ],
)
def test_every_form_of_a_given_test(problem, expected):
    assert public_tests(problem) == (expected,)


@pytest.mark.parametrize(
    ("tests", "function", "message"),
    [
        ("assert f(2) == 4", None, "public_tests must be a list of tests"),
        (["print(2)"], "f", 'test 1 must be .* got "print'),
        ([{"input": "2", "output": 4}], None, "test 1 must be"),
        ([{"input": "2", "output": "4", "weight": 2}], None, "test 1 must be"),
        ([{"input": "2", "output": "4"}], "f", "test 1 must be"),
        ([{"input": "2", "output": "4"}, "assert f(2) == 4"], None, "test 2 must be .* all of one kind"),
    ],
)
def test_what_cannot_be_read_is_named(tests, function, message):
    problem = Problem(task="taco", problem_id="p", prompt="?", data={"function": function, "public_tests": tests})
    with pytest.raises(TaskDataError, match=message):
        public_tests(problem)
    with pytest.raises(TaskDataError, match=message):
        Taco().messages(problem)


def test_given_tests_come_first_and_no_more_are_run_than_allowed():
    many = [{"input": str(number), "output": "?"} for number in range(MAX_TESTS - 1, 30)]
    tests = public_tests(problem_of(STATEMENT, given=many))
    assert [test.given for test in tests] == [entry["input"] + "\n" for entry in many[:MAX_TESTS]]


def test_an_input_that_is_given_and_stated_is_one_test():
    tests = public_tests(problem_of(STATEMENT, given=[{"input": "2", "output": "5"}, {"input": "3"}]))
    assert [(test.given, test.expected) for test in tests] == [("2\n", "5"), ("3\n", None)]


def test_prompts_show_what_is_given_beside_the_statement():
    [_, asked] = Taco().messages(given("assert f(2) == (4,)", "assert f(3) == 6", function="f"))
    assert "assert f(2) == (4,)\nassert f(3) == 6" in asked["content"]
    [_, asked] = Taco().messages(given({"input": "1\n2\n", "output": "3"}, {"input": "9"}))
    assert "Sample input:\n```text\n1\n2\n```\nSample output:\n```text\n3\n```" in asked["content"]
    assert "9" not in asked["content"]


def test_a_statement_that_shows_its_own_is_the_whole_prompt():
    problem = problem_of(STATEMENT)
    assert Taco().messages(problem)[-1]["content"] == problem.prompt


def test_of_mbpp_the_given_test_is_public_and_the_others_are_not(tmp_path):
    row = {
        "prompt": 'def f(x):\n    """Double it."""\n',
        "prompt_multiple": None,
        "entry_point": "f",
        "given_tests": ["assert f(2) == 4", "assert check(root) == f(1)"],
        "test": "def check(candidate):\n    assert f(2) == 4\n    assert f(3) == 6\ncheck(f)\n",
    }
    problem, gold = only(tmp_path, row)
    assert public_tests(problem) == (PublicTest(function="f", given="(2,)", expected="4"),)
    assert "f(3)" not in json.dumps(dict(problem.data)) + str(Taco().messages(problem))
    assert gold.value["test"] == row["test"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Double it.", [("5\n", "10")]),
        (STATEMENT, [("2\n", "4")]),
    ],
)
def test_of_apps_one_sample_is_public_where_the_statement_shows_none(tmp_path, question, expected):
    """The recorded prompts showed the first; the second is a hidden test."""
    samples = [{"input": "5", "output": [10]}, {"input": "6", "output": [12]}]
    problem, gold = only(tmp_path, {"question": question, "sample_io": samples, "test_list": samples})
    assert [(test.given, test.expected) for test in public_tests(problem)] == expected
    assert len(gold.value["tests"]) == 2


def test_hidden_tests_of_taco_stay_hidden(tmp_path):
    content = json.dumps({"inputs": ["9"], "outputs": ["18"]})
    problem, _ = only(tmp_path, {"question": STATEMENT, "input_output": content})
    assert public_tests(problem) == (SAMPLE,)
    assert "18" not in json.dumps(dict(problem.data))


def test_most_problems_of_the_recorded_files_have_some(shared_data):
    shares = {}
    for name in ("humaneval", "mbpp", "apps150"):
        pairs = list(Taco().load("test", source=str(shared_data / "code" / f"problems_{name}.jsonl.gz")))
        tested = [any(test.expected is not None for test in public_tests(problem)) for problem, _ in pairs]
        shares[name] = sum(tested) / len(tested)
    assert shares["humaneval"] > 0.8
    assert shares["mbpp"] > 0.7
    assert shares["apps150"] > 0.9
