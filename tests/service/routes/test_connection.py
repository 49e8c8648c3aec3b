"""A client that goes away: its work is cancelled, over a real server and a real connection."""

import json
import logging
import socket

import httpx
import pytest
from hand_written_run import chat_body

from raydebm.service.routes import streams as connection


def open_request(port, path, body):
    """A raw connection on which a request was sent and nothing read."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(content)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_work_is_cancelled_when_the_client_goes_away(app, backend, free_port, puzzle, stream, listening, eventually):
    backend.pause_s = 60.0
    with listening(app, free_port):
        client = open_request(free_port, "/v1/chat/completions", chat_body(puzzle, stream=stream))
        assert eventually(lambda: backend.requests)
        assert not backend.cancelled
        client.close()
        assert eventually(lambda: backend.cancelled)


def test_comments_keep_a_silent_connection_open(app, backend, free_port, puzzle, monkeypatch, listening):
    monkeypatch.setattr(connection, "KEEP_ALIVE_S", 0.05)
    backend.pause_s = 60.0
    with listening(app, free_port):
        client = open_request(free_port, "/v1/chat/completions", chat_body(puzzle, stream=True))
        received = b""
        while received.count(b": keep-alive\n\n") < 3:
            received += (part := client.recv(65536))
            assert part, f"the connection ended after {received!r}"
        client.close()
    assert b"text/event-stream" in received


def test_the_place_of_a_gone_client_is_free_again(backend, free_port, puzzle, listening, eventually, bundle_of, app_of):
    app = app_of(bundle_of(limits={"max_running": 1}))
    backend.pause_s = 60.0
    with listening(app, free_port):
        client = open_request(free_port, "/v1/triage", {"problem": puzzle})
        assert eventually(lambda: backend.requests)
        url = f"http://127.0.0.1:{free_port}/v1/triage"
        assert httpx.post(url, json={"problem": puzzle}, timeout=60).status_code == 503
        client.close()
        backend.pause_s = 0.0
        assert eventually(lambda: httpx.post(url, json={"problem": puzzle}, timeout=60).status_code == 200)


def statuses(caplog):
    return [record.facts["status"] for record in caplog.records if record.getMessage() == "request"]


def test_a_gone_client_leaves_one_line_and_no_alarm(app, backend, free_port, puzzle, caplog, listening, eventually):
    backend.pause_s = 60.0
    with caplog.at_level(logging.INFO), listening(app, free_port):
        for stream in (True, False):
            count = len(backend.requests)
            client = open_request(free_port, "/v1/chat/completions", chat_body(puzzle, stream=stream))
            assert eventually(lambda count=count: len(backend.requests) > count)
            client.close()
        assert eventually(lambda: len(statuses(caplog)) == 2)
    assert statuses(caplog) == [499, 499]
    assert max(record.levelno for record in caplog.records) == logging.INFO
