"""``Idempotency-Key``: a repeated request gets the first one's answer and costs nothing."""

import asyncio
import hashlib
import json
import threading

import httpx
import pytest

from raydebm.errors import ServiceError
from raydebm.serving.access import idempotency
from raydebm.serving.access.idempotency import (
    KEEP_S,
    LEASE_S,
    MAX_ANSWER_BYTES,
    IdempotencyStore,
    StoredAnswer,
    answer_once,
)
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService

KEY = {"Idempotency-Key": "order-7"}
EVENTS = (b"content-type", b"text/event-stream")


def failed_stream(status, *, should_retry):
    data = json.dumps({"error": 1, "status": status, "should_retry": should_retry})
    return response(200, f"event: raydebm.error\ndata: {data}\n\n".encode(), EVENTS)


ANSWER = StoredAnswer(200, [(b"content-type", b"application/json")], b'{"a": 1}')


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    return IdempotencyStore(str(tmp_path / "keys.sqlite"), clock=clock)


def code_of(call, *args):
    with pytest.raises(ServiceError) as caught:
        call(*args)
    return caught.value.status, caught.value.code, caught.value.retry


def test_a_repeated_request_gets_the_same_answer_and_samples_nothing(client, backend, puzzle):
    first = client.post("/v1/triage", {"problem": puzzle}, headers=KEY)
    num_sampled = len(backend.requests)

    again = client.post("/v1/triage", {"problem": puzzle}, headers=KEY)

    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert len(backend.requests) == num_sampled
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def test_a_repeated_stream_is_replayed(client, backend, puzzle):
    body = {"problem": puzzle, "stream": True}
    first = client.post("/v1/triage", body, headers=KEY)
    num_sampled = len(backend.requests)

    again = client.post("/v1/triage", body, headers=KEY)

    assert again.text == first.text
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(backend.requests) == num_sampled


def test_a_key_belongs_to_the_settings_in_headers_too(client, backend, puzzle):
    client.post("/v1/triage", {"problem": puzzle}, headers={**KEY, "X-RayDEBM-Max-Passes": "1"})
    num_sampled = len(backend.requests)

    again = client.post("/v1/triage", {"problem": puzzle}, headers={**KEY, "X-RayDEBM-Max-Passes": "2"})

    assert (again.status_code, again.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert len(backend.requests) == num_sampled


def test_a_stream_that_gives_back_a_clients_field_is_replayed(client, backend, puzzle):
    """A field of the name by which events about failures are recognised."""
    body = {"model": "raydebm/knights_knaves", "input": puzzle, "stream": True, "metadata": {"should_retry": "no"}}
    first = client.post("/v1/responses", body, headers=KEY)
    num_sampled = len(backend.requests)

    again = client.post("/v1/responses", body, headers=KEY)

    assert (again.text, len(backend.requests)) == (first.text, num_sampled)


STREAMS = {
    "/v1/triage": lambda puzzle: {"problem": puzzle},
    "/v1/chat/completions": lambda puzzle: {
        "model": "raydebm/knights_knaves",
        "messages": [{"role": "user", "content": puzzle}],
    },
    "/v1/responses": lambda puzzle: {"model": "raydebm/knights_knaves", "input": puzzle},
}


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_failed_at_no_cost_is_run_again(client, script, puzzle, texts, path):
    body = {**STREAMS[path](puzzle), "stream": True}
    script(write=lambda request: ServiceError("the generators are away", 503, "unavailable"))
    failed = client.post(path, body, headers=KEY)
    script(write=lambda request: texts["right"])

    again = client.post(path, body, headers=KEY)

    assert '"status": 503, "should_retry": true' in failed.text
    assert "are away" not in again.text
    assert "idempotent-replayed" not in again.headers


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_failed_after_it_was_paid_for_is_not_paid_for_again(client, script, puzzle, path):
    body = {**STREAMS[path](puzzle), "stream": True}
    backend = script(write=lambda request: "too long " * 1000)
    failed, num_sampled = client.post(path, body, headers=KEY), len(backend.requests)

    again = client.post(path, body, headers=KEY)

    assert '"status": 503, "should_retry": false' in failed.text
    assert (again.text, len(backend.requests)) == (failed.text, num_sampled)


@pytest.mark.parametrize("failure", [ServiceError("the scorer is away", 503, "unavailable"), RuntimeError("a bug")])
@pytest.mark.parametrize("stream", [False, True])
def test_whatever_fails_after_candidates_were_paid_for_pays_nothing_again(
    app, backend, puzzle, client_of, failure, stream
):
    async def down(texts):
        raise failure

    backend.score, body = down, {"problem": puzzle, "stream": stream}
    client = client_of(app)
    failed, num_sampled = client.post("/v1/triage", body, headers=KEY), len(backend.requests)

    again = client.post("/v1/triage", body, headers=KEY)

    assert (again.text, len(backend.requests), num_sampled) == (failed.text, num_sampled, 4)
    told = '"should_retry": false' in failed.text if stream else failed.headers["x-should-retry"] == "false"
    assert (told, "a bug" in failed.text) == (True, False)


def test_without_a_key_every_request_is_a_new_one(client, backend, puzzle):
    for _ in range(2):
        assert "idempotent-replayed" not in client.post("/v1/triage", {"problem": puzzle}).headers
    assert len({request.candidate_id for request in backend.requests}) * 2 == len(backend.requests)


def test_a_key_with_another_body_is_422(client, puzzle):
    client.post("/v1/triage", {"problem": puzzle}, headers=KEY)

    reply = client.post("/v1/triage", {"problem": puzzle, "seed": 1}, headers=KEY)

    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ключ".encode()])
def test_a_key_that_is_none_is_400(client, puzzle, key):
    reply = client.post("/v1/triage", {"problem": puzzle}, headers={"Idempotency-Key": key})

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "bad_idempotency_key")


