"""``serve run`` on the cluster: official client, plain HTTP, a scorer added and one killed under load; and SIGTERM in
flight, for ``raydebm serve``."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import httpx
import openai
import pytest
import yaml
from hand_written_run import PUZZLE
from ray import serve
from tiny_service_run import make_models, make_run
from upstream import Upstream

from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray
RECORDED = {"generators": ["recorded"]}
NUM_CLIENTS = 8
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A run with a recorded model, wrong in pass 1 and right in pass 2, and one that waits for a gate."""
    folder = tmp_path_factory.mktemp("service")
    run = RunDir(make_run(folder, *make_models(tmp_path_factory.mktemp("models"))))
    upstream = Upstream()
    gated = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "name": "gated", "model": "gated"}
    recipe = run.read_json("recipe.json")
    run.write_json({**recipe, "generators": [recipe["generators"][0], gated]}, "recipe.json")
    yield SimpleNamespace(run_dir=run.root, upstream=upstream, folder=folder)
    upstream.close()


@contextlib.contextmanager
def started(command, prepared, local_ray, eventually, *, port):
    """The service of a command, from the time when it is healthy."""
    environ = os.environ | {"RAY_ADDRESS": local_ray.get_runtime_context().gcs_address}
    url, log = f"http://127.0.0.1:{port}", prepared.folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, env=environ, stdout=output, stderr=output) as process:
        try:
            assert eventually(lambda: process.poll() is not None or is_healthy(url), seconds=400)
            assert process.poll() is None, log.read_text()
            yield SimpleNamespace(url=url, process=process, upstream=prepared.upstream)
        finally:
            process.kill()


@pytest.fixture(scope="class")
def service(prepared, local_ray, new_port, eventually, repository):
    """``serve run`` of ``serve_config.yaml`` with this run; a second scorer is added at the slightest load."""
    tree, port = yaml.safe_load((repository / "serve_config.yaml").read_text()), new_port()
    tree["http_options"]["port"] = port
    application = tree["applications"][0]
    application["args"] |= {"run_dir": prepared.run_dir, "device": "cpu"}
    for deployment in application["deployments"]:
        if deployment["name"] == "ScorerDeployment":
            deployment["autoscaling_config"] |= {"target_ongoing_requests": 0.01, "upscale_delay_s": 1.0}
    config = prepared.folder / "serve_config.yaml"
    config.write_text(json.dumps(tree), encoding="utf-8")
    with started([BIN / "serve", "run", config], prepared, local_ray, eventually, port=port) as running:
        yield running
        serve.shutdown()  # of the cluster; the command may have been started where SIGINT is ignored


def is_healthy(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=30).status_code == 200
    return False


def ask(service, **changes):
    return httpx.post(f"{service.url}/v1/triage", json={"problem": PUZZLE, **RECORDED, **changes}, timeout=300)


@contextlib.contextmanager
def load(service, eventually, *, num_clients=4):
    """Clients that ask without pause, all of whom must be answered; yields a wait for two more answers of each."""
    statuses, stop = [[] for _ in range(num_clients)], threading.Event()

    def ask_on(codes):
        while not stop.is_set():
            codes.append(ask(service).status_code)

    def wait_for_more():
        """Two more from each client: the first of them may have been on its way."""
        least = [len(codes) + 2 for codes in statuses]
        assert eventually(lambda: all(len(codes) >= wanted for codes, wanted in zip(statuses, least, strict=True)))

    with ThreadPoolExecutor(num_clients) as pool:
        running = [pool.submit(ask_on, codes) for codes in statuses]
        try:
            yield wait_for_more
        finally:
            stop.set()
    assert [task.exception() for task in running] == [None] * num_clients
    assert {status for codes in statuses for status in codes} == {200}


def scorers(local_ray):
    actors = local_ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if "ScorerDeployment#" in actor["name"]]


class TestServeRun:
    def test_the_official_client_gets_the_improved_answer(self, service):
        client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=300)
        reply = client.chat.completions.create(
            model="raydebm/knights_knaves",
            messages=[{"role": "user", "content": PUZZLE}],
            extra_body={"raydebm": RECORDED},
        )

        assert reply.choices[0].message.content.startswith("Ava contradicts herself")
        assert reply.model_extra["raydebm"]["num_passes"] == 2

    def test_triage_gives_the_decision_and_the_feedback_that_led_to_it(self, service):
        answer = ask(service).json()

        assert (answer["decision"], answer["answer"]) == ("accept", '{"Ava": "knave", "Zoey": "knight"}')
        assert "Your answer breaks these rules" in answer["feedback"][0]

    def test_scores_of_a_text_are_those_of_both_adapters(self, service):
        reply = httpx.post(
            f"{service.url}/v1/score", json={"problem": PUZZLE, "candidates": ["a", "b"]}, timeout=300
        ).json()

        assert [len(entry["members"]) for entry in reply["data"]] == [2, 2]

    def test_a_second_scorer_is_started_under_load(self, service, local_ray, eventually):
        with load(service, eventually):
            assert eventually(lambda: len(scorers(local_ray)) == 2)

    def test_killing_a_scorer_replica_under_load_fails_no_request(self, service, local_ray, eventually):
        """Each client has answers before the replica is killed and after it."""
        with load(service, eventually) as wait_for_more:
            wait_for_more()
            local_ray.kill(local_ray.get_actor(scorers(local_ray)[0], namespace="serve"), no_restart=True)
            wait_for_more()


def test_a_service_that_is_told_to_end_answers_what_runs_and_refuses_what_comes(
    prepared, local_ray, new_port, eventually
):
    """Ray has one Serve, and ``raydebm serve`` ends it, so that the other service has ended before."""
    port = new_port()
    command = [BIN / "raydebm", "serve", "--run-dir", prepared.run_dir, "--port", str(port)]
    with (
        started(command, prepared, local_ray, eventually, port=port) as service,
        ThreadPoolExecutor(NUM_CLIENTS) as clients,
    ):
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
