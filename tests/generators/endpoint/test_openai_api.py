"""The endpoint generator against a real server that misbehaves."""

import asyncio
import pickle
import time

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.errors import MissingKeyError
from raydebm.generators import replies
from raydebm.generators.endpoint.openai_api import EndpointAccess, OpenAIApiGenerator
from raydebm.generators.endpoint.rate_limits import Backoff, Budget
from raydebm.generators.endpoint.transports import Secret, environment_proxy
from raydebm.generators.journal import Journal
from raydebm.generators.requests import collect
from raydebm.records import Sampling

QUICK = Backoff(base_s=0.01)


@pytest.fixture
def answer(server, drawn):
    """Ask the server and return the candidates, in the order of the requests."""

    def run(*requests, budget=None, key="sk-secret", backoff=QUICK, **settings):
        config = OpenAIGenerator(name="g", model="m", base_url=server.url, **{"timeout_s": 60.0, **settings})
        access = EndpointAccess(key=Secret(key), budget=budget)
        return drawn(config, *requests, access=access, backoff=backoff)

    return run


def test_candidate_keeps_identity_and_usage(answer, ask, server):
    request = ask("p: ok", sample_index=3)
    (candidate,) = answer(request)
    assert candidate.candidate_id == request.candidate_id
    assert candidate.text == "answer to p with seed 1003"
    assert (candidate.prompt_tokens, candidate.completion_tokens, candidate.finish_reason) == (10, 20, "stop")
    assert (candidate.sample_index, candidate.seed, candidate.error) == (3, 1003, None)
    assert candidate.latency_s > 0


def test_request_says_everything_and_never_n(answer, ask, server):
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=7, stop=("END",))
    answer(ask("p: ok", sampling=sampling), extra_body={"provider": {"sort": "price"}}, headers={"X-Title": "raydebm"})
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "p: ok"}],
            "temperature": 0.3,
            "top_p": 0.9,
            "max_tokens": 7,
            "seed": 1000,
            "stop": ["END"],
            "provider": {"sort": "price"},
        }
    ]
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["authorization"] == "Bearer sk-secret"
    assert headers["x-title"] == "raydebm"


@pytest.mark.parametrize("trouble", ["429", "500", "503", "truncated", "list", "reset", "cut off", "error in body"])
def test_passing_trouble_is_retried(trouble, answer, ask, server):
    (candidate,) = answer(ask(f"p: {trouble}, {trouble}, ok"))
    assert candidate.text == "answer to p with seed 1000"
    assert server.num_requests == 3


def test_retry_after_is_honoured(answer, ask):
    started = time.monotonic()
    (candidate,) = answer(ask("p: 429 after 1, ok"))
    assert candidate.error is None
    assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize(
    ("trouble", "status"), [("429", "HTTP 429: slow down"), ("500", "HTTP 500: <html>oh no</html>")]
)
def test_lasting_trouble_becomes_an_error_row(trouble, status, answer, ask, server):
    (candidate,) = answer(ask(f"p: {trouble}"), max_retries=2)
    assert candidate.text is None
    assert status in candidate.error
    assert server.num_requests == 3


def test_refused_key_names_the_variable_and_never_the_key(answer, ask, server):
    (candidate,) = answer(ask("p: 401"), api_key_env="MY_KEY")
    assert "MY_KEY" in candidate.error
    assert "sk-secret" not in candidate.error
    assert server.num_requests == 1


@pytest.mark.parametrize(("status", "num_sent"), [("401", 1), ("402", 3), ("404", 3)])
def test_refusals_spare_the_other_requests(status, num_sent, answer, ask, server):
    """A refused key is everybody's at once; a model or a credit, which may be one request's, after three in a row."""
    candidates = answer(*(ask(f"p{i}: {status}") for i in range(20)), max_in_flight=1)
    assert all(candidate.text is None for candidate in candidates)
    assert server.num_requests == num_sent
    assert all(f"HTTP {status}" in candidate.error for candidate in candidates)


def test_a_redirect_is_not_followed_and_its_target_is_named(answer, ask, server):
    (candidate,) = answer(ask("p: redirect"))
    assert (
        f"HTTP 307: the endpoint redirects to {server.url}/chat/completions, which is not followed" in candidate.error
    )
    assert server.num_requests == 1


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("empty choices", "no choices"),
        ("no content", "content is empty"),
        ("filtered", "content filter"),
        ("cut thinking", "raise max_tokens"),
    ],
)
def test_reply_without_answer_is_an_error_row(behaviour, reason, answer, ask, server):
    (candidate,) = answer(ask(f"p: {behaviour}"))
    assert reason in candidate.error
    assert server.num_requests == 1


@pytest.mark.parametrize("behaviour", ["think", "reasoning", "reasoning_content"])
def test_reasoning_stays_apart(behaviour, answer, ask):
    (candidate,) = answer(ask(f"p: {behaviour}"))
    assert (candidate.text, candidate.reasoning) == ("four", "two and two")


def test_content_in_parts_is_joined(answer, ask):
    assert answer(ask("p: parts"))[0].text == "four"


def test_cost_comes_from_the_endpoint_first(answer, ask):
    prices = {"usd_per_million_tokens": (1.0, 2.0)}
    stated, computed = answer(ask("a: priced"), ask("b: ok"), **prices)
    assert stated.cost_usd == 0.25
    assert computed.cost_usd == pytest.approx((10 * 1.0 + 20 * 2.0) / 1e6)


