"""Programs on public inputs: findings, keys of equal behaviour, and programs that want to do harm."""

import math
from dataclasses import replace

import pytest
import task_data
from task_data import HASTY

import raydebm.tasks.sandbox
from raydebm.decision.feedback import feedback_text
from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import Candidate, ScoredCandidate
from raydebm.tasks.taco import Taco
from raydebm.tasks.taco.behaviour import Program, behaviour_of
from raydebm.tasks.taco.calls import PublicTest
from raydebm.tasks.taco.sources import problem_of
from raydebm.testing import check

PATIENT = replace(task_data.PATIENT, output_bytes=task_data.MIB)
DOUBLE = (
    PublicTest(function=None, given="2\n", expected="4"),
    PublicTest(function=None, given="21\n", expected="42"),
)
CALLS = (
    PublicTest(function="f", given="(2,)", expected="4"),
    PublicTest(function="f", given="(21,)", expected="42"),
)
RIGHT = "print(2 * int(input()))"
RIGHT_FUNCTION = "def f(n):\n    return 2 * n"


@pytest.fixture(scope="module")
def sandbox(isolated):
    return isolated(PATIENT)


@pytest.fixture
def observed(sandbox):
    def run(code, tests=DOUBLE, *, limits=PATIENT, function=None, head=""):
        program = Program(code=code, function=function, head=head)
        return behaviour_of(program, tests, sandbox=sandbox, limits=limits)

    return run


def penalty(behaviour):
    return math.fsum(finding.penalty for finding in behaviour.findings)


def messages(behaviour):
    return [finding.message.format_map(finding.values) for finding in behaviour.findings]


def calls(*pairs):
    return tuple(PublicTest(function="f", given=given, expected=known) for given, known in pairs)


@pytest.mark.parametrize(
    ("code", "tests", "share"),
    [
        (RIGHT, DOUBLE, 0.0),
        ("print(4)", DOUBLE, 0.5),
        ("print(", DOUBLE, 1.0),
        (RIGHT_FUNCTION, CALLS, 0.0),
        ("def f(n):\n    return 4", CALLS, 0.5),
        ("def g(n):\n    return 4", CALLS, 1.0),
        ("def f(n):\n    return 42 if n == 21 else 1 / 0", CALLS, 0.5),
    ],
)
def test_the_penalty_is_the_share_of_failed_tests(observed, code, tests, share):
    assert penalty(observed(code, tests)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("returned", "expected", "share"),
    [
        ("0.1 + 0.2", "0.3", 0.0),
        ("10**400", "1.5", 1.0),
        ("(1, 2)", "[1, 2]", 1.0),
        ("{'a': (1,)}", "{'a': (1,)}", 0.0),
        ("{'a': 1, 'b': 2}", "{'a': 1}", 1.0),
        ("'4'", "4", 1.0),
    ],
)
def test_values_are_equal_as_python_has_it_but_for_the_last_digits(observed, returned, expected, share):
    assert penalty(observed(f"def f(n):\n    return {returned}", calls(("(2,)", expected)))) == share


def test_an_input_without_an_expected_output_is_no_test(observed):
    assert penalty(observed("print(0)", (DOUBLE[0], replace(DOUBLE[1], expected=None)))) == 1.0
    unknown = observed("print(0)", (replace(DOUBLE[0], expected=None),))
    assert unknown.findings == ()
    assert unknown.key is not None


@pytest.mark.parametrize(
    ("code", "tests", "said"),
    [
        (
            "print('five')",
            DOUBLE[:1],
            "Public test 1 of 1: for the input '2\\n' the expected result is '4', but the program printed 'five\\n'.",
        ),
        (
            "def f(n):\n    return [n]",
            CALLS[:1],
            "Public test 1 of 1: for f(2) the expected result is 4, but the call returned [2].",
        ),
        (
            "int('x')",
            DOUBLE[:1],
            "Public test 1 of 1: for the input '2\\n' the expected result is '4', but the program ended with an error "
            "(exit code 1: ValueError: invalid literal for int() with base 10: 'x').",
        ),
        (
            "print(",
            DOUBLE,
            "The program is not valid Python (SyntaxError: '(' was never closed (solution.py, line 1)), "
            "on every input.",
        ),
        (
            "def f(n):\n    yield n",
            CALLS[:1],
            "Public test 1 of 1: for f(2) the expected result is 4, but the call returned generator, "
            "which is not a plain value.",
        ),
    ],
)
def test_a_message_names_input_expected_and_got(observed, code, tests, said):
    assert messages(observed(code, tests)) == [said]


def test_messages_are_short_lines_of_printable_text(observed):
    code = "import sys\nsys.stdout.buffer.write(b'\\x1b[31m\\xff' + b'a\\n' * 100_000)"
    [message] = messages(
        observed(code, (PublicTest(function=None, given="\ud83d" + "9" * 5_000 + "\n", expected="1\n2"),))
    )
    assert message.isprintable()
    assert len(message) < 800
    message.encode()


@pytest.mark.parametrize(
    ("one", "other", "tests"),
    [
        (RIGHT, "n = int(input())\nprint(n + n)", DOUBLE),
        (RIGHT, "print(2 * int(input()), '\\n\\n')", DOUBLE),
        (RIGHT_FUNCTION, "def f(n):\n    return float(2 * n)", CALLS),
        ("def f(n):\n    return {1, 2, 3}", "def f(n):\n    return {3, 2, 1}", CALLS),
        ("def f(n):\n    return 0.1 + 0.2", "def f(n):\n    return 0.3", CALLS),
    ],
)
def test_programs_that_do_the_same_share_a_key(observed, one, other, tests):
    assert observed(one, tests).key == observed(other, tests).key != None  # noqa: E711


