"""The guard, metrics and cancelling on real Serve: keys, limits, a client that goes away, Prometheus."""

import json
import socket

import httpx
import pytest
from live_service import KEY

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_the_request_to_the_endpoint(live_service, puzzle, stream, eventually):
    upstream, port = live_service.upstream, int(live_service.url.rpartition(":")[2])
    chat = {
        "model": "raydebm/knights_knaves@hanging-only",
        "messages": [{"role": "user", "content": puzzle}],
        "stream": stream,
    }
    content = json.dumps(chat).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=240) as client:
        client.sendall(head.encode() + content)
        assert eventually(lambda: upstream.waiting_for("hanging"))
        assert live_service.ask(puzzle).status_code == 200
        assert upstream.waiting_for("hanging"), "it waits as long as its client does"
    assert eventually(lambda: not upstream.waiting_for("hanging"))


def test_prometheus_finds_the_metrics(local_ray, live_service, puzzle, eventually):
    assert live_service.ask(puzzle).status_code == 200
    port = local_ray.nodes()[0]["MetricsExportPort"]
    wanted = {
        "ray_raydebm_requests_total",
        "ray_raydebm_request_seconds_bucket",
        "ray_raydebm_requests_waiting",
        "ray_raydebm_decisions_total",
        "ray_raydebm_sigma_bucket",
        "ray_raydebm_candidates_total",
        "ray_raydebm_tokens_total",
    }
    texts = []

    def missing():
        texts.append(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=240).text)
        return {name for name in wanted if name not in texts[-1]}

    assert eventually(lambda: not missing()), missing()
    assert 'decision="accept"' in texts[-1]
    assert KEY not in texts[-1]
