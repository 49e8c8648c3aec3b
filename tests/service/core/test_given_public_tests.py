"""Public tests that a client gives with a program's problem."""

from types import SimpleNamespace

import pytest

from raydebm.errors import ServiceError
from raydebm.service.core import read_problem
from raydebm.service.routes.bodies import TriageRequest
from raydebm.tasks import get_task
from raydebm.tasks.taco.public_tests import public_tests

RUN = SimpleNamespace(task=get_task("taco"), max_problem_chars=1_000)
BUNDLE = SimpleNamespace(tasks=("taco",), of=lambda name: SimpleNamespace(alone=RUN))


def problem_of(body):
    return read_problem(BUNDLE, "taco", TriageRequest(problem=body).problem)[2]


def test_they_are_the_tests_of_the_problem():
    problem = problem_of({"prompt": "Write f, which doubles.", "data": {"public_tests": ["assert f(2) == 4"]}})
    assert [(test.call, test.expected) for test in public_tests(problem)] == [("f(2)", "4")]
    assert "assert f(2) == 4" in get_task("taco").messages(problem)[-1]["content"]


def test_without_them_the_statement_is_read():
    problem = problem_of({"prompt": "Double it.\n\nExample\nInput\n2\nOutput\n4\n"})
    assert [(test.given, test.expected) for test in public_tests(problem)] == [("2\n", "4")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"public_tests": ["f(2) is 4"]}, "public_tests: test 1 must be"),
        ({"public_tests": "assert f(2) == 4"}, "public_tests must be a list"),
        ({"public_tests": [], "function": 7}, "function must be a name"),
    ],
)
def test_what_cannot_be_read_is_the_clients_fault(data, message):
    with pytest.raises(ServiceError, match=message) as caught:
        problem_of({"prompt": "Write f.", "data": data})
    assert caught.value.status == 422
