"""Samples of one prompt in one request: who goes with whom, what each is charged, and endpoints that keep not to it."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.config import OpenAIGenerator
from raydebm.generators import EndpointAccess, build_generator
from raydebm.generators.endpoint.api_keys import Secret
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.endpoint.rate_limits import Backoff, Budget
from raydebm.generators.endpoint.sample_groups import amount_shares, grouped
from raydebm.generators.journal import Journal
from raydebm.generators.protocol import collect
from raydebm.generators.replies import whole_shares
from raydebm.records import Sampling

PRICES = {"usd_per_million_prompt_tokens": 1e6, "usd_per_million_completion_tokens": 2e6}
"""A dollar and two per token."""


@pytest.fixture
def answer(server):
    """Ask the server in groups of three, one request after another; returns the candidates in the requests' order."""

    def run(*requests, journal=None, budget=None, **settings):
        config = OpenAIGenerator(
            name="g", model="m", base_url=server.url, api_key_env=None,
            **{"samples_per_request": 3, "max_in_flight": 1, "timeout_s": 60.0, **settings},
        )  # fmt: skip

        async def answers():
            access = EndpointAccess(key=Secret(None), budget=budget)
            if journal is None:
                generator = OpenAIApiGenerator(config, access, backoff=Backoff(base_s=0.01))
            else:
                generator = build_generator(config, journal=journal, access=access)
            try:
                return await collect(generator, requests)
            finally:
                await generator.aclose()

        return asyncio.run(answers())

    return run


def samples(ask, content, count):
    return [ask(content, sample_index=index) for index in range(count)]


def asked_at_once(server):
    return [body.get("n", 1) for body in server.bodies]


def texts(candidates):
    return [candidate.text for candidate in candidates]


def test_samples_of_a_prompt_share_requests_and_keep_their_identity(answer, ask, server):
    requests = samples(ask, "p: all choices", 5)
    candidates = answer(*requests)

    assert asked_at_once(server) == [3, 2]
    assert texts(candidates) == ["x", "xx", "xxx", "x", "xx"]
    assert [one.candidate_id for one in candidates] == [request.candidate_id for request in requests]
    assert [one.sample_index for one in candidates] == [0, 1, 2, 3, 4]


def test_a_request_for_several_samples_has_no_seed(answer, ask, server):
    answer(*samples(ask, "p: all choices", 4))
    assert [body.get("seed") for body in server.bodies] == [None, 1003]


def test_other_prompts_and_other_settings_are_other_requests(ask):
    first, second = samples(ask, "p", 2)
    greedy = ask("p", sample_index=2, sampling=Sampling(temperature=0.0))
    formatted = replace(second, response_format="{}")
    other_pass = replace(second, pass_index=2)
    other = ask("q")
    groups = grouped([first, greedy, formatted, other_pass, other, second], 8)
    assert groups == [(first, second), (greedy,), (formatted,), (other_pass,), (other,)]


def test_a_full_group_is_followed_by_another(ask):
    requests = samples(ask, "p", 5)
    assert list(map(len, grouped(requests, 2))) == [2, 2, 1]


def test_prompt_and_cost_are_divided_so_that_sums_hold(answer, ask):
    """10 tokens of prompt and 30 written, for texts of 1, 2 and 3 letters: 2/9, 3/9 and 4/9 of the 30."""
    candidates = answer(*samples(ask, "p: all choices", 3), **PRICES)
    assert [one.prompt_tokens for one in candidates] == [3, 3, 4]
    assert [one.completion_tokens for one in candidates] == [6, 10, 14]
    assert [one.cost_usd for one in candidates] == pytest.approx([15.0, 23.0, 32.0])


def test_the_budget_counts_a_group_once(answer, ask):
    budget = Budget(None)
    answer(*samples(ask, "p: all choices", 3), budget=budget, **PRICES)
    assert budget.spent_usd == pytest.approx(70.0)


