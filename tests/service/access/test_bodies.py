"""Bodies are read before a request takes a place, within a time."""

import asyncio
import contextlib
import socket

import httpx
import pytest
from starlette.requests import ClientDisconnect

from raydebm.errors import ServiceError
from raydebm.service.access import MAX_BODY_S, read_body


def chunks(*parts, pause_s=0.0):
    """An ASGI ``receive`` that gives these parts, each after a pause."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False

    async def receive():
        await asyncio.sleep(pause_s)
        return messages.pop(0)

    return receive


def read(receive, *, headers=()):
    return read_body({"headers": list(headers)}, receive, max_bytes=100)


def code_of(run_virtually, receive, **kwargs):
    with pytest.raises(ServiceError) as caught:
        run_virtually(read(receive, **kwargs))
    return caught.value.status, caught.value.code


def test_the_time_is_for_the_whole_body(run_virtually):
    """Forty bytes, one a second: no pause is long, and together they are."""
    assert MAX_BODY_S < 40
    assert code_of(run_virtually, chunks(*[b"x"] * 40, pause_s=1.0)) == (408, "body_too_slow")


def test_a_body_above_the_limit_is_refused_while_it_comes(run_virtually):
    assert code_of(run_virtually, chunks(b"x" * 60, b"x" * 60, b"x")) == (413, "body_too_large")


def test_a_body_that_says_it_is_too_large_is_not_read(run_virtually):
    async def receive():
        raise AssertionError("the body was read")

    assert code_of(run_virtually, receive, headers=[(b"content-length", b"101")]) == (413, "body_too_large")


def test_a_client_that_goes_away_while_it_sends_is_no_error_of_the_service(run_virtually):
    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        run_virtually(read(receive))


def test_slow_uploads_take_no_places(free_port, puzzle, listening, bundle_of, app_of):
    app = app_of(bundle_of(limits={"max_running": 1}))
    head = b"POST /v1/triage HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{"
    with listening(app, free_port), contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", free_port), timeout=60)).sendall(head)
        reply = httpx.post(f"http://127.0.0.1:{free_port}/v1/triage", json={"problem": puzzle}, timeout=60)
    assert reply.status_code == 200
