"""A promotion and a roll-back over HTTP reach every ingress replica, on real Serve with two of them."""

import hashlib
import json
import shutil
from contextlib import contextmanager

import httpx
import pytest
import yaml

from raydebm.decision.policy import policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.run.directory import RunDir
from raydebm.serving.ray.launch import deployed, read_serve_config

pytestmark = pytest.mark.slow

KEY = "ad31" * 10
HEADERS = {"Authorization": f"Bearer {KEY}"}
NUM_LOOKS = 24
"""Requests go to either replica by chance: that one of two answers none of so many happens once in eight million."""


@contextmanager
def service_of(folder, live_run, config, port):
    """serve_config.yaml with two ingress replicas over a copy of the run, and the key of an admin."""
    run = RunDir(str(shutil.copytree(live_run, folder / "run")))
    entry = {"name": "admin", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "admin": True}
    (folder / "keys.yaml").write_text(yaml.safe_dump({"keys": [entry]}), encoding="utf-8")
    tree = read_serve_config(config)
    for deployment in tree["applications"][0]["deployments"]:
        if deployment["name"] == "ScorerDeployment":
            deployment["autoscaling_config"]["max_replicas"] = 1
    path = folder / "serve_config.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    args = {
        "run_dir": run.root,
        "generators": ["recorded"],
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "limits": {"keys_file": str(folder / "keys.yaml")},
        "records": {"folder": str(folder / "kept")},
    }
    with deployed(path, port=port, args=args, timeout_s=600) as url:
        yield run, url


@pytest.fixture(scope="module")
def service(serve_turns, live_run, repository, new_port, tmp_path_factory):
    def start():
        return service_of(tmp_path_factory.mktemp("promotion"), live_run, repository / "serve_config.yaml", new_port())

    return serve_turns.take("promotion", start)


def get(url, path):
    """On a connection of its own, so that the proxy chooses the replica anew."""
    return httpx.get(f"{url}{path}", headers=HEADERS, timeout=600).raise_for_status().json()


def post(url, action, body):
    reply = httpx.post(f"{url}/v1/policies/{action}", json=body, headers=HEADERS, timeout=600)
    return reply.raise_for_status().json()


def versions(url):
    """Ids of the first policies that the replicas decide by."""
    return {get(url, "/v1/policies")["first"]["version"] for _ in range(NUM_LOOKS)}


def test_a_trial_a_promotion_and_a_roll_back_reach_both_replicas(service, eventually):
    run, url = service
    assert eventually(lambda: len({get(url, "/v1/live")["replica"] for _ in range(NUM_LOOKS)}) == 2)
    first = PolicyHistory(run).first()
    second = first.replaced(theta_sigma=500.0)

    begun = post(url, "try", {"policy": second.to_json(), "reason": "a stricter threshold"})
    promoted = post(url, "promote", {"reason": "p = 0.01"})
    assert (begun["applied"], promoted["applied"]) == (True, True)
    assert eventually(lambda: versions(url) == {policy_id(second)})
    assert get(url, "/v1/policies")["history"][0]["by"] == "admin"

    assert post(url, "rollback", {"reason": "refuses too much"})["change"]["undoes"] == 1
    assert eventually(lambda: versions(url) == {policy_id(first)})
