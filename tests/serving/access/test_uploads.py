"""Bodies are read before a request takes a place; who sends slowly holds up nobody."""

import asyncio
import contextlib
import socket

import httpx
import pytest
from starlette.requests import ClientDisconnect

from raydebm.errors import ServiceError
from raydebm.serving.access.uploads import Uploads, replayed
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs, LimitArgs
from raydebm.serving.settings.bundle import load_bundle

SCOPE = {"headers": []}


def chunks(*parts, pause_s=0.0):
    """An ASGI ``receive`` that gives these parts, each after a pause."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False

    async def receive():
        await asyncio.sleep(pause_s)
        return messages.pop(0)

    return receive


def upload(limits, receive, *, max_bytes=100, scope=SCOPE):
    return Uploads(LimitArgs(**limits), max_bytes=max_bytes).read(scope, receive)


def code_of(run_virtually, *args, **kwargs):
    with pytest.raises(ServiceError) as caught:
        run_virtually(upload(*args, **kwargs))
    return caught.value.status, caught.value.code


def test_a_body_is_put_together(run_virtually):
    assert run_virtually(upload({}, chunks(b"ab", b"", b"c"))) == b"abc"


def test_the_time_is_for_the_whole_body(run_virtually):
    """Twenty bytes, one a second: no pause is long, and together they are."""
    trickle = chunks(*[b"x"] * 20, pause_s=1.0)
    assert code_of(run_virtually, {"max_body_s": 10}, trickle) == (408, "body_too_slow")


def test_a_body_whose_time_is_up_leaves_its_room_to_the_next_one(run_virtually):
    """The next one comes after the first one's clock has rung, and before the task that reads it wakes up."""

    async def work():
        uploads = Uploads(LimitArgs(max_uploading=1, max_body_s=5), max_bytes=100)

        async def later():
            await asyncio.sleep(5)
            return await uploads.read(SCOPE, chunks(b"ok"))

        next_one = asyncio.create_task(later())
        first = asyncio.create_task(uploads.read(SCOPE, chunks(b"x", pause_s=60.0)))
        return await asyncio.gather(first, next_one, return_exceptions=True)

    refused, body = run_virtually(work())
    assert (refused.code, body) == ("body_too_slow", b"ok")


def test_a_body_above_the_limit_is_refused_while_it_comes(run_virtually):
    assert code_of(run_virtually, {}, chunks(b"x" * 60, b"x" * 60, b"x"), max_bytes=100) == (413, "body_too_large")


def test_a_body_that_says_it_is_too_large_is_not_read(run_virtually):
    async def receive():
        raise AssertionError("the body was read")

    scope = {"headers": [(b"content-length", b"101")]}
    assert code_of(run_virtually, {}, receive, max_bytes=100, scope=scope) == (413, "body_too_large")


def test_a_client_that_goes_away_while_it_sends_is_no_error_of_the_service(run_virtually):
    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        run_virtually(upload({}, receive))


def test_beyond_the_limit_the_oldest_upload_is_given_up(run_virtually):
    async def work():
        uploads = Uploads(LimitArgs(max_uploading=2), max_bytes=100)
        slow = [asyncio.create_task(uploads.read(SCOPE, chunks(b"x", pause_s=20.0))) for _ in range(2)]
        await asyncio.sleep(1)
        quick = await uploads.read(SCOPE, chunks(b"quick"))
        return quick, await asyncio.gather(*slow, return_exceptions=True)

    quick, (first, second) = run_virtually(work())
    assert (quick, second) == (b"quick", b"x")
    assert (first.status, first.code) == (408, "body_too_slow")


def test_a_replayed_body_comes_once_and_then_what_the_client_does():
    async def gone():
        return {"type": "http.disconnect"}

    async def work():
        receive = replayed(b"body", gone)
        return [await receive(), await receive()]

    first, second = asyncio.run(work())
    assert first == {"type": "http.request", "body": b"body", "more_body": False}
    assert second == {"type": "http.disconnect"}


# ---- over real connections -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def trickling(port, count):
    """So many connections that have sent the head of a request and a byte of its body."""
    with contextlib.ExitStack() as stack:
        head = b"POST /v1/triage HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{"
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)).sendall(head)
        yield


def test_slow_uploads_take_no_places(write_run, backend, free_port, puzzle, listening):
    limits = {"max_running": 1, "max_waiting": 0, "max_uploading": 50}
    app = create_app(TriageService(load_bundle(AppArgs(run_dir=write_run(), limits=limits)), backend))
    url = f"http://127.0.0.1:{free_port}/v1/triage"
    with listening(app, free_port), trickling(free_port, 500):
        statuses = [httpx.post(url, json={"problem": puzzle}, timeout=60).status_code for _ in range(5)]
    assert statuses == [200] * 5
