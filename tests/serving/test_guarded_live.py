"""The guard, metrics and cancelling on real Serve: keys, limits, a client that goes away, Prometheus."""

import contextlib
import hashlib
import json
import shutil
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import openai
import pytest
import yaml

from raydebm.serving.launch import deployed
from raydebm.store import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.slow]

KEY = "d00d" * 10
SLOW_KEY = "5107" * 10


class Upstream(ThreadingHTTPServer):
    """An endpoint that never answers, and knows which clients still wait."""

    daemon_threads = True

    def __init__(self):
        self.waiting, self.closing = set(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.waiting.add(self.client_address)
        self.connection.settimeout(0.1)
        while not self.server.closing.is_set():
            with contextlib.suppress(TimeoutError):
                if self.connection.recv(1) == b"":
                    self.server.waiting.discard(self.client_address)
                    return

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def upstream():
    server = Upstream()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def url(local_ray, live_run, upstream, repository, tmp_path_factory, new_port):
    folder = tmp_path_factory.mktemp("guarded")
    shutil.copytree(live_run, folder / "run")
    run = RunDir(str(folder / "run"))
    recipe = run.read_json("recipe.json")
    endpoint = f"http://127.0.0.1:{upstream.server_address[1]}/v1"
    hanging = {"kind": "openai", "name": "hanging", "model": "m", "base_url": endpoint, "api_key_env": None}
    recipe["generators"] = [recipe["generators"][0], hanging]
    run.write_json(recipe, "recipe.json")
    keys = folder / "keys.yaml"
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in (KEY, SLOW_KEY)]
    keys.write_text(
        yaml.safe_dump(
            {
                "keys": [
                    {"name": "team", "sha256": hashes[0]},
                    {"name": "slow", "sha256": hashes[1], "requests_per_minute": 1},
                ]
            }
        )
    )
    args = {
        "run_dir": run.root,
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "limits": {"keys_file": str(keys)},
        "policies": {"recorded-only": {"generators": ["recorded"]}, "hanging-only": {"generators": ["hanging"]}},
    }
    with deployed(repository / "serve_config.yaml", port=new_port(), args=args, timeout_s=600) as address:
        yield address


@pytest.fixture
def http(url):
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=240) as client:
        yield client


def eventually(condition, *, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def ask(client, puzzle, policy="recorded-only"):
    return client.post("/v1/triage", json={"problem": puzzle, "policy": policy})


def test_a_key_is_needed(url, puzzle, http):
    assert ask(http, puzzle).status_code == 200
    reply = httpx.post(f"{url}/v1/triage", json={"problem": puzzle}, timeout=240)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert eventually(lambda: httpx.get(f"{url}/health", timeout=240).status_code == 200)  # 503 while it is too busy


def test_the_official_client_raises_its_own_errors(url, puzzle):
    messages = [{"role": "user", "content": puzzle}]
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="nobody", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model="raydebm/auto@recorded-only", messages=messages)
    slow = openai.OpenAI(base_url=f"{url}/v1", api_key=SLOW_KEY, max_retries=0)
    assert slow.models.list().data[0].id == "raydebm/knights_knaves"
    with pytest.raises(openai.RateLimitError) as caught:
        slow.models.list()
    assert int(caught.value.response.headers["retry-after"]) >= 1


def test_the_official_client_asks_for_one_model(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    assert client.models.retrieve("raydebm/auto@recorded-only").id == "raydebm/auto@recorded-only"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_the_request_to_the_endpoint(url, upstream, puzzle, stream):
    port = int(url.rpartition(":")[2])
    chat = {"model": "raydebm/auto@hanging-only", "messages": [{"role": "user", "content": puzzle}], "stream": stream}
    content = json.dumps(chat).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=240) as client:
        client.sendall(head.encode() + content)
        assert eventually(lambda: upstream.waiting)
        time.sleep(0.5)
        assert upstream.waiting
    assert eventually(lambda: not upstream.waiting)


def test_prometheus_finds_the_metrics(local_ray, http, puzzle):
    assert ask(http, puzzle).status_code == 200
    port = local_ray.nodes()[0]["MetricsExportPort"]
    wanted = {
        "ray_raydebm_requests_total",
        "ray_raydebm_request_seconds_bucket",
        "ray_raydebm_requests_running",
        "ray_raydebm_requests_waiting",
        "ray_raydebm_decisions_total",
        "ray_raydebm_stage_seconds_bucket",
        "ray_raydebm_energy_plus_100_bucket",
        "ray_raydebm_sigma_bucket",
        "ray_raydebm_candidates_total",
        "ray_raydebm_tokens_total",
        "ray_raydebm_batch_requests_bucket",
        "ray_raydebm_batch_texts_bucket",
    }
    deadline, missing = time.monotonic() + 240, wanted
    while missing and time.monotonic() < deadline:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=240).text
        missing = {name for name in wanted if name not in text}
        time.sleep(0.5)
    assert not missing
    assert 'decision="accept"' in text
    assert KEY not in text