def test_a_mistake_of_the_client_is_answered_the_same_again(client):
    replies = [client.post("/v1/triage", {"problem": "no puzzle"}, headers=KEY) for _ in range(2)]

    assert [reply.status_code for reply in replies] == [422, 422]
    assert replies[1].headers["idempotent-replayed"] == "true"


def test_after_a_failure_that_cost_nothing_the_key_may_try_again(client, backend, puzzle):
    async def down(texts):
        raise ServiceError("the scorer is away", 503, "scoring_failed")

    score, backend.score = backend.score, down
    failed = client.post("/v1/score", {"problem": puzzle, "candidates": ["a"]}, headers=KEY)
    backend.score = score

    reply = client.post("/v1/score", {"problem": puzzle, "candidates": ["a"]}, headers=KEY)

    assert (failed.status_code, reply.status_code) == (503, 200)
    assert "idempotent-replayed" not in reply.headers


def test_while_the_first_request_runs_a_repetition_is_409(bundle, backend, puzzle):
    app = create_app(TriageService(bundle, backend))

    async def send():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            backend.held = True
            first = asyncio.create_task(client.post("/v1/triage", json={"problem": puzzle}, headers=KEY))
            while not backend.requests:
                await asyncio.sleep(0)
            second = await client.post("/v1/triage", json={"problem": puzzle}, headers=KEY)
            backend.held = False
            return (await first).status_code, second

    status, second = asyncio.run(send())
    assert (status, second.status_code) == (200, 409)
    assert second.json()["error"]["code"] == "idempotency_key_in_use"


def test_keys_belong_to_their_owner(store):
    store.begin("ada", "k", "f")
    store.finish("ada", "k", ANSWER)

    assert store.begin("bo", "k", "f") is None
    assert store.begin("ada", "k", "f") == ANSWER


def test_another_process_knows_the_answer(store, tmp_path, clock):
    store.begin("", "k", "f")
    store.finish("", "k", ANSWER)

    other = IdempotencyStore(str(tmp_path / "keys.sqlite"), clock=clock)

    assert other.begin("", "k", "f") == ANSWER


def test_a_request_whose_replica_died_is_not_repeated(store, clock):
    store.begin("", "k", "f")
    clock.now += LEASE_S - 1
    assert code_of(store.begin, "", "k", "f") == (409, "idempotency_key_in_use", True)
    clock.now += 1
    assert code_of(store.begin, "", "k", "f") == (409, "idempotency_answer_lost", False)


def test_a_request_that_is_renewed_still_runs(store, clock):
    store.begin("", "k", "f")
    clock.now += LEASE_S - 1
    store.renew("", "k")
    clock.now += LEASE_S - 1
    assert code_of(store.begin, "", "k", "f") == (409, "idempotency_key_in_use", True)


def test_a_request_is_renewed_while_it_runs(store, monkeypatch):
    renewed = []
    monkeypatch.setattr(idempotency, "RENEW_S", 0.001)
    monkeypatch.setattr(store, "renew", lambda *request: renewed.append(request))

    async def work(send):
        while len(renewed) < 2:
            await asyncio.sleep(0.001)

    scope = {"method": "POST", "path": "/x", "headers": [(b"idempotency-key", b"k")]}
    asyncio.run(answer_once(store, scope, b"", None, work, owner="ada"))

    assert set(renewed) == {("ada", "k")}


def test_an_answer_after_the_request_was_taken_for_lost_is_kept(store, clock):
    store.begin("", "k", "f")
    clock.now += LEASE_S
    store.finish("", "k", ANSWER)

    assert store.begin("", "k", "f") == ANSWER


def test_after_a_day_a_key_is_new(store, clock):
    store.begin("", "k", "f")
    store.finish("", "k", ANSWER)
    clock.now += KEEP_S + 1

    assert store.begin("", "k", "another") is None


def test_a_forgotten_key_is_new(store):
    store.begin("", "k", "f")
    store.forget("", "k")

    assert store.begin("", "k", "another") is None


