"""Example calls in docstrings and statements: what counts, and that no text is guessed at."""

import ast

import pytest
from task_data import cpu_within

from raydebm.tasks.taco.calls import PublicTest, asserted_call, calls_in

HEAD = 'def f(x):\n    """{}\n    """\n'


def read(text, function="f"):
    return [
        (ast.literal_eval(call.given), ... if call.expected is None else ast.literal_eval(call.expected))
        for call in calls_in(text, function)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("f(2) == 4", [((2,), 4)]),
        ("f(2) = 4", [((2,), 4)]),
        ("f(2) should return 4.", [((2,), 4)]),
        ("f(2)   # returns 'db1111db'", [((2,), "db1111db")]),
        ("* f(2, [1, (2, 3)]) => {'a': None}", [((2, [1, (2, 3)]), {"a": None})]),
        (">>> f(-1.5) == True", [((-1.5,), True)]),
        ("f('a') ==> 'No' (it starts with a letter)", [(("a",), "No")]),
        ("f([]) == [] and f([1]) == [1]", [(([],), ...), (([1],), [1])]),
    ],
)
def test_one_line(line, expected):
    assert read(HEAD.format(line)) == expected


@pytest.mark.parametrize(
    "line",
    [
        "f(2) -> 19 - 5 - 6 = 8",
        "f(2)",
        'f(2) == ""aaa"',
    ],
)
def test_a_result_in_doubt_leaves_the_input_alone(line):
    assert read(HEAD.format(line)) == [((2,), ...)]


@pytest.mark.parametrize(
    "line",
    [
        "f(aa) => False",
        "f(x=2) == 4",
        "module.f(2) == 4",
        "f(2",
    ],
)
def test_no_call_with_literal_arguments(line):
    assert read(HEAD.format(line)) == []


def test_steps_of_a_definition_are_no_examples():
    """HumanEval 130: tri(n) = ..., tri(4) = 3."""
    assert read(HEAD.format("f(1) = 3\n    f(n) = f(n - 1) + 1\n    f(5) == 7")) == [((5,), 7)]


def test_an_interactive_session():
    shown = ">>> f([1, 2])\n    [2,\n     4]\n    >>> f([])\n    >>> f('a')\n    'aa'\n\n    And so on."
    assert read(HEAD.format(shown)) == [(([1, 2],), [2, 4]), (([],), None), (("a",), "aa")]


def test_a_session_that_ends_with_the_docstring():
    assert read('def f(x):\n    """\n    >>> f(2)\n    4\n    """\n\nComplete the function `f`.') == [((2,), 4)]


def test_an_error_in_a_session_gives_the_input_alone():
    assert read(HEAD.format(">>> f(0)\n    Traceback (most recent call last):\n    ValueError")) == [((0,), ...)]


def test_only_the_docstring_of_the_function_counts():
    text = 'def g(x):\n    """f(1) == 5"""\n    return f(3)\n\ndef f(x):\n    """f(2) == 4"""\n'
    assert read(text) == [((2,), 4)]


def test_a_statement_without_a_docstring_is_read_as_a_whole():
    text = "Double it.\n```python\nf(2) # 4\n```\nStarter code:\n```python\ndef f(n):\n```"
    assert read(text) == [((2,), 4)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("assert f(1, 'a') == (2,)", PublicTest(function="f", given="(1, 'a')", expected="(2,)")),
        ("assert (f(1)) == 2", PublicTest(function="f", given="(1,)", expected="2")),
        ("assert f(1) is None", PublicTest(function="f", given="(1,)", expected="None")),
    ],
)
def test_assertions(source, expected):
    assert asserted_call(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "f(1) == 2",
        "assert f(root) == 2",
        "assert f(1) == __import__('os').system('true')",
        "assert f(1) == 2\nimport os",
        "assert a.f(1) == 2",
        "",
        "assert f(" + "[" * 3000 + "]" * 3000 + ") == 1",
    ],
)
def test_anything_else_is_no_assertion(source):
    assert asserted_call(source) is None


def test_many_parentheses_take_no_long_time():
    with cpu_within(5):
        list(calls_in("f(" + "(" * 5_000 + ") " * 5_000, "f"))
