"""Attaching to a cluster, or starting one."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from raydebm.errors import ResourceError
from raydebm.pipeline.ray import session
from raydebm.pipeline.ray.session import check_reachable, get_or_raise, is_own_cluster, ray_session, start_here


def test_nobody_at_the_address_is_told_at_once_with_a_way_out(refusing_port, monkeypatch):
    monkeypatch.setattr(session, "_ask", lambda address: pytest.fail("Ray was asked, which takes seconds"))
    with pytest.raises(ResourceError, match=rf"127\.0\.0\.1:{refusing_port}.*ray start --head.*RAY_AUTH_MODE"):
        check_reachable(f"127.0.0.1:{refusing_port}")


def test_an_address_without_a_port_is_refused():
    with pytest.raises(ResourceError, match="host:port"):
        check_reachable("head-node")


@pytest.mark.slow
def test_a_listener_that_is_not_ray_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 3.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(ResourceError, match="no answer within 3 s"):
            check_reachable(f"127.0.0.1:{listener.getsockname()[1]}")


@pytest.fixture
def starts_with(monkeypatch):
    """Ray whose starts come to these outcomes, one after another; the real one of other tests stays."""
    monkeypatch.setattr("ray.shutdown", lambda: None)
    return lambda *outcomes: monkeypatch.setattr("ray.init", _starts(outcomes))


def _starts(outcomes):
    remaining = list(outcomes)

    def start(**options):
        outcome = remaining.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return start


TOO_LATE = Exception("2026-11-26 12:00:01 services.py\nThe current node timed out during startup.")


def test_a_node_that_was_not_up_in_time_is_started_again(starts_with):
    starts_with(TOO_LATE, SimpleNamespace(address_info={"session_dir": "/tmp/ray/session"}))

    assert start_here(remedy="Wait.") == Path("/tmp/ray/session")


def test_a_node_that_is_late_twice_is_given_up_with_the_remedy(starts_with):
    starts_with(TOO_LATE, TOO_LATE)

    with pytest.raises(ResourceError, match=r"on this machine: The current node timed out during startup\. Wait\.$"):
        start_here(remedy="Wait.")


@pytest.mark.ray
def test_a_task_without_enough_memory_is_an_error_with_a_remedy(local_ray):
    @local_ray.remote
    def grow():
        raise MemoryError("Unable to allocate 9 GiB")

    with pytest.raises(ResourceError, match=r"too little memory: Unable to allocate 9 GiB\. Choose a smaller model"):
        get_or_raise(grow.remote())


@pytest.mark.ray
def test_ray_that_runs_already_is_used_and_left_running(local_ray, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with ray_session():
        assert local_ray.is_initialized()
    assert local_ray.is_initialized()
    assert not is_own_cluster()


OWN = """
import os, ray, time
from ray._private import utils, worker
from raydebm.pipeline.ray import session
from raydebm.pipeline.ray.session import is_own_cluster, ray_session

print("stale", utils.read_ray_address())
name = "RAY_DATA_DEFAULT_ASYNC_ROW_UDF_MAX_CONCURRENCY"
with ray_session() as logs:
    utils.publish_error_to_driver("kind", "said by the raylet", gcs_client=worker.global_worker.gcs_client)
    print("logs", (logs / "raylet.out").exists())
    resources = ray.cluster_resources()
    seen = ray.get(ray.remote(num_cpus=0.1)(lambda: os.environ[name]).remote())
    print("facts", resources["CPU"], is_own_cluster(), seen == os.environ[name])
    print("auth", os.environ["RAY_AUTH_MODE"])
    with ray_session():
        pass
    print("inner", ray.is_initialized())
    time.sleep(2)
print("after", ray.is_initialized(), is_own_cluster())
"""


def _run_alone(script: str, **environment: str) -> str:
    base = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=base | environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def own_cluster_says():
    """What the script says where a cluster that was killed has left its address."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # names of Ray's sockets must stay short
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        return _run_alone(OWN, RAY_TMPDIR=folder)


@pytest.mark.ray
def test_an_own_cluster_has_what_was_declared_and_tells_its_workers(own_cluster_says):
    assert f"facts {max(8, os.cpu_count())}.0 True True" in own_cluster_says


@pytest.mark.ray
def test_an_own_cluster_ends_with_the_outermost_session(own_cluster_says):
    assert "inner True" in own_cluster_says
    assert "after False False" in own_cluster_says


@pytest.mark.ray
def test_messages_of_an_own_raylet_stay_in_its_log(own_cluster_says):
    assert "logs True" in own_cluster_says
    assert "said by the raylet" not in own_cluster_says


@pytest.mark.ray
def test_an_own_cluster_asks_for_a_token_unless_told_otherwise(own_cluster_says):
    assert "auth token" in own_cluster_says


def test_an_unreachable_address_from_the_environment_is_an_error_not_a_second_cluster(refusing_port):
    script = (
        "from raydebm.pipeline.ray.session import ray_session\n"
        "from raydebm.errors import ResourceError\n"
        "try:\n    with ray_session(): pass\nexcept ResourceError as error: print('refused', error)\n"
    )
    assert "refused" in _run_alone(script, RAY_ADDRESS=f"127.0.0.1:{refusing_port}")
