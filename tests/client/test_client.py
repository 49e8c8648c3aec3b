"""The client against a service that is a function: what is sent, how answers and failures are read."""

import asyncio
import json

import httpx
import pytest

from raydebm_client import AsyncRaydebm, Progress, Raydebm, ServiceError
from raydebm_client import client as calls

ACCEPTED = {
    "decision": "accept",
    "reason": "every constraint holds",
    "request_id": "r1",
    "task": "t",
    "problem_id": "p",
    "answer": "42",
    "text": "It is 42.",
    "mu": -2.0,
    "sigma": 0.5,
    "members": [-2.5, -1.5],
    "brand_new_field": 1,
    "candidate": {"candidate_id": "c", "generator": "g", "text": "It is 42.", "mu": -2.0, "sigma": 0.5},
}
BUSY = {"error": {"message": "too many requests", "type": "rate_limit_error", "code": "rate_limited", "param": None}}


class Service:
    """Answers from a list, the last one for ever; keeps the requests."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self):
        return [json.loads(request.content) for request in self.requests]


def ok(body):
    return httpx.Response(200, json=body)


def failed(status, body=BUSY, **headers):
    return httpx.Response(status, json=body, headers=headers)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between tries, instead of waiting for them."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("raydebm_client.client.time.sleep", waits.append)
    monkeypatch.setattr("raydebm_client.client.asyncio.sleep", sleep)
    return waits


@pytest.fixture(params=["sync", "async"])
def connect(request, pauses):
    """Makes a caller ``(name, *args, **kwargs) -> result`` of a service, through either client."""

    def of(service, **settings):
        def call(name, *args, **kwargs):
            if request.param == "sync":
                with Raydebm("http://test", transport=httpx.MockTransport(service), **settings) as client:
                    reply = getattr(client, name)(*args, **kwargs)
                    return list(reply) if name == "stream" else reply

            async def run():
                async with AsyncRaydebm("http://test", transport=httpx.MockTransport(service), **settings) as client:
                    if name == "stream":
                        return [event async for event in client.stream(*args, **kwargs)]
                    return await getattr(client, name)(*args, **kwargs)

            return asyncio.run(run())

        return call

    return of


def test_triage_sends_what_was_given_and_reads_what_it_knows(connect):
    service = Service(ok(ACCEPTED))
    triage = connect(service)("triage", "6 x 7?", task="t", lambda_=2.0, num_samples=4)
    assert service.bodies == [{"problem": "6 x 7?", "task": "t", "lambda": 2.0, "num_samples": 4}]
    assert (triage.accepted, triage.answer, triage.sigma, triage.candidate.generator) == (True, "42", 0.5, "g")
    assert triage.brand_new_field == 1


def test_the_key_goes_into_the_header(connect):
    service = Service(ok(ACCEPTED))
    connect(service, api_key="secret")("triage", "6 x 7?")
    assert service.requests[0].headers["authorization"] == "Bearer secret"


def test_key_and_address_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RAYDEBM_API_KEY", "k")
    monkeypatch.setenv("RAYDEBM_BASE_URL", "http://there:1/v1/")
    service = Service(ok({"status": "ok"}))
    Raydebm(transport=httpx.MockTransport(service)).health()
    assert str(service.requests[0].url) == "http://there:1/health"
    assert service.requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"base_url": "ftp://x"}, "must start with http"), ({"timeout_s": 0.0}, "timeout_s > 0")],
    ids=["scheme", "timeout"],
)
def test_settings_are_checked(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        Raydebm(**arguments)


# ---- failures ----------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_service_error_with_the_services_own_words(connect):
    body = {"error": {"message": "task 'x' is not served", "type": "e", "code": "unknown_task", "param": "task"}}
    service = Service(failed(404, body, **{"x-request-id": "r9"}))
    with pytest.raises(ServiceError, match=r"task 'x' is not served \(HTTP 404, request r9\)") as caught:
        connect(service)("triage", "?")
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "unknown_task", "task")
    assert len(service.requests) == 1


def test_an_outcome_of_a_decision_that_was_not_stored_gets_the_services_refusal(connect):
    with pytest.raises(ServiceError, match="HTTP 404"):
        connect(Service(failed(404)))("report_outcome", None, correct=True, by="tests")


def test_a_busy_service_is_asked_again_when_it_says(connect, pauses):
    service = Service(failed(429, **{"retry-after": "7"}), failed(503, **{"retry-after": "0.5"}), ok(ACCEPTED))
    assert connect(service)("triage", "?").accepted
    assert pauses == [7.0, 0.5]


def test_what_the_service_says_will_not_help_is_not_asked_again(connect):
    service = Service(failed(504, **{"x-should-retry": "false"}))
    with pytest.raises(ServiceError):
        connect(service, max_retries=3)("triage", "?", deadline_ms=10)
    assert len(service.requests) == 1


def test_without_advice_pauses_double(connect, pauses):
    service = Service(failed(503))
    with pytest.raises(ServiceError, match="too many requests"):
        connect(service, max_retries=3)("triage", "?")
    assert len(service.requests) == 4
    assert [0.75 * base <= pause <= 1.25 * base for base, pause in zip((0.5, 1, 2), pauses, strict=True)] == [True] * 3


def test_advice_to_stay_away_for_long_is_taken_as_a_refusal(connect, pauses):
    service = Service(failed(429, **{"retry-after": "3600"}))
    with pytest.raises(ServiceError, match="too many requests"):
        connect(service)("triage", "?")
    assert (len(service.requests), pauses) == (1, [])


@pytest.mark.parametrize("odd", ["soon", "-1", "nan", "", "Mon, 01 Jan 2026 00:00:00 GMT"], ids=repr)
def test_odd_advice_is_ignored(odd):
    assert calls.pause_before_retry(0, odd) <= 0.625


def test_a_lost_connection_is_tried_again(connect):
    assert connect(Service(httpx.ConnectError("refused"), ok(ACCEPTED)))("triage", "?").accepted


def test_a_password_in_the_address_is_in_no_error():
    with Raydebm("http://team:hunter2@127.0.0.1:9", max_retries=0) as client, pytest.raises(ServiceError) as caught:
        client.health()
    assert str(caught.value).startswith("http://***@127.0.0.1:9 cannot be reached")
    assert "hunter2" not in str(caught.value)


def test_a_service_that_is_not_there_is_named(connect):
    with pytest.raises(ServiceError, match="http://test cannot be reached") as caught:
        connect(Service(httpx.ConnectError("refused")), max_retries=0)("triage", "?")
    assert caught.value.code == "unreachable"


def test_work_that_takes_too_long_is_not_started_again(connect):
    service = Service(httpx.ReadTimeout("slow"))
    with pytest.raises(ServiceError, match="sent nothing for 300 s") as caught:
        connect(service)("triage", "?")
    assert (caught.value.status, len(service.requests)) == (504, 1)


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b"[]", b'{"decision": "accept"}', b"null"], ids=["html", "list", "corrupt", "null"]
)
def test_an_answer_of_something_else_is_an_error_not_a_crash(connect, body):
    service = Service(httpx.Response(200, content=body))
    with pytest.raises(ServiceError, match="returned an unexpected answer") as caught:
        connect(service)("triage", "?")
    assert caught.value.code == "unexpected_answer"


def test_a_proxys_error_page_is_quoted_briefly(connect):
    service = Service(httpx.Response(502, content=b"<html>bad gateway" + b"x" * 10_000))
    with pytest.raises(ServiceError, match="the service answered <html>bad gateway") as caught:
        connect(service, max_retries=0)("triage", "?")
    assert len(str(caught.value)) < 300


# ---- the other calls ---------------------------------------------------------------------------------------------


def test_scores_keep_the_order(connect):
    items = [{"index": 0, "score": 2.0, "energy": -2.0}, {"index": 1, "score": None, "error": "no answer"}]
    service = Service(ok({"data": items, "model": "m"}))
    scores = connect(service)("score", "?", ["a", "b"], lambda_=0.0)
    assert service.bodies == [{"problem": "?", "candidates": ["a", "b"], "lambda": 0.0}]
    assert [entry.score for entry in scores.data] == [2.0, None]


def test_rerank(connect):
    service = Service(ok({"results": [{"index": 1, "relevance_score": 3.0, "mu": -3.0}], "task": "t"}))
    ranking = connect(service)("rerank", "?", ["a", {"text": "b"}], top_n=1, task="t")
    assert service.bodies[0] == {
        "query": "?",
        "documents": ["a", {"text": "b"}],
        "top_n": 1,
        "raydebm": {"task": "t"},
    }
    assert (ranking.results[0].index, ranking.results[0].relevance_score, ranking.task) == (1, 3.0, "t")


def test_rewards_are_asked_for_in_the_trainers_shape(connect):
    service = Service(ok({"rewards": [1, -10.0]}))
    rewards = connect(service)("rewards", ["p", "p"], ["a", "b"], task="t", sigma_weight=0.5)
    assert rewards == [1.0, -10.0]
    assert service.bodies == [{"query": ["a", "b"], "prompts": ["p", "p"]}]
    assert dict(service.requests[0].url.params) == {"task": "t", "sigma_weight": "0.5"}


def test_responses_to_one_prompt_stay_in_one_request(connect):
    prompts = ["p", "q"] * 40  # 40 of each: together more than one request takes
    service = Service(ok({"rewards": [1.0] * 40}), ok({"rewards": [2.0] * 40}))
    assert connect(service)("rewards", prompts, ["x"] * 80) == [1.0, 2.0] * 40
    assert [set(body["prompts"]) for body in service.bodies] == [{"p"}, {"q"}]


def test_small_groups_share_a_request_and_keep_their_places(connect):
    service = Service(ok({"rewards": [1, 2, 3]}))
    assert connect(service)("rewards", ["p", "q", "p"], ["a", "b", "c"]) == [1.0, 3.0, 2.0]
    assert service.bodies == [{"query": ["a", "c", "b"], "prompts": ["p", "p", "q"]}]


def test_each_response_needs_its_prompt(connect):
    with pytest.raises(ValueError, match="there are 1 prompts and 2 responses"):
        connect(Service(ok({})))("rewards", ["p"], ["a", "b"])


def test_a_service_that_gives_too_few_rewards_is_refused(connect):
    with pytest.raises(ServiceError, match="returned an unexpected answer"):
        connect(Service(ok({"rewards": [1.0]})))("rewards", ["p", "p"], ["a", "b"])


def test_models_and_health(connect):
    assert connect(Service(ok({"data": [{"id": "raydebm/knights_knaves"}]})))("models") == ["raydebm/knights_knaves"]
    assert connect(Service(ok({"status": "ok"})))("health") == {"status": "ok"}


# ---- streams -----------------------------------------------------------------------------------------------------


def stream_of(*blocks):
    return httpx.Response(200, content="".join(f"{block}\n\n" for block in blocks).encode())


PROGRESS = 'event: raydebm.progress\ndata: {"event": "candidate", "done": 1, "total": 2}'


def result(**changes):
    return "event: raydebm.result\ndata: " + json.dumps({**ACCEPTED, **changes})


def test_a_stream_gives_progress_and_then_the_result(connect):
    service = Service(stream_of(": hello", PROGRESS, result(), "data: [DONE]"))
    first, last = connect(service)("stream", "6 x 7?", task="t", max_passes=1)
    assert first == Progress(event="candidate", facts={"done": 1, "total": 2})
    assert (last.answer, last.text) == (ACCEPTED["answer"], ACCEPTED["text"])
    assert service.bodies[0] == {"task": "t", "problem": "6 x 7?", "max_passes": 1, "stream": True}


def test_an_error_in_a_stream_has_the_status_that_a_plain_request_would_have(connect):
    late = {"error": {"message": "late", "type": "server_error", "code": "deadline_exceeded", "param": None}}
    service = Service(stream_of(f"data: {json.dumps({**late, 'status': 504})}"))

    with pytest.raises(ServiceError) as failed:
        connect(service)("stream", "6 x 7?", task="t")
    assert (failed.value.status, failed.value.code) == (504, "deadline_exceeded")


def test_an_error_in_a_stream_is_raised(connect):
    with pytest.raises(ServiceError, match="too many requests"):
        connect(Service(stream_of(PROGRESS, "data: " + json.dumps(BUSY))))("stream", "6 x 7?")


def test_a_stream_that_breaks_off_is_no_result(connect):
    with pytest.raises(ServiceError, match="the stream ended before the decision"):
        connect(Service(stream_of(PROGRESS)))("stream", "6 x 7?")


@pytest.mark.parametrize("line", ["<html>", '{"error": "busy"}'])
def test_a_stream_of_something_else_is_an_error_not_a_crash(connect, line):
    with pytest.raises(ServiceError, match="returned an unexpected answer") as raised:
        connect(Service(stream_of(PROGRESS, f"data: {line}")))("stream", "6 x 7?")
    assert (raised.value.status, raised.value.code) == (502, "unexpected_answer")


@pytest.mark.parametrize("name", ["triage", "stream"])
def test_an_answer_that_cannot_be_unpacked_is_an_error_and_is_not_asked_for_again(connect, name):
    service = Service(httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip")))
    with pytest.raises(ServiceError, match="returned an unexpected answer"):
        connect(service)(name, "6 x 7?")
    assert len(service.requests) == 1


def test_a_stream_that_is_refused_is_tried_again(connect, pauses):
    service = Service(failed(503, **{"retry-after": "1"}), stream_of(result()))
    assert connect(service)("stream", "6 x 7?")[-1].accepted
    assert pauses == [1.0]
