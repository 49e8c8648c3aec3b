"""The requests of a recipe's passes, and what it says about waves before anything is sent."""

import dataclasses
from itertools import islice

import pytest

from raydebm.config import parse_recipe
from raydebm.generators.requests import PassRequests, RequestsByProblem
from raydebm.records import Problem
from raydebm.tasks import get_task


def passes(*, task="gsm8k", names="ab", kind="openai", **generation):
    generators = [{"kind": kind, "name": name, "model": "m"} for name in names]
    tree = {"name": "t", "task": {"name": task}, "generators": generators, "generation": generation}
    return PassRequests(recipe=parse_recipe(tree), task=get_task(task))


def later(**changes):
    problem = Problem(problem_id="p", task="gsm8k", prompt="6 x 7?", data={})
    chat = ({"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "41"}, REMARK)
    requests = dataclasses.replace(passes(), **changes).later(problem, 2, chat)
    return "".join("f" if request.messages[-1] == REMARK else "n" for request in requests), requests


REMARK = {"role": "user", "content": "Check each step again."}


@pytest.mark.parametrize(
    ("share", "kinds"), [(0.0, "ffffffff"), (0.25, "fffnfffn"), (0.5, "fnfnfnfn"), (1.0, "nnnnnnnn")]
)
def test_a_share_of_a_later_pass_sees_no_feedback(share, kinds):
    assert later(fresh_share=share)[0] == kinds


def test_a_smaller_later_pass_is_the_beginning_of_a_larger_one():
    assert later(fresh_share=0.4, num_regenerate=3)[1] == later(fresh_share=0.4, num_regenerate=8)[1][:3]


def test_fresh_requests_of_a_later_pass_are_the_first_prompt_with_a_seed_of_their_own():
    problem = Problem(problem_id="p", task="gsm8k", prompt="6 x 7?", data={})
    made = passes(num_samples=2)
    first, again = made.first(problem)[:2], dataclasses.replace(made, fresh_share=1.0).later(problem, 2, (REMARK,))[:2]
    assert [request.messages for request in first] == [request.messages for request in again]
    assert not {request.seed for request in first} & {request.seed for request in again}


@pytest.mark.parametrize("task", ["taco", "travelplanner"])
def test_answers_that_cannot_be_compared_are_sampled_at_once_and_it_is_said(task):
    pass_requests = passes(task=task, waves=[4, 8])
    assert pass_requests.waves is None
    assert f"task '{task}'" in pass_requests.remarks_on_waves[0]


def test_a_first_wave_without_every_generator_is_remarked_on():
    assert "begin with 3 or more" in passes(names="abc", waves=[2, 8]).remarks_on_waves[0]


def test_requests_of_many_problems_are_made_as_they_are_taken():
    made = []

    def make(problem):
        made.append(problem.problem_id)
        return [f"{problem.problem_id}-{number}" for number in range(2)]

    requests = RequestsByProblem([Problem(task="t", problem_id=name, prompt="x") for name in "pqr"], make)

    assert len(requests) == 6
    made.clear()
    assert list(islice(requests, 3)) == ["p-0", "p-1", "q-0"]
    assert made == ["p", "q"]
    assert len(list(requests)) == 6
