from dataclasses import replace

import pytest

from raydebm.config import OpenAIGenerator, TransformersGenerator
from raydebm.errors import UnknownNameError
from raydebm.generators.requests import LogProbs, estimate_cost, highest_prices, requests_for, worst_cost
from raydebm.records import Problem, Sampling

PROBLEM = Problem(task="toy", problem_id="p", prompt="?")
MESSAGES = ({"role": "user", "content": "x" * 10},)


def make(**options):
    settings = {"generator": "g", "sampling": Sampling(max_tokens=100), "samples": range(3), "run_seed": 1} | options
    return requests_for(PROBLEM, MESSAGES, **settings)


def test_one_request_per_sample():
    assert [request.sample_index for request in make(samples=range(2, 5))] == [2, 3, 4]


def test_seeds_do_not_depend_on_how_samples_are_split_into_calls():
    assert make(samples=range(3)) == [*make(samples=range(1)), *make(samples=range(1, 3))]


def test_cost_range():
    """3 requests of 10 characters: 3 estimated prompt tokens each (rounded up), 100 completion tokens at most."""
    priced = OpenAIGenerator(name="g", model="m", usd_per_million_tokens=(1.0, 10.0))
    (estimate,) = estimate_cost(make(), [priced])
    assert (estimate.num_requests, estimate.prompt_tokens, estimate.max_completion_tokens) == (3, 9, 300)
    assert (estimate.usd_low, estimate.usd_high) == pytest.approx((9e-6, 3009e-6))


def test_local_models_cost_nothing():
    (estimate,) = estimate_cost(
        make(), [TransformersGenerator(name="g", model="m"), OpenAIGenerator(name="h", model="m")]
    )
    assert (estimate.generator, estimate.usd_low, estimate.usd_high) == ("g", 0.0, 0.0)


def test_the_worst_cost_is_every_byte_a_token_and_the_completion_at_its_limit():
    (request,) = make(samples=range(1))
    dollar = OpenAIGenerator(name="g", model="m", usd_per_million_tokens=(1e6, 2e6))
    # "user" and ten characters are 14 bytes, the template adds at most 16, and 100 tokens of completion cost 2 each.
    assert worst_cost(dollar, request) == 14 + 16 + 200
    assert worst_cost(dollar, replace(request, response_format="{}")) == 14 + 16 + 200 + 2
    assert worst_cost(OpenAIGenerator(name="g", model="m"), request) is None
    assert worst_cost(TransformersGenerator(name="g", model="m"), request) == 0.0


def test_prices_put_generators_in_an_order():
    dollar = OpenAIGenerator(name="g", model="m", usd_per_million_tokens=(0.0, 1e6))
    prices = highest_prices(
        [*make(), *(replace(request, generator="h") for request in make())],
        [dollar, OpenAIGenerator(name="h", model="m"), TransformersGenerator(name="not asked", model="m")],
    )
    # 100 tokens of completion; without prices an endpoint counts as free.
    assert prices == {"g": 100.0, "h": 0.0}


def test_unknown_generator():
    with pytest.raises(UnknownNameError, match="unknown generator 'g'"):
        estimate_cost(make(), [OpenAIGenerator(name="h", model="m")])


def test_the_worst_of_a_few_tokens_is_one():
    assert LogProbs.of([-1.0, -4.0, -1.0]) == LogProbs(mean=-2.0, worst=-4.0)


def test_the_worst_of_twenty_tokens_are_two():
    assert LogProbs.of([-1.0] * 18 + [-2.0, -4.0]).worst == -3.0
