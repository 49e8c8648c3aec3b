"""Rates, places and the bounded queue."""

import asyncio
import hashlib
import pickle

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.access.request_limits import Admission, KeyLimits, TokenBucket
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.failures import TooManyError
from raydebm.serving.settings.app_args import AppArgs, LimitArgs
from raydebm.serving.settings.bundle import load_bundle

KEY = "k" * 32
MODEL = "raydebm/knights_knaves"


@pytest.fixture
def limited_app(write_run, backend):
    """An application with one key and the given limits."""

    def make(*, key=None, **limits):
        bundle = load_bundle(AppArgs(run_dir=write_run(), limits=limits))
        sha256 = hashlib.sha256(KEY.encode()).hexdigest()
        ring = Keyring([ApiKey(name="a", sha256=sha256, **(key or {}))])
        return create_app(TriageService(bundle, backend), keyring=ring)

    return make


def together(app, count, path="/v1/triage", body=None):
    async def send():
        headers = {"Authorization": f"Bearer {KEY}"}
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await asyncio.gather(*(client.post(path, json=body) for _ in range(count)))

    return asyncio.run(send())


@pytest.fixture
def while_busy(puzzle, backend):
    """Runs what is asked while one request, which came first, is in the backend's hands with so many problems; (its
    result, the first's status)."""

    def run(app, ask, path="/v1/triage", body=None, count=1):
        async def send():
            headers = {"Authorization": f"Bearer {KEY}"}
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                backend.held = True
                busy = asyncio.create_task(client.post(path, json=body or {"problem": puzzle}))
                while len(backend.requests) < count:
                    await asyncio.sleep(0)
                answer = await ask(client)
                backend.held = False
                return answer, (await busy).status_code

        return asyncio.run(send())

    return run


def test_a_bucket_gives_a_minutes_worth_at_once_and_then_one_by_one():
    bucket = TokenBucket(6, now=0.0)
    assert [bucket.take(0.0) for _ in range(6)] == [0.0] * 6
    assert bucket.take(0.0) == 10.0
    assert bucket.take(4.0) == pytest.approx(6.0)
    assert bucket.take(10.0) == 0.0


def test_a_bucket_lets_several_go_together_or_none():
    bucket = TokenBucket(6, now=0.0)
    assert bucket.take(0.0, 4) == 0.0
    assert bucket.take(0.0, 3) == 10.0  # two are left, and one comes every ten seconds
    assert bucket.take(0.0, 2) == 0.0


def test_more_than_a_bucket_holds_goes_from_a_full_one_and_the_next_waits_for_it():
    bucket = TokenBucket(6, now=0.0)
    assert bucket.take(0.0, 10) == 0.0
    assert bucket.take(0.0) == 50.0  # four too many, and one
    assert bucket.take(20.0, 10) == 80.0  # it holds six again after 100 s


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.5, 100))
def test_a_bucket_never_gives_more_than_its_rate(pauses, per_minute):
    now, granted = 0.0, 0
    bucket = TokenBucket(per_minute, now=now)
    for pause in pauses:
        now += pause
        granted += bucket.take(now) == 0.0
    assert granted <= max(1, per_minute) + per_minute * now / 60 + 1e-6


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30), st.floats(0.5, 100))
def test_who_waits_as_told_is_let_in(pauses, per_minute):
    now, bucket = 0.0, TokenBucket(per_minute, now=0.0)
    for pause in pauses:
        now += pause
        wait_s = bucket.take(now)
        if wait_s:
            now += wait_s + 1e-6
            assert bucket.take(now) == 0.0


def test_a_key_above_its_rate_is_told_when_to_come_back(limited_app, puzzle):
    app = limited_app(requests_per_minute=2)
    first, second, third = together(app, 3, body={"problem": puzzle})
    assert sorted(reply.status_code for reply in (first, second, third)) == [200, 200, 429]
    refused = max((first, second, third), key=lambda reply: reply.status_code)
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert (refused.json()["error"]["code"], refused.json()["error"]["type"]) == (
        "rate_limit_exceeded",
        "rate_limit_error",
    )


def test_a_keys_own_limit_goes_before_the_default(limited_app, puzzle):
    app = limited_app(key={"requests_per_minute": 5}, requests_per_minute=1)
    assert {reply.status_code for reply in together(app, 5, body={"problem": puzzle})} == {200}


def held_back(backend, app, posts, num_refused):
    """(refused replies, statuses of the others): nothing is answered before ``num_refused`` requests were refused."""

    async def send():
        headers = {"Authorization": f"Bearer {KEY}"}
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            backend.held = True
            waiting = {asyncio.create_task(client.post(path, json=body)) for path, body in posts}
            done = set()
            while len(done) < num_refused:
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= ended
            backend.held = False
            return [task.result() for task in done], [reply.status_code for reply in await asyncio.gather(*waiting)]

    return asyncio.run(send())


