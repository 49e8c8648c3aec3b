"""Replies without a limit to their length: they cost one answer, and neither the memory nor the process."""

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators import replies
from raydebm.generators.endpoint.openai_api import EndpointAccess
from raydebm.generators.endpoint.rate_limits import Budget

TOO_LONG = "the reply is longer than 1000000 bytes and was not read to its end"


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr(replies, "MAX_REPLY_BYTES", 1_000_000)


@pytest.fixture
def answer(server, drawn):
    """Ask the server once per request and return the candidates."""

    def run(*requests, budget=None, **settings):
        config = OpenAIGenerator(name="g", model="m", base_url=server.url, api_key_env=None, **settings)
        return drawn(config, *requests, access=EndpointAccess(budget=budget))

    return run


@pytest.mark.parametrize("behaviour", ["packed", "endless"])
def test_a_reply_that_is_too_long_is_an_error_row_that_names_the_limit(behaviour, answer, ask):
    (candidate,) = answer(ask(f"p: {behaviour}"))
    assert candidate.text is None
    assert candidate.error.endswith(TOO_LONG)


def test_a_reply_that_is_too_long_is_not_asked_for_again(answer, ask, server):
    answer(ask("p: packed, ok"))
    assert server.num_requests == 1


def test_a_reply_that_is_too_long_may_be_billed(answer, ask):
    budget = Budget(1.0)
    answer(ask("p: packed"), budget=budget, usd_per_million_tokens=(1.0, 1.0))
    assert budget.left_usd < 1.0
