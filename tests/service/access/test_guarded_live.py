"""The guard, metrics and cancelling on real Serve: keys, limits, a client that goes away, Prometheus."""

import json
import socket

import httpx
import openai
import pytest
from live_service import KEY, SPENT_KEY

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_key_is_needed(live_service, puzzle):
    assert live_service.ask(puzzle).status_code == 200
    reply = live_service.post("/v1/triage", {"problem": puzzle}, headers={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_official_client_raises_its_own_errors(live_service, puzzle):
    messages = [{"role": "user", "content": puzzle}]
    stranger = openai.OpenAI(base_url=f"{live_service.url}/v1", api_key="nobody", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model="raydebm/knights_knaves@recorded-only", messages=messages)
    spent = openai.OpenAI(base_url=f"{live_service.url}/v1", api_key=SPENT_KEY, max_retries=0)
    assert spent.models.list().data[0].id == "raydebm/knights_knaves"
    with pytest.raises(openai.RateLimitError) as caught:
        spent.chat.completions.create(model="raydebm/knights_knaves@recorded-only", messages=messages)
    assert caught.value.code == "insufficient_quota"


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
