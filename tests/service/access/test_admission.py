"""Places and the bounded queue."""

import asyncio

import pytest
from decisions_by_hand import bearer, keyring
from hand_written_run import chat_body, session

from raydebm.errors import OverloadedError
from raydebm.service import access as admission
from raydebm.service.access import Admission


@pytest.fixture
def limited_app(bundle_of, app_of):
    """An application with one key, in which so many requests run."""
    return lambda max_running: app_of(bundle_of(limits={"max_running": max_running}), keyring=keyring("ada"))


@pytest.fixture
def while_busy(limited_app, puzzle, backend):
    """Runs what is asked while one request, which came first, holds the only place; (its result, the first's
    status)."""

    def run(ask):
        async def send():
            async with session(limited_app(1), headers=bearer("ada")) as client:
                backend.held = True
                busy = asyncio.create_task(client.post("/v1/triage", json={"problem": puzzle}))
                while not backend.requests:
                    await asyncio.sleep(0)
                answer = await ask(client)
                backend.held = False
                return answer, (await busy).status_code

        return asyncio.run(send())

    return run


def held_back(backend, app, posts, num_refused):
    """(refused replies, statuses of the others): nothing is answered before ``num_refused`` requests were refused."""

    async def send():
        async with session(app, headers=bearer("ada")) as client:
            backend.held = True
            waiting = {asyncio.create_task(client.post(path, json=body)) for path, body in posts}
            done = set()
            while len(done) < num_refused:
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= ended
            backend.held = False
            return [task.result() for task in done], [reply.status_code for reply in await asyncio.gather(*waiting)]

    return asyncio.run(send())


def test_beyond_the_queue_requests_are_refused_at_once(limited_app, backend, puzzle):
    """Four run, and a quarter as many wait."""
    refused, others = held_back(backend, limited_app(4), [("/v1/triage", {"problem": puzzle})] * 8, 3)
    assert [reply.status_code for reply in refused] == [503] * 3
    assert others == [200] * 5
    assert (refused[0].json()["error"]["code"], refused[0].headers["retry-after"]) == ("overloaded", "1")


@pytest.mark.parametrize(
    ("num_waiting", "retry_after_s"),
    [(0, 15), (3, 60)],  # two places that are held for 30 s: one becomes free every 15 s
)
def test_refused_requests_come_back_at_the_pace_of_the_queue(run_virtually, monkeypatch, num_waiting, retry_after_s):
    monkeypatch.setattr(admission, "MAX_WAIT_S", 100)

    async def work():
        places = Admission(2, num_waiting)

        async def request():
            async with places.place():
                await asyncio.sleep(30)

        await asyncio.gather(request(), request())  # the pace is known from these
        busy = [asyncio.create_task(request()) for _ in range(2 + num_waiting)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as caught:
            places.check()
        await asyncio.gather(*busy)
        return caught.value.retry_after_s

    assert run_virtually(work()) == retry_after_s


def test_the_pace_of_a_full_service_that_answered_nothing_yet_is_how_long_it_has_worked(run_virtually):
    async def work():
        places = Admission(1, 0)
        async with places.place():
            await asyncio.sleep(20)
            with pytest.raises(OverloadedError, match="try again in 20 s") as caught:
                places.check()
        return caught.value.retry_after_s

    assert run_virtually(work()) == 20


def test_who_waits_too_long_is_refused(limited_app, backend, puzzle, monkeypatch):
    monkeypatch.setattr(admission, "MAX_WAIT_S", 0.02)
    refused, others = held_back(backend, limited_app(4), [("/v1/triage", {"problem": puzzle})] * 5, 1)
    assert ([reply.status_code for reply in refused], others) == ([503], [200] * 4)


def test_an_overloaded_service_refuses_before_it_reads_the_body(while_busy):
    async def body():
        raise AssertionError("the body was read")
        yield b""

    async def ask(client):
        return (await client.post("/v1/triage", content=body())).status_code

    assert while_busy(ask) == (503, 200)


def test_health_passes_a_full_queue(while_busy, puzzle):
    async def ask(client):
        statuses = [(await client.get(path)).status_code for path in ("/health", "/v1/models")]
        return [*statuses, (await client.post("/v1/triage", json={"problem": puzzle})).status_code]

    assert while_busy(ask) == ([200, 200, 503], 200)


def test_a_stream_holds_its_place_until_it_ends(limited_app, backend, puzzle):
    posts = [("/v1/chat/completions", chat_body(puzzle, stream=True))] * 2
    refused, others = held_back(backend, limited_app(1), posts, 1)
    assert ([reply.status_code for reply in refused], others) == ([503], [200])
