"""``raydebm serve`` on the cluster: official client, plain HTTP, a killed replica under load, SIGTERM in flight."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import openai
import pytest
from hand_written_run import PUZZLE
from tiny_service_run import make_models, make_run
from upstream import Upstream

from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray
RECORDED = {"generators": ["recorded"]}
NUM_CLIENTS = 8


@pytest.fixture(scope="module")
def service(local_ray, tmp_path_factory, new_port, eventually):
    """A service with a recorded model, wrong in pass 1 and right in pass 2, and one that waits for a gate."""
    folder = tmp_path_factory.mktemp("service")
    run = RunDir(make_run(folder, *make_models(tmp_path_factory.mktemp("models"))))
    upstream = Upstream()
    gated = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "name": "gated", "model": "gated"}
    recipe = run.read_json("recipe.json")
    run.write_json({**recipe, "generators": [recipe["generators"][0], gated]}, "recipe.json")
    port = new_port()
    command = [sys.executable, "-m", "raydebm", "serve", "--run-dir", run.root, "--port", str(port)]
    environ = os.environ | {"RAY_ADDRESS": local_ray.get_runtime_context().gcs_address}
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environ, stderr=log) as process:
        try:
            assert eventually(lambda: process.poll() is not None or is_healthy(url), seconds=400)
            assert process.poll() is None, (folder / "log").read_text()
            yield SimpleNamespace(url=url, process=process, upstream=upstream, folder=folder)
        finally:
            process.kill()
            upstream.close()


def is_healthy(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=30).status_code == 200
    return False


def ask(service, **changes):
    return httpx.post(f"{service.url}/v1/triage", json={"problem": PUZZLE, **RECORDED, **changes}, timeout=300)


def test_the_official_client_gets_the_improved_answer(service):
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=300)
    reply = client.chat.completions.create(
        model="raydebm/knights_knaves", messages=[{"role": "user", "content": PUZZLE}], extra_body={"raydebm": RECORDED}
    )

    assert reply.choices[0].message.content.startswith("Ava contradicts herself")
    assert reply.model_extra["raydebm"]["num_passes"] == 2


def test_triage_gives_the_decision_and_the_feedback_that_led_to_it(service):
    answer = ask(service).json()

    assert (answer["decision"], answer["answer"]) == ("accept", '{"Ava": "knave", "Zoey": "knight"}')
    assert "Your answer breaks these rules" in answer["feedback"][0]


def test_scores_of_a_text_are_those_of_both_adapters(service):
    reply = httpx.post(f"{service.url}/v1/score", json={"text_1": PUZZLE, "text_2": ["a", "b"]}, timeout=300).json()

    assert [len(entry["members"]) for entry in reply["data"]] == [2, 2]


def test_killing_a_scorer_replica_under_load_fails_no_request(service, local_ray, eventually):
    """Each client has answers before the replica is killed and after it."""
    statuses, stop = [[] for _ in range(4)], threading.Event()

    def ask_on(codes):
        while not stop.is_set():
            codes.append(ask(service).status_code)

    def wait_for_more():
        """Two more from each client: the first of them may have been on its way."""
        least = [len(codes) + 2 for codes in statuses]
        assert eventually(lambda: all(len(codes) >= wanted for codes, wanted in zip(statuses, least, strict=True)))

    with ThreadPoolExecutor(len(statuses)) as pool:
        running = [pool.submit(ask_on, codes) for codes in statuses]
        try:
            wait_for_more()
            names = [actor["name"] for actor in local_ray.util.list_named_actors(all_namespaces=True)]
            name = next(name for name in names if "ScorerDeployment#" in name)
            local_ray.kill(local_ray.get_actor(name, namespace="serve"), no_restart=True)
            wait_for_more()
        finally:
            stop.set()
    assert [task.exception() for task in running] == [None] * len(running)
    assert {status for codes in statuses for status in codes} == {200}


def test_a_service_that_is_told_to_end_answers_what_runs_and_refuses_what_comes(service, eventually):
    """Last, because the service has ended then."""
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        gated = {"generators": ["gated"], "num_samples": 1, "max_passes": 1}
        running = [clients.submit(ask, service, seed=seed, **gated) for seed in range(NUM_CLIENTS)]
        assert eventually(lambda: len(service.upstream.sent_to("gated")) == NUM_CLIENTS)
        service.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: httpx.get(f"{service.url}/health", timeout=60).status_code == 503)
        refused = ask(service)
        service.upstream.gate.set()
        assert [future.result().status_code for future in running] == [200] * NUM_CLIENTS
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert service.process.wait(timeout=200) == 0
