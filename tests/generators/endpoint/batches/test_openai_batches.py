"""Candidates from a batch API, against a real server: kills at every point, partial results, broken files."""

import asyncio
import json
import subprocess
import sys
import time

import pytest
from batch_server import BatchServer

from raydebm.config import OpenAIBatchGenerator
from raydebm.errors import ConfigError
from raydebm.generators import EndpointAccess, build_generator
from raydebm.generators.endpoint.api_keys import Secret
from raydebm.generators.endpoint.batches.batch_lines import next_input, read_result
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.journal import Journal
from raydebm.generators.protocol import collect
from raydebm.generators.replies import Completion
from raydebm.records import FailureKind, Sampling

PRICES = {"usd_per_million_prompt_tokens": 1e6, "usd_per_million_completion_tokens": 2e6}
"""A dollar and two per token."""


@pytest.fixture
def provider():
    with BatchServer() as running:
        yield running


@pytest.fixture
def batch_config(provider):
    def make(**settings):
        return OpenAIBatchGenerator(
            name="g",
            model="m",
            base_url=provider.url,
            **{"poll_s": 0.01, "max_retries": 1, "timeout_s": 60.0, **settings},
        )

    return make


@pytest.fixture
def answer(batch_config, tmp_path):
    """The candidates of a generator on the run's journal, in the order of the requests; one process of a run."""

    def run(*requests, seconds=None, budget=None, **settings):
        async def answers():
            access = EndpointAccess(key=Secret("sk-secret"), budget=budget)
            generator = build_generator(batch_config(**settings), journal=Journal(tmp_path), access=access)
            try:
                async with asyncio.timeout(seconds):
                    return await collect(generator, requests)
            finally:
                await generator.aclose()

        return asyncio.run(answers())

    return run


@pytest.fixture
def killed(answer, provider):
    """A process of the run that is killed while its batches go on."""

    def run(*requests, **settings):
        ends_as, provider.ends_as = provider.ends_as, None
        with pytest.raises(TimeoutError):
            answer(*requests, seconds=1.0, **settings)
        provider.ends_as = ends_as

    return run


def three(ask, behaviour="ok"):
    return [ask(f"{name}: {behaviour}") for name in "abc"]


def texts(candidates):
    return [candidate.text for candidate in candidates]


def test_candidates_keep_identity_and_usage_though_results_come_in_another_order(answer, ask):
    requests = three(ask)
    candidates = answer(*requests, **PRICES)
    assert texts(candidates) == ["answer to a", "answer to b", "answer to c"]
    assert [one.candidate_id for one in candidates] == [request.candidate_id for request in requests]
    assert [(one.prompt_tokens, one.completion_tokens, one.cost_usd) for one in candidates] == [(10, 20, 50.0)] * 3


def test_a_line_of_a_batch_says_what_a_request_would(answer, ask, provider):
    request = ask("p: ok", sampling=Sampling(temperature=0.3, top_p=0.9, max_tokens=7, stop=("END",)))
    answer(request, extra_body={"reasoning_effort": "low"})
    assert json.loads(provider.files["file-0"]) == {
        "custom_id": request.candidate_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "p: ok"}],
            "temperature": 0.3,
            "top_p": 0.9,
            "max_tokens": 7,
            "seed": 1000,
            "stop": ["END"],
            "reasoning_effort": "low",
        },
    }
    (batch,) = provider.batches.values()
    assert (batch["endpoint"], batch["completion_window"]) == ("/v1/chat/completions", "24h")


def test_what_is_answered_is_not_sent_again(answer, ask, provider):
    answer(*three(ask))
    assert texts(answer(*three(ask))) == ["answer to a", "answer to b", "answer to c"]
    assert len(provider.batches) == 1


def test_requests_are_split_into_batches_of_which_so_many_are_open(answer, ask, provider):
    candidates = answer(*(ask(f"p{i}: ok") for i in range(7)), max_requests_per_batch=2, max_open_batches=3)
    assert list(map(len, provider.asked)) == [2, 2, 2, 1]
    assert provider.most_open == 3
    assert all(texts(candidates))