def test_an_endpoint_that_drops_all_but_the_first_is_asked_singly_for_the_others(answer, ask, server, caplog):
    """The first request is paid for one answer; the second group is not sent as one any more."""
    requests = [*samples(ask, "p: ok", 3), *samples(ask, "q: ok", 3)]
    candidates = answer(*requests)

    assert asked_at_once(server) == [3, 1, 1, 1, 1, 1]
    assert texts(candidates) == ["answer to p with seed None"] + [
        f"answer to {name} with seed {seed}"
        for name, seed in (("p", 1001), ("p", 1002), ("q", 1000), ("q", 1001), ("q", 1002))
    ]
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("raydebm")]
    assert "does not honour `n`, so each sample of g is asked for singly" in warning


def test_an_endpoint_with_a_limit_of_its_own_goes_on_being_asked_for_several(answer, ask, server):
    candidates = answer(*samples(ask, "p: two choices", 6))
    assert asked_at_once(server) == [3, 3, 1, 1]
    assert all(texts(candidates))


def test_an_endpoint_that_refuses_n_is_asked_singly(answer, ask, server):
    requests = [*samples(ask, "p: refuses n", 3), *samples(ask, "q: refuses n", 3)]
    candidates = answer(*requests)
    assert asked_at_once(server) == [3, 3] + [1] * 6
    assert all(texts(candidates))


def test_a_bad_prompt_is_not_taken_for_a_refusal_of_n(answer, ask, server):
    """Its samples fail singly too, so that those of the next prompt still go out together."""
    candidates = answer(*samples(ask, "p: 400", 2), *samples(ask, "q: all choices", 3))
    assert asked_at_once(server) == [2, 3, 1, 1]
    assert ["messages must not be empty" in (one.error or "") for one in candidates] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_refused_group_does_not_turn_the_endpoint_off(answer, ask):
    """Four problems whose groups get a 404, which of single requests would mean all of them after the third."""
    requests = [request for name in "abcd" for request in samples(ask, f"{name}: 404 to n", 2)]
    assert all(texts(answer(*requests)))


def test_a_choice_that_broke_off_is_asked_for_again_and_the_bill_is_the_others(answer, ask, server):
    """Of the half dollar the good choice and the empty one, which is billed too, have all."""
    good, again, empty = answer(*samples(ask, "p: broken choice", 3))
    assert asked_at_once(server) == [3, 1]
    assert (good.text, again.text) == ("x", "answer to p with seed 1001")
    assert "content is empty" in empty.error
    assert good.cost_usd + empty.cost_usd == 0.5
    assert again.cost_usd is None


def test_a_group_that_fails_as_a_whole_is_error_rows_that_share_the_bill(answer, ask):
    candidates = answer(*samples(ask, "p: empty choices", 3))
    assert all("no choices" in one.error for one in candidates)
    assert [one.prompt_tokens for one in candidates] == [3, 3, 4]
    assert sum(one.cost_usd for one in candidates) == pytest.approx(0.5)


def test_after_a_kill_only_what_lacks_is_asked_together(answer, ask, server, tmp_path):
    requests = samples(ask, "p: all choices", 5)
    answer(*requests[1:3], journal=Journal(tmp_path))
    server.bodies.clear()

    candidates = answer(*requests, journal=Journal(tmp_path))

    assert asked_at_once(server) == [3]
    assert texts(candidates) == ["x", "x", "xx", "xx", "xxx"]


def test_without_the_setting_each_sample_has_its_request(answer, ask, server):
    answer(*samples(ask, "p: ok", 3), samples_per_request=1)
    assert [body["seed"] for body in server.bodies] == [1000, 1001, 1002]
    assert asked_at_once(server) == [1, 1, 1]


@given(st.integers(0, 10**9), st.lists(st.integers(1, 10**6), min_size=1))
def test_whole_shares_add_up(total, weights):
    parts = whole_shares(total, weights)
    assert sum(parts) == total
    assert min(parts) >= 0


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e6), min_size=1))
def test_shares_of_an_amount_add_up(total, weights):
    parts = amount_shares(total, weights)
    assert sum(parts) == pytest.approx(total)
    assert min(parts) >= 0


def test_without_weights_an_amount_is_divided_evenly():
    assert amount_shares(3.0, [0.0, 0.0]) == [1.5, 1.5]