def test_a_key_has_only_so_many_open_requests(limited_app, backend, puzzle):
    posts = [("/v1/triage", {"problem": puzzle})] * 5
    refused, others = held_back(backend, limited_app(max_concurrent=2), posts, 3)
    assert [reply.status_code for reply in refused] == [429] * 3
    assert others == [200, 200]


def test_beyond_the_queue_requests_are_refused_at_once(limited_app, backend, puzzle):
    posts = [("/v1/triage", {"problem": puzzle})] * 6
    refused, others = held_back(backend, limited_app(max_running=1, max_waiting=2), posts, 3)
    assert [reply.status_code for reply in refused] == [503] * 3
    assert others == [200] * 3
    assert (refused[0].json()["error"]["code"], refused[0].headers["retry-after"]) == ("overloaded", "1")


def test_who_waits_too_long_is_refused(limited_app, backend, puzzle):
    posts = [("/v1/triage", {"problem": puzzle})] * 2
    refused, others = held_back(backend, limited_app(max_running=1, max_wait_s=0.02), posts, 1)
    assert ([reply.status_code for reply in refused], others) == ([503], [200])


def test_an_overloaded_service_refuses_before_it_reads_the_body(limited_app, while_busy):
    async def body():
        raise AssertionError("the body was read")
        yield b""

    async def ask(client):
        return (await client.post("/v1/triage", content=body())).status_code

    assert while_busy(limited_app(max_running=1, max_waiting=0), ask) == (503, 200)


def test_health_passes_a_full_queue(limited_app, while_busy, puzzle):
    async def ask(client):
        statuses = [(await client.get(path)).status_code for path in ("/health", "/v1/models")]
        return [*statuses, (await client.post("/v1/triage", json={"problem": puzzle})).status_code]

    assert while_busy(limited_app(max_running=1, max_waiting=0), ask) == ([200, 200, 503], 200)


def test_a_stream_holds_its_place_until_it_ends(limited_app, backend, puzzle):
    body = {"model": MODEL, "messages": [{"role": "user", "content": puzzle}], "stream": True}
    posts = [("/v1/chat/completions", body)] * 2
    refused, others = held_back(backend, limited_app(max_running=1, max_waiting=0), posts, 1)
    assert ([reply.status_code for reply in refused], others) == ([503], [200])


def test_places_come_back_after_failures(limited_app, backend, puzzle):
    app = limited_app(max_running=1, max_waiting=0, max_concurrent=1)
    backend.write = lambda request: ZeroDivisionError()
    assert [together(app, 1, body={"problem": puzzle})[0].status_code for _ in range(3)] == [500, 500, 500]


def test_the_official_client_waits_as_told_and_succeeds(limited_app, puzzle):
    app = limited_app(requests_per_minute=60)
    together(app, 60, "/v1/score", {"text_1": "p", "text_2": "a"})

    async def call():
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key=KEY, http_client=http, max_retries=3)
        return await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": puzzle}])

    assert asyncio.run(call()).choices[0].message.content


def test_waiting_requests_are_served_in_their_order_and_counted():
    async def run():
        admission, order = Admission(LimitArgs(max_running=1, max_waiting=3)), []

        async def work(name):
            async with admission.place():
                order.append(name)
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(work(name)) for name in range(4)]
        await asyncio.sleep(0)
        seen = admission.num_running, admission.num_waiting
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen, order, admission.num_running, admission.num_waiting

    assert asyncio.run(run()) == ((1, 3), [0, 1, 3], 0, 0)


def test_a_request_that_begins_to_wait_is_told_at_once():
    """While every place is held for minutes, nothing else would tell of it."""

    async def run():
        told = []
        admission = Admission(
            LimitArgs(max_running=1), on_change=lambda: told.append((admission.num_running, admission.num_waiting))
        )
        async with admission.place():
            waiting = asyncio.create_task(admission.place().__aenter__())
            await asyncio.sleep(0)
            seen = list(told)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return seen

    assert asyncio.run(run()) == [(1, 0), (1, 1)]


def test_open_requests_of_a_key_are_counted_also_when_they_fail():
    limits, key = KeyLimits(LimitArgs(max_concurrent=1)), ApiKey(name="a", sha256="0" * 64)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), limits.open(key):
            raise ZeroDivisionError
    with limits.open(key), pytest.raises(TooManyError, match="1 open requests"), limits.open(key):
        pass


def test_a_refusal_survives_a_process_boundary():
    refusal = pickle.loads(pickle.dumps(TooManyError("m", 429, 1.5)))
    assert (str(refusal), refusal.status, refusal.code, refusal.retry_after_s) == ("m", 429, "rate_limit_exceeded", 2)