def test_budget_stops_further_requests(answer, ask, server):
    candidates = answer(*(ask(f"p{i}: priced") for i in range(10)), budget=Budget(0.5), max_in_flight=1)
    assert [candidate.text for candidate in candidates].count("four") == 2
    assert server.num_requests == 2
    assert "budget of $0.5 reached" in candidates[-1].error


def test_a_failed_candidate_carries_what_was_billed_for_it(answer, ask):
    prices = {"usd_per_million_tokens": (1.0, 2.0)}
    thinking, stated, refused = answer(ask("a: cut thinking"), ask("b: empty choices"), ask("c: 400"), **prices)
    assert (thinking.prompt_tokens, thinking.completion_tokens) == (10, 20)
    assert thinking.cost_usd == pytest.approx((10 * 1.0 + 20 * 2.0) / 1e6)
    assert (stated.prompt_tokens, stated.completion_tokens, stated.cost_usd) == (10, 0, 0.5)
    assert (refused.prompt_tokens, refused.completion_tokens, refused.cost_usd) == (None, None, None)


@pytest.mark.parametrize("behaviour", ["packed", "endless"])
def test_a_reply_that_is_too_long_costs_one_answer_and_no_memory(behaviour, answer, ask, server, monkeypatch):
    monkeypatch.setattr(replies, "MAX_REPLY_BYTES", 1_000_000)
    budget = Budget(None)
    (candidate,) = answer(ask(f"p: {behaviour}, ok"), budget=budget, usd_per_million_tokens=(1.0, 1.0))
    assert candidate.error.endswith("the reply is longer than 1000000 bytes and was not read to its end")
    assert server.num_requests == 1
    assert budget.spent_usd > 0


def test_a_later_runs_budget_knows_the_billed_failures(answer, ask, server, tmp_path):
    answer(ask("a: empty choices"), budget=Budget(None, Journal(tmp_path)))
    (candidate,) = answer(ask("b: ok"), budget=Budget(0.5, Journal(tmp_path)))
    assert "budget of $0.5 reached (spent $0.5000)" in candidate.error
    assert server.num_requests == 1


def test_concurrency_is_bounded_per_endpoint(answer, ask, server):
    """Nothing is answered before three are there; the next ones have a while to come too early."""
    server.latency_s, server.may_answer = 0.05, lambda number: server.max_in_flight >= 3
    answer(*(ask(f"p{i}: ok") for i in range(12)), max_in_flight=3)
    assert server.max_in_flight == 3


def test_requests_per_minute(answer, ask):
    started = time.monotonic()
    answer(*(ask(f"p{i}: ok") for i in range(30)), requests_per_minute=1200)
    # 20 a second: 20 may go at once, the other ten take another half second.
    assert time.monotonic() - started >= 0.45


def test_missing_key_is_found_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(MissingKeyError, match="export NO_SUCH_KEY="):
        OpenAIApiGenerator(OpenAIGenerator(name="g", model="m", api_key_env="NO_SUCH_KEY"))


def test_secret_shows_itself_to_nobody_but_survives_pickling():
    secret = Secret("sk-1")
    assert "sk-1" not in repr(secret)
    assert "sk-1" not in f"{secret}"
    assert pickle.loads(pickle.dumps(secret)) == secret


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example/v1", "http://proxy:3128"),
        ("http://api.example/v1", None),
        ("https://inside.example/v1", None),
    ],
    ids=["https", "no proxy for http", "in NO_PROXY"],
)
def test_proxy_of_the_environment(url, expected, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert environment_proxy(url) == expected


def test_requests_go_through_the_proxy(server, ask, drawn, monkeypatch):
    """The server plays the proxy: it is asked for an address that does not exist."""
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    config = OpenAIGenerator(name="g", model="m", base_url="http://api.example/v1", api_key_env=None, max_retries=0)
    assert drawn(config, ask())[0].text == "answer to p with seed 1000"


def test_requests_that_go_away_while_they_wait_take_no_place_of_the_rate(ask, server):
    """Ten requests of a client that leaves at once, at one a second: the next client waits for one of them at most."""
    config = OpenAIGenerator(name="g", model="m", base_url=server.url, api_key_env=None, requests_per_minute=60)

    async def session():
        generator = OpenAIApiGenerator(config)
        try:
            gone = asyncio.create_task(collect(generator, [ask(f"p{index}: ok") for index in range(10)]))
            await asyncio.sleep(0.2)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            started = time.monotonic()
            await collect(generator, [ask("q: ok")])
            return time.monotonic() - started
        finally:
            await generator.aclose()

    assert asyncio.run(session()) < 5.0


def test_log_probabilities_are_kept_where_they_are_asked_for(answer, ask):
    (candidate,) = answer(ask("p: with logprobs"), logprobs=True)
    assert (candidate.logprob, candidate.worst_logprob) == (-1.0, -1.5)


def test_an_endpoint_that_refuses_log_probabilities_is_asked_without(answer, ask, server, caplog):
    requests = [ask("p: refuses logprobs", sample_index=index) for index in range(3)]
    candidates = answer(*requests, logprobs=True, max_in_flight=1)
    assert [candidate.error for candidate in candidates] == [None] * 3
    assert ["logprobs" in body for body in server.bodies] == [True, False, False, False]
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("raydebm")]
    assert "does not return log-probabilities, so the candidates of g have none" in warning
