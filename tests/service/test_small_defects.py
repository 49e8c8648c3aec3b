"""Requests that were misunderstood, and failures that were not told."""

import os

import pytest

from raydebm.errors import ResourceError
from raydebm.run.ensemble_file import CheckpointRef
from raydebm.service.access import ENVIRONMENT
from raydebm.service.ray import app as app_module
from raydebm.service.ray import deployments
from raydebm.service.store.record import DecisionWriter


def test_health_warns_when_decisions_cannot_be_written(bundle, puzzle, tmp_path, eventually, client_of):
    (tmp_path / "file").write_text("in the way")
    writer = DecisionWriter(str(tmp_path / "file" / "records"), flush_s=0.01)
    guarded = client_of(bundle, records=writer)
    assert guarded.get("/health").json()["warnings"] == []
    guarded.post("/v1/triage", {"problem": puzzle})
    assert eventually(lambda: writer.last_error, seconds=60)
    (warning,) = guarded.get("/health").json()["warnings"]
    assert warning.startswith("decisions cannot be written (1 waiting, 0 lost): ")
    writer.close()


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"[" * 100_000, b'{"problem": ' + b"1" * 5000 + b"}"])
def test_bodies_that_cannot_be_read_say_so(client, content):
    reply = client.request("POST", "/v1/score", content=content[:20_000], headers={"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")


DEPLOYMENTS = [kind for name, kind in vars(deployments).items() if name.endswith("Deployment")]
ARGUMENTS = {"GeneratorDeployment": ([], "nowhere"), "ScorerDeployment": ("nowhere",), "BaselineDeployment": ([], "")}


@pytest.mark.parametrize("kind", DEPLOYMENTS)
def test_other_replicas_forget_the_clients_keys(kind, monkeypatch):
    monkeypatch.setattr(deployments, "read_ref", lambda address: CheckpointRef(address, "f"))
    monkeypatch.setattr(deployments.Ensembles, "read", lambda self, checkpoint: None)
    monkeypatch.setenv(ENVIRONMENT, "a=" + "k" * 32)
    kind(*ARGUMENTS.get(kind.__name__, ()))
    assert ENVIRONMENT not in os.environ


def test_a_ray_that_does_not_start_is_one_line(monkeypatch):
    def init(**options):
        raise Exception("Traceback ...\nThe current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    with pytest.raises(ResourceError, match=r"timed out during startup.*Try again.*, or start Ray yourself") as caught:
        app_module._connect()
    assert "\n" not in str(caught.value)