def answer(store, messages, *, owner="", lost=None):
    """What ``answer_once`` sends when the work sends these messages, until the connection is lost by such an error."""
    sent, scope = [], {"method": "POST", "path": "/x", "headers": [(b"idempotency-key", b"k")]}

    async def send(message):
        if lost is not None and message["type"] == "http.response.body":
            raise lost
        sent.append(message)

    async def work(to):
        for message in messages:
            await to(message)

    asyncio.run(answer_once(store, scope, b"{}", send, work, owner=owner))
    return sent


def response(status, body, *headers, more=False):
    return [
        {"type": "http.response.start", "status": status, "headers": list(headers)},
        {"type": "http.response.body", "body": body, "more_body": more},
    ]


def test_a_request_that_is_cancelled_while_its_key_is_taken_gives_it_back(tmp_path):
    """Nothing began, so the next try may begin."""
    began, let, taken = threading.Event(), threading.Event(), threading.Event()

    class SlowStore(IdempotencyStore):
        def begin(self, owner, key, fingerprint):
            began.set()
            assert let.wait(60)
            answer = super().begin(owner, key, fingerprint)
            taken.set()
            return answer

    store, worked = SlowStore(str(tmp_path / "keys.sqlite")), []
    scope = {"method": "POST", "path": "/x", "headers": [(b"idempotency-key", b"k")]}

    async def work(send):
        worked.append(True)
        for message in response(200, b"new"):
            await send(message)

    async def cancelled_then_again():
        first = asyncio.create_task(answer_once(store, scope, b"", None, work, owner=""))
        await asyncio.to_thread(began.wait)
        first.cancel()
        await asyncio.wait({first})
        let.set()
        await asyncio.to_thread(taken.wait)
        while True:
            try:
                return await answer_once(store, scope, b"", asyncio.Queue().put, work, owner="")
            except ServiceError:  # the key is not given back yet
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancelled_then_again(), 20))
    assert worked == [True]


def test_an_answer_that_is_too_large_is_neither_kept_nor_repeated(store):
    answer(store, response(200, b"x" * (MAX_ANSWER_BYTES + 1)))

    assert code_of(answer, store, []) == (409, "idempotency_answer_too_large", False)


def test_where_there_is_no_room_the_older_answers_go_and_their_keys_stay(store, clock, monkeypatch):
    monkeypatch.setattr(idempotency, "MAX_TOTAL_BYTES", 100)
    for name in "abc":
        clock.now += 1
        store.begin("ada", name, "f")
        store.finish("ada", name, StoredAnswer(200, [], b"x" * 40))

    assert [store.begin("ada", name, "f") for name in "abc"] == [
        StoredAnswer(200, [], None),
        StoredAnswer(200, [], None),
        StoredAnswer(200, [], b"x" * 40),
    ]


@pytest.mark.parametrize(
    ("messages", "is_kept"),
    [
        (response(200, b"{}"), True),
        (response(200, b"half", more=True), False),
        (response(429, b"{}"), False),
        (response(503, b"{}"), False),
        (response(503, b"{}", (b"X-Should-Retry", b"false")), True),
        (failed_stream(503, should_retry=True), False),
        (failed_stream(503, should_retry=False), True),
        (failed_stream(429, should_retry=False), False),
        (failed_stream(422, should_retry=True), True),
    ],
)
def test_which_answers_are_kept(store, messages, is_kept):
    answer(store, messages)

    assert (answer(store, response(200, b"new"))[-1]["body"] != b"new") == is_kept


@pytest.mark.parametrize("lost", [OSError("broken pipe"), asyncio.CancelledError()], ids=["refused", "cancelled"])
@pytest.mark.parametrize(
    ("messages", "is_kept"),
    [(response(200, b"first"), True), (response(200, b"half", more=True), False), (response(503, b"{}"), False)],
)
def test_an_answer_that_was_lost_on_its_way_is_kept_where_it_was_whole(store, messages, is_kept, lost):
    with pytest.raises(type(lost)):
        answer(store, messages, lost=lost)

    assert answer(store, response(200, b"new"))[-1]["body"] == (b"first" if is_kept else b"new")


def test_a_request_whose_client_went_away_before_its_answer_runs_again(store):
    answer(store, response(499, b"{}"))

    assert answer(store, response(200, b"new"))[-1]["body"] == b"new"


def test_a_key_that_is_issued_again_under_an_old_name_gets_none_of_its_answers(bundle, backend, puzzle, client_of):
    """The store is the run's file, so the second application knows what the first one answered."""
    replies = []
    for secret in ("a" * 32, "b" * 32, "a" * 32):
        ring = Keyring([ApiKey(name="ada", sha256=hashlib.sha256(secret.encode()).hexdigest())])
        client = client_of(create_app(TriageService(bundle, backend), keyring=ring))
        headers = {**KEY, "Authorization": f"Bearer {secret}"}
        replies.append(client.post("/v1/triage", {"problem": puzzle}, headers=headers))

    assert [reply.status_code for reply in replies] == [200] * 3
    assert ["idempotent-replayed" in reply.headers for reply in replies] == [False, False, True]