def test_a_batch_ends_at_its_most_bytes(batch_config, ask):
    requests = [ask(f"p{i}: ok") for i in range(5)]
    size = len(next_input(requests[:1], batch_config(), left_usd=0.0).content)
    cut = next_input(requests, batch_config(), left_usd=0.0, most_bytes=2 * size)
    assert cut.requests == tuple(requests[:2])


def test_a_request_that_is_too_large_goes_alone(batch_config, ask):
    requests = three(ask)
    assert next_input(requests, batch_config(), left_usd=0.0, most_bytes=1).requests == (requests[0],)


def test_killed_while_it_waits_a_run_reads_the_same_batch(killed, answer, ask, provider):
    killed(*three(ask))
    assert all(texts(answer(*three(ask))))
    assert provider.asked == [["a", "b", "c"]]


def test_killed_before_it_knows_the_id_a_run_finds_the_batch_in_the_list(killed, answer, ask, provider):
    provider.takes = "in silence"
    killed(*three(ask))
    provider.takes = "batches"
    for _ in range(3):  # newer ones of others, on two pages
        provider.batches[f"other_{_}"] = {"id": f"other_{_}", "object": "batch", "status": "completed",
            "created_at": int(time.time()), "input_file_id": "file-0", "metadata": None}  # fmt: skip

    assert all(texts(answer(*three(ask))))
    assert sum("errors" in batch for batch in provider.batches.values()) == 1


def test_killed_before_anything_was_sent_a_run_sends_it(killed, answer, ask, provider):
    provider.takes = "503"
    killed(*three(ask), max_retries=6)
    provider.takes = "batches"
    assert all(texts(answer(*three(ask))))
    assert provider.asked == [["a", "b", "c"]]


def test_killed_with_one_batch_read_and_one_open_a_run_sends_only_what_is_new(killed, answer, ask, provider):
    """Its failed request goes out again with the new one, apart from those that are under way."""
    provider.ends_as = "completed"
    answer(ask("a: ok"), ask("b: 400"))
    killed(ask("c: ok"), ask("d: ok"))

    candidates = answer(ask("a: ok"), ask("b: 400"), ask("c: ok"), ask("d: ok"), ask("e: ok"))

    assert [text is not None for text in texts(candidates)] == [True, False, True, True, True]
    assert provider.asked == [["a", "b"], ["c", "d"], ["b", "e"]]


def test_requests_of_one_batch_may_be_asked_for_one_after_the_other(killed, answer, ask, provider):
    killed(*three(ask))
    for request in three(ask):
        assert all(texts(answer(request)))
    assert provider.asked == [["a", "b", "c"]]


def test_a_batch_of_a_lost_run_directory_is_found_by_its_file(batch_config, ask, provider, tmp_path):
    async def answers(folder, seconds):
        access = EndpointAccess(key=Secret(None))
        generator = build_generator(batch_config(), journal=Journal(tmp_path / folder), access=access)
        async with asyncio.timeout(seconds):
            return await collect(generator, three(ask))

    provider.ends_as = None
    with pytest.raises(TimeoutError):
        asyncio.run(answers("lost", 1.0))
    provider.ends_as = "completed"
    assert all(texts(asyncio.run(answers("new", None))))
    assert len(provider.batches) == 1


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_a_batch_that_is_cut_off_gives_what_it_has_and_the_rest_is_sent_again(status, answer, ask, provider):
    provider.ends_as, provider.num_answered = status, 1
    first = answer(*three(ask))
    assert texts(first) == ["answer to a", None, None]
    assert "The window closed.; --retry-failed sends the request again" in first[1].error

    provider.ends_as, provider.num_answered = "completed", None
    assert all(texts(answer(*three(ask))))
    assert provider.asked == [["a", "b", "c"], ["b", "c"]]


