"""Which task takes a question that names none, by the stated rule."""

import pytest
from two_runs import LIKE_THEM, UNLIKE_THEM

from raydebm.serving.core.request import GivenProblem, read_problem
from raydebm.serving.settings.app_args import GeneralArgs
from raydebm.serving.settings.gateway import load_gateway


@pytest.fixture
def gateway(two_runs):
    return load_gateway(two_runs(general=GeneralArgs()))


def test_a_task_whose_reader_tells_its_problems_takes_them(gateway, puzzle):
    read = read_problem(gateway, "auto", puzzle)

    assert (read.task.name, read.routing.task) == ("knights_knaves", "knights_knaves")
    assert read.routing.certainty == pytest.approx(46 / 47)  # 45 known word problems, of which it reads none
    assert read.routing.reasons == ("knights_knaves can read it, and reads none of 45 known problems of other tasks",)


def test_a_question_that_is_like_a_tasks_problems_goes_there(gateway):
    read = read_problem(gateway, None, LIKE_THEM)

    assert read.task.name == "gsm8k"
    assert read.routing.reasons[0] == "gsm8k is the only task that can read it"
    assert read.routing.reasons[1].startswith("knights_knaves: ")
    assert read.routing.scorer is None


def test_a_question_that_is_like_no_known_problem_is_general(gateway):
    read = read_problem(gateway, "auto", UNLIKE_THEM)

    assert (read.task.name, read.bundle.tasks) == ("any", ("any",))
    assert read.routing.certainty == 0.95
    assert "less similar to the known problems of gsm8k" in read.routing.reasons[0]
    assert read.routing.scorer == "gsm8k"
    assert read.bundle.checkpoint == gateway.of("gsm8k").checkpoint
    assert read.bundle.versions["checkpoint"] == gateway.of("gsm8k").versions["checkpoint"]


def test_without_the_general_task_the_reader_takes_it_all_the_same(two_runs):
    read = read_problem(load_gateway(two_runs()), "auto", UNLIKE_THEM)

    assert (read.task.name, read.routing.task) == ("gsm8k", "gsm8k")


def test_a_named_task_is_not_chosen(gateway):
    read = read_problem(gateway, "gsm8k", UNLIKE_THEM)

    assert (read.task.name, read.routing) == ("gsm8k", None)


def test_the_general_task_by_name_still_says_whose_ensemble_scores(gateway):
    read = read_problem(gateway, "any", LIKE_THEM)

    assert (read.routing.task, read.routing.certainty, read.routing.scorer) == ("any", 1.0, "gsm8k")
    assert read.routing.reasons == ("the request names the task",)


def test_given_data_is_read_by_the_tasks_too(gateway, puzzle):
    read = read_problem(gateway, None, GivenProblem(prompt=puzzle, problem_id="own"))

    assert (read.task.name, read.problem.problem_id) == ("knights_knaves", "own")
