"""Endpoints that are slow, hang or fail, over real sockets on real Serve. No test waits for time to pass."""

import contextlib
import json
import shutil
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from raydebm.serving.launch import deployed
from raydebm.store import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.slow]

MODELS = ("prompt", "gated", "hanging", "hangs-once", "broken")
RIGHT = 'Ava contradicts herself, so Zoey is right. {"Ava": "knave", "Zoey": "knight"}'


class Upstream(ThreadingHTTPServer):
    """An endpoint whose models do as they are called: ``gated`` answers once ``gate`` is open, ``hanging`` never."""

    daemon_threads = True

    def __init__(self):
        self.gate, self.closing = threading.Event(), threading.Event()
        self.waiting, self.asked, self.seeds = set(), Counter(), []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server, model = self.server, body["model"]
        server.asked[model] += 1
        server.seeds.append((model, body["seed"]))
        if model == "broken":
            self.send_error(500)
        elif model == "hanging" or (model == "hangs-once" and server.asked[model] == 1):
            self._hang()
        else:
            if model == "gated":
                server.gate.wait(600)
            reply = {"choices": [{"message": {"content": RIGHT}, "finish_reason": "stop"}]}
            content = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _hang(self):
        """Until the client goes away."""
        self.server.waiting.add(self.client_address)
        self.connection.settimeout(0.1)
        while not self.server.closing.is_set():
            with contextlib.suppress(TimeoutError):
                if self.connection.recv(1) == b"":
                    break
        self.server.waiting.discard(self.client_address)
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def upstream():
    server = Upstream()
    yield server
    server.closing.set()
    server.gate.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def url(local_ray, live_run, upstream, repository, tmp_path_factory, new_port):
    root = tmp_path_factory.mktemp("slow") / "run"
    shutil.copytree(live_run, root)
    run = RunDir(str(root))
    recipe = run.read_json("recipe.json")
    endpoint = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "max_retries": 0, "timeout_s": 600.0}
    recipe["generators"] = [{**endpoint, "name": name, "model": name, "num_samples": 1} for name in MODELS]
    run.write_json(recipe, "recipe.json")
    args = {"run_dir": run.root, "threads": 1, "device": "cpu", "dtype": "float32", "hedge_after_ms": 500}
    with deployed(repository / "serve_config.yaml", port=new_port(), args=args, timeout_s=600) as address:
        yield address


@pytest.fixture
def triage(url, puzzle):
    def ask(*generators, **changes):
        body = {"problem": puzzle, "generators": list(generators), "max_passes": 1, **changes}
        return httpx.post(f"{url}/v1/triage", json=body, timeout=600)

    return ask


def named(answer):
    return {found["name"]: found for found in answer["generators"]}


def eventually(condition, *, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_broken_endpoint_is_named_and_not_fatal(triage):
    answer = triage("prompt", "broken").json()

    assert (answer["decision"], answer["candidate"]["generator"]) == ("accept", "prompt")
    assert (named(answer)["broken"]["failed"], named(answer)["prompt"]["failed"]) == (1, 0)
    assert "HTTP 500" in named(answer)["broken"]["error"]


def test_numbers_of_the_first_candidate_are_out_while_the_second_is_written(url, puzzle, upstream):
    """The gate opens only when they are: without pipelining nobody would ever open it."""
    body = {"problem": puzzle, "generators": ["prompt", "gated"], "max_passes": 1, "stream": True}
    told = []
    with httpx.stream("POST", f"{url}/v1/triage", json=body, timeout=600) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            facts = json.loads(line.removeprefix("data: "))
            told.append(facts)
            if facts.get("event") == "scored" and facts["candidate"]["generator"] == "prompt":
                assert facts["candidate"]["sigma"] >= 0
                upstream.gate.set()

    kinds = [(facts.get("event"), facts.get("generator")) for facts in told]
    assert kinds.index(("scored", None)) < kinds.index(("candidate", "gated"))
    assert told[-1]["decision"] == "accept"


def test_a_late_endpoint_is_left_out_named_and_its_request_cancelled(triage, upstream):
    answer, deadline_ms = None, 2_000
    while answer is None or answer.status_code == 504:  # however slow the machine is, some deadline is long enough
        answer, deadline_ms = triage("prompt", "hanging", deadline_ms=deadline_ms), 2 * deadline_ms
    body = answer.json()

    assert (body["decision"], body["candidate"]["generator"]) == ("accept", "prompt")
    assert (named(body)["hanging"]["late"], named(body)["prompt"]["late"]) == (1, 0)
    assert eventually(lambda: not upstream.waiting)


def test_a_request_that_hangs_is_sent_again_with_the_same_seed(triage, upstream):
    answer = triage("hangs-once").json()

    assert answer["decision"] == "accept"
    assert upstream.asked["hangs-once"] == 2
    assert len({seed for model, seed in upstream.seeds if model == "hangs-once"}) == 1
    assert eventually(lambda: not upstream.waiting)


def test_a_deadline_that_nothing_meets_is_a_504(triage, upstream):
    reply = triage("hanging", deadline_ms=300)

    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert eventually(lambda: not upstream.waiting)


def test_energies_do_not_depend_on_when_candidates_came(url, puzzle):
    """Scored one by one or all at once by the served ensemble: the tolerance that docs/service.md states."""
    texts = [f"{'It follows. ' * place}{RIGHT}" for place in range(8)]

    def members(some):
        reply = httpx.post(f"{url}/v1/score", json={"text_1": puzzle, "text_2": some}, timeout=600)
        return [found["members"] for found in reply.json()["data"]]

    together, apart = members(texts), [members([text])[0] for text in texts]
    differences = [abs(a - b) for one, two in zip(together, apart, strict=True) for a, b in zip(one, two, strict=True)]
    assert max(differences) < 1e-4