def test_an_expired_batch_without_any_result_is_followed_by_another_of_the_same_file(answer, ask, provider):
    provider.ends_as, provider.num_answered = "expired", 0
    assert texts(answer(*three(ask))) == [None] * 3

    provider.ends_as, provider.num_answered = "completed", None
    assert all(texts(answer(*three(ask))))
    assert provider.asked == [["a", "b", "c"], ["a", "b", "c"]]


def test_a_batch_that_is_refused_as_a_whole_says_why(answer, ask, provider):
    provider.ends_as = "failed"
    (candidate,) = answer(ask("p: ok"))
    assert "batch batch_0 was refused as a whole: Enqueued too much; where too many tokens" in candidate.error


def test_an_error_file_gives_rows_with_the_providers_words(answer, ask):
    good, bad = answer(ask("a: ok"), ask("b: 400"))
    assert good.text == "answer to a"
    assert "HTTP 400: messages must not be empty" in bad.error


@pytest.mark.parametrize("behaviour", ["lost", "malformed"])
def test_a_missing_or_malformed_line_costs_its_own_request_alone(behaviour, answer, ask):
    before, broken, after = answer(ask("a: ok"), ask(f"b: {behaviour}"), ask("c: ok"))
    assert (before.text, after.text) == ("answer to a", "answer to c")
    assert "batch batch_0 has no result for this request; --retry-failed sends it again" in broken.error


def test_a_result_that_comes_twice_counts_once(answer, ask):
    budget = Budget(None)
    assert texts(answer(ask("a: twice"), budget=budget, **PRICES)) == ["answer to a"]
    assert budget.spent_usd == 50.0


def test_separators_of_unicode_do_not_end_a_line(answer, ask):
    assert texts(answer(ask("a: separators"))) == ["one\u2028two\x85three"]


def test_an_empty_answer_is_an_error_row_with_its_bill(answer, ask):
    (candidate,) = answer(ask("a: empty"), **PRICES)
    assert "content is empty" in candidate.error
    assert candidate.cost_usd == 50.0


def test_a_download_that_breaks_off_is_repeated(answer, ask, provider):
    provider.breaks_downloads = 1
    budget = Budget(None)
    assert all(texts(answer(*(ask(f"p{i}: ok") for i in range(50)), budget=budget, **PRICES)))
    assert budget.spent_usd == 2500.0


def test_results_that_cannot_be_downloaded_are_read_by_the_next_run(answer, ask, provider):
    provider.breaks_downloads = 9
    assert all("connection failed" in one.error for one in answer(ask("a: ok"), max_retries=0))
    provider.breaks_downloads = 0
    assert texts(answer(ask("a: ok"))) == ["answer to a"]
    assert len(provider.batches) == 1


def test_an_endpoint_that_is_away_for_a_while_is_waited_for(answer, ask, provider, monkeypatch):
    monkeypatch.setattr("raydebm.generators.endpoint.batches.openai_batches.MOST_FAILED_POLLS", 3)
    provider.poll_status = 503
    (candidate,) = answer(ask("a: ok"), max_retries=0)
    assert "HTTP 503: not now" in candidate.error

    provider.poll_status = None
    assert texts(answer(ask("a: ok"))) == ["answer to a"]
    assert len(provider.batches) == 1


def test_a_refused_key_gives_up_no_batch_and_shows_no_key(answer, ask, provider):
    provider.poll_status = 401
    (candidate,) = answer(ask("a: ok"), api_key_env="MY_KEY")
    assert "MY_KEY" in candidate.error
    assert "sk-secret" not in candidate.error

    provider.poll_status = None
    assert texts(answer(ask("a: ok"))) == ["answer to a"]
    assert len(provider.batches) == 1


def test_a_batch_that_the_provider_has_no_longer_is_sent_again_by_the_next_run(killed, answer, ask, provider):
    killed(ask("a: ok"))
    provider.batches.clear()
    (candidate,) = answer(ask("a: ok"))
    assert "no such batch" in candidate.error
    assert texts(answer(ask("a: ok"))) == ["answer to a"]


