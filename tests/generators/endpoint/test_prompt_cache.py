"""Prompts that endpoints keep: what is sent, in which order, and what cached tokens cost."""

import asyncio

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators import EndpointAccess
from raydebm.generators.endpoint.api_keys import Secret
from raydebm.generators.endpoint.chat_body import chat_body
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.endpoint.rate_limits import Backoff
from raydebm.generators.protocol import collect
from raydebm.generators.requests import cost_of

PRICES = {
    "usd_per_million_prompt_tokens": 1e6,
    "usd_per_million_completion_tokens": 2e6,
    "usd_per_million_cached_prompt_tokens": 1e5,
}
"""A dollar, two, and ten cents per token."""


@pytest.fixture
def answer(server):
    def run(*requests, is_patient=True, **settings):
        config = OpenAIGenerator(name="g", model="m", base_url=server.url, timeout_s=60.0, **settings)

        async def answers():
            access = EndpointAccess(key=Secret(None), is_patient=is_patient)
            generator = OpenAIApiGenerator(config, access, backoff=Backoff(base_s=0.01))
            try:
                return await collect(generator, requests)
            finally:
                await generator.aclose()

        return asyncio.run(answers())

    return run


def body_of(request, **settings):
    return chat_body(OpenAIGenerator(name="g", model="m", **settings), [request], logprobs=False)


def test_equal_prompts_have_one_key_and_others_another(ask):
    first, second, other = (
        body_of(request, prompt_cache="key")["prompt_cache_key"]
        for request in (ask("p"), ask("p", sample_index=1), ask("q"))
    )
    assert first == second != other
    assert len(first) == 32


def test_the_system_message_and_the_last_one_are_marked(ask):
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body_of(ask("p"), prompt_cache="control")["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "be brief"} | mark]},
        {"role": "user", "content": [{"type": "text", "text": "p"} | mark]},
    ]


def test_without_the_setting_a_body_has_no_hint(ask):
    body = body_of(ask("p"))
    assert "prompt_cache_key" not in body
    assert body["messages"][-1] == {"role": "user", "content": "p"}


def test_one_sample_of_each_prompt_goes_first(answer, ask, server):
    """Nothing is answered before the first samples of both prompts are there; the next ones have a while to come."""
    server.latency_s, server.may_answer = 0.1, lambda number: server.num_requests >= 2
    requests = [ask(f"{name}: ok", sample_index=index) for name in "pq" for index in range(3)]
    assert all(one.text for one in answer(*requests, prompt_cache="key"))
    assert [body["seed"] for body in server.bodies][:2] == [1000, 1000]
    assert server.in_flight_at_arrival[:2] == [1, 2]
    assert len(server.bodies) == 6


def test_a_first_sample_that_fails_lets_the_others_go(answer, ask):
    failed, good = answer(ask("p: 400", sample_index=0), ask("p: 400", sample_index=1), prompt_cache="key")
    assert "must not be empty" in failed.error
    assert "must not be empty" in good.error


@pytest.mark.parametrize("settings", [{"prompt_cache": None}, {"prompt_cache": "key", "is_patient": False}])
def test_otherwise_all_go_at_once(settings, answer, ask, server):
    server.may_answer = lambda number: server.num_requests >= 3
    assert all(one.text for one in answer(*(ask("p: ok", sample_index=index) for index in range(3)), **settings))


def test_cached_tokens_have_their_own_price(answer, ask):
    """2 of 10 tokens of the prompt at a dollar, 8 at ten cents, 20 written ones at two dollars."""
    (candidate,) = answer(ask("p: cached"), **PRICES)
    assert candidate.cost_usd == pytest.approx(2 + 0.8 + 40)


def test_without_their_own_price_cached_tokens_cost_what_others_do(answer, ask):
    prices = PRICES | {"usd_per_million_cached_prompt_tokens": None}
    assert answer(ask("p: cached"), **prices)[0].cost_usd == pytest.approx(50.0)


def test_no_more_tokens_are_cached_than_the_prompt_has():
    config = OpenAIGenerator(name="g", model="m", **PRICES)
    assert cost_of(config, 10, 0, cached_tokens=99) == pytest.approx(1.0)