@pytest.mark.parametrize(
    ("one", "other", "tests"),
    [
        (RIGHT, "print(3 * int(input()))", DOUBLE),
        ("print(1)\nprint(2)", "print(1, 2)", DOUBLE),
        (RIGHT, "n = int(input())\nprint(2 * n) if n < 9 else 1 / 0", DOUBLE),
        ("def f(n):\n    return [n]", "def f(n):\n    return (n,)", CALLS),
        ("def f(n):\n    return '2'", "def f(n):\n    return 2", CALLS),
    ],
)
def test_programs_that_differ_on_one_input_do_not(observed, one, other, tests):
    assert observed(one, tests).key != observed(other, tests).key


@pytest.mark.parametrize(
    ("code", "tests", "limits"),
    [
        ("1 / 0", DOUBLE, PATIENT),
        ("print()", DOUBLE, PATIENT),
        ("while True: print(4)", DOUBLE, PATIENT),
        ("def f(n):\n    while True: pass", CALLS, HASTY),
        ("def f(n):\n    return (n for _ in [])", CALLS, PATIENT),
    ],
)
def test_a_program_that_does_nothing_on_any_input_has_no_key(observed, code, tests, limits):
    behaviour = observed(code, tests, limits=limits)
    assert behaviour.key is None
    assert penalty(behaviour) == pytest.approx(1.0)


def test_after_a_test_that_had_to_be_stopped_no_other_is_run(observed):
    tests = (*calls(("(1,)", "1")), *CALLS)
    said = messages(observed("def f(n):\n    while n == 1: pass\n    return 2 * n", tests, limits=HASTY))
    assert said[0].startswith("Public test 1 of 3: for f(1) the expected result is 1, but the call did not end in time")
    assert said[1:] == ["2 of 3 public tests were not run, because an earlier one had to be stopped."]


def test_the_head_of_the_prompt_is_there_for_programs_that_continue_it(observed):
    head = "from math import sqrt\n\ndef f(n):\n"
    tests = calls(("(4,)", "2.0"))
    assert penalty(observed("    return sqrt(n)", tests, function="f", head=head)) == 0.0
    assert penalty(observed("def f(n):\n    return sqrt(n)", tests, function="f", head=head)) == 0.0


def test_files_of_one_run_are_not_there_for_the_next(observed):
    code = "import os\nprint(4 if os.path.exists('mark') else int(input()) * 2)\nopen('mark', 'w').close()"
    assert penalty(observed(code)) == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "def f(n):\n    a = []\n    a.append(a)\n    return a",
        "def f(n):\n    return 10**100_000",
        "class V(int):\n    def __eq__(self, other):\n        return True\ndef f(n):\n    return V(5)",
        "def f(n):\n    import os\n    os._exit(0)",
        "def f(n):\n    return float('nan')",
        'import os\nos.write(3, b\'{"value": ["i", "0x4"]}\\n\')\ndef f(n):\n    return 5',
    ],
)
def test_hostile_functions_fail_their_tests(observed, code):
    behaviour = observed(code, CALLS)
    assert penalty(behaviour) == pytest.approx(1.0)
    assert all(len(message) < 800 for message in messages(behaviour))


@pytest.fixture
def problem():
    return problem_of("Double it.", given=[{"input": "2", "output": "4"}, {"input": "21", "output": "42"}])


def report_of(code, problem, task=None):
    return check(task or Taco(), problem, f"```python\n{code}\n```")


def test_a_report_has_the_violations_and_the_key_of_one_run(sandbox, problem, monkeypatch):
    runs = []
    run = raydebm.tasks.sandbox.Session.run
    monkeypatch.setattr(
        raydebm.tasks.sandbox.Session, "run", lambda *args, **kwargs: runs.append(1) or run(*args, **kwargs)
    )
    task = Taco()
    report = report_of("print(4)", problem, task)
    assert (report.penalty, report.proof, [v.constraint for v in report.violations]) == (0.5, None, ["public tests"])
    assert report.vote_key.startswith("behaviour ")
    assert len(runs) == 2  # one per test
    assert report_of("print(4)", problem, task) == report
    assert len(runs) == 2


def test_a_program_that_crashes_everywhere_votes_by_its_text(sandbox, problem):
    task = Taco()
    crashing = [task.vote_key(problem, code) for code in ("1 / 0", "1/0  # again", "[][0]")]
    assert crashing[0] == crashing[1] != crashing[2]


def test_the_feedback_of_a_pass_names_the_failed_test(sandbox, problem):
    candidate = Candidate(candidate_id="c", task="taco", problem_id=problem.problem_id, generator="g", text="print(4)")
    report = check_candidate(Taco(), problem, candidate)
    rule = "- Public test 2 of 2: for the input '21\\n' the expected result is '42', but the program printed '4\\n'."
    said = feedback_text(Taco(), ScoredCandidate(candidate=candidate, report=report, energies=None))
    assert said == (
        f"Your program fails these tests:\n{rule}\nFind the mistake and correct it. Reply with the whole corrected "
        "program in one fenced block that starts with ```python."
    )


def test_without_isolation_a_candidate_with_public_tests_cannot_be_checked(monkeypatch, problem):
    monkeypatch.setattr("raydebm.tasks.sandbox.isolated_starts", tuple)
    raydebm.tasks.sandbox._best_start.cache_clear()
    try:
        report, without = report_of(RIGHT, problem), report_of(RIGHT, problem_of("?"))
    finally:
        raydebm.tasks.sandbox._best_start.cache_clear()
    assert (report.penalty, report.vote_key) == (math.inf, None)
    assert "cannot be isolated" in report.error
    assert (without.penalty, without.error) == (0.0, None)