def test_a_refused_batch_is_error_rows_and_nothing_is_left_behind(answer, ask, provider):
    provider.takes = "400"
    assert all("HTTP 400: not now" in one.error for one in answer(*three(ask)))
    provider.takes = "batches"
    assert all(texts(answer(*three(ask))))


def test_an_endpoint_without_a_list_works_without_it(answer, ask, provider):
    provider.lists = False
    assert texts(answer(ask("a: ok"))) == ["answer to a"]


def test_under_a_limit_only_what_it_covers_at_worst_is_sent_and_the_rest_as_money_is_left(answer, ask, provider):
    """A request costs 216 dollars at most: its 24 bytes, 32 tokens of template, and 80 at two dollars; and 50 in fact.

    Of 500 two fit; they leave 400, which the third one fits into.
    """
    requests = [ask(f"p{i}: ok", sampling=Sampling(max_tokens=80)) for i in range(3)]
    candidates = answer(*requests, budget=Budget(500.0), **PRICES)
    assert list(map(len, provider.asked)) == [2, 1]
    assert all(texts(candidates))


def test_a_request_that_the_limit_does_not_cover_is_not_sent(answer, ask, provider):
    (candidate,) = answer(ask("p: ok"), budget=Budget(10.0), **PRICES)
    assert candidate.failure is FailureKind.BUDGET
    assert "what is left of the budget ($10.0000) does not cover a completion" in candidate.error
    assert not provider.batches


def test_without_a_journal_there_is_no_batch(batch_config):
    with pytest.raises(ConfigError, match="generator 'g': kind openai_batch answers within a day"):
        build_generator(batch_config(), access=EndpointAccess(key=Secret(None)))


@pytest.mark.parametrize("line", [b"", b"[]", b"null", b'{"custom_id": 3}', b"\xff\xfe", b"[" * 100_000])
def test_a_malformed_line_is_nobodys(line):
    assert read_result(line) is None


def test_half_a_character_in_a_result_is_replaced():
    body = {"choices": [{"message": {"content": "four \ud83d"}}]}
    line = json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": body}}).encode()
    custom_id, result = read_result(line)
    assert custom_id == "a"
    assert isinstance(result, Completion)
    assert result.text == "four \ufffd"


def test_a_result_costs_what_the_endpoint_states():
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.25}
    body = {"choices": [{"message": {"content": "four"}}], "usage": usage}
    line = json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": body}}).encode()

    _, result = read_result(line)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.cost_usd) == (10, 2, 0.25)


PROGRAM = """
import asyncio, sys
from raydebm.config import OpenAIBatchGenerator
from raydebm.generators import EndpointAccess, Journal, Secret, build_generator, collect
from raydebm.records import GenerationRequest, Sampling
def ask(name):
    message = {{"role": "user", "content": name + ": ok"}}
    return GenerationRequest(
        task="toy", problem_id=name, generator="g", messages=(message,), sampling=Sampling(max_tokens=64), seed=1
    )
config = OpenAIBatchGenerator(name="g", model="m", base_url={url!r}, poll_s=0.05)
generator = build_generator(config, journal=Journal({folder!r}), access=EndpointAccess(key=Secret(None)))
print([one.text for one in asyncio.run(collect(generator, [ask("a"), ask("b")]))])
"""


def test_a_process_that_is_killed_pays_for_its_batch_once(provider, tmp_path):
    provider.ends_as = None
    command = [sys.executable, "-c", PROGRAM.format(url=provider.url, folder=str(tmp_path))]
    with subprocess.Popen(command) as process:
        while not provider.batches and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    provider.ends_as = "completed"

    again = subprocess.run(command, capture_output=True, text=True, check=True)

    assert again.stdout == "['answer to a', 'answer to b']\n"
    assert len(provider.batches) == 1
