"""`raydebm serve` ended by a signal while requests run: none of them is lost."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from upstream import Upstream

from raydebm.run.directory import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NUM_CLIENTS = 16


STOP = """
import ray, time
from ray import serve
from raydebm.service.ray.shutdown import stop_serve

ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(proxy_location="Disabled")
stop_serve()
names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
time.sleep(3)
print("left:", names)
stop_serve()
print("ended")
"""


def test_the_end_of_serve_is_silent_and_leaves_no_controller():
    """``serve.shutdown`` makes Ray print that a task of the controller failed."""
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", STOP], env=environ, capture_output=True, text=True, timeout=600, check=True
    )

    assert "left: []" in done.stdout
    assert "graceful_shutdown" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ended"


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def gated_run(live_run, upstream, tmp_path):
    """A run whose only generator answers once the upstream's gate is open."""
    run = RunDir(str(shutil.copytree(live_run, tmp_path / "run")))
    gated = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "name": "gated", "model": "gated"}
    run.write_json({**run.read_json("recipe.json"), "generators": [gated]}, "recipe.json")
    return run.root


def ignore_interrupts():
    """As a shell does it for what a script starts with ``&``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def serving_command(run_dir, port, log):
    command = [sys.executable, "-m", "raydebm", "serve", "--run-dir", run_dir, "--port", str(port)]
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environ, stderr=errors, preexec_fn=ignore_interrupts)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def is_ready(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=10).status_code == 200
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_request_in_flight_is_lost(gated_run, upstream, puzzle, free_port, eventually, tmp_path, number):
    log = tmp_path / "log"
    url = f"http://127.0.0.1:{free_port}"

    def ask(seed):
        body = {"problem": puzzle, "num_samples": 1, "max_passes": 1, "seed": seed}
        return httpx.post(f"{url}/v1/triage", json=body, timeout=300).status_code

    with serving_command(gated_run, free_port, log) as process, ThreadPoolExecutor(NUM_CLIENTS) as clients:
        assert eventually(lambda: process.poll() is not None or is_ready(url))
        assert process.poll() is None
        renamed = httpx.get(f"{url}/health", headers={"X-Request-ID": "<script>"}, timeout=60)
        running = [clients.submit(ask, seed) for seed in range(NUM_CLIENTS)]
        assert eventually(lambda: len(upstream.sent_to("gated")) == NUM_CLIENTS)
        process.send_signal(number)
        assert eventually(lambda: httpx.get(f"{url}/health", timeout=60).status_code == 503)
        refused = httpx.post(f"{url}/v1/triage", json={"problem": puzzle}, timeout=60)
        upstream.gate.set()
        assert [future.result() for future in running] == [200] * NUM_CLIENTS
        assert process.wait(timeout=120) == 0
    assert re.fullmatch("[0-9a-f]{32}", renamed.headers["x-request-id"])  # Serve's own proxy would echo it
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert int(refused.headers["retry-after"]) >= 1
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"message": "request"' in line]
    assert [line["status"] for line in lines if line["route"] == "/v1/triage"].count(200) == NUM_CLIENTS
