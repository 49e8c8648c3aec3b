"""The node types of ``cluster.yaml``, started on this machine with Ray's provider of pretended nodes: jobs are
submitted, nodes come when tasks wait for them and go when nothing does."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml
from processes import end_marked
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.util import get_node_ip_address

from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import read_ensemble_file
from raydebm.tasks.knights_knaves import KnightsKnaves

JOB_TIMEOUT_S = 360
NODES_TIMEOUT_S = 120
BIN = Path(sys.executable).parent
CPUS = {"head": 0, "gpu_worker": 2, "cpu_worker": 3}
"""Of each node, as this machine has no 48; only nodes that come can hold a task of three."""
RECIPE = {
    "name": "tiny",
    "task": {
        "name": "knights_knaves",
        "train": {"split": "train", "source": "generate:2-3", "limit": 10},
        "test": {"split": "test", "source": "generate:2-3", "limit": 2},
    },
    "generators": [{"kind": "recorded", "name": "g", "model": "g", "pool": "pool.jsonl", "num_samples": 16}],
    "generation": {"greedy": False},
    "scorer": {
        "backbone": "embedded:encoder-mini",
        "adapters": [{"name": "a0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]}],
    },
    "training": {"max_epochs": 1},
    "ray": {"gpus_per_adapter": 0, "cpus_per_adapter": 2, "max_workers": 3},
}
"""192 texts, which are scored in three tasks at once."""


def as_pretended(cluster, gcs_port):
    """The cluster's node types and limits, with nodes that are processes of this machine."""
    names = {"head": "ray.head.default"}  # as Ray's provider calls it
    types = {
        names.get(name, name): node | {"node_config": {}, "resources": node["resources"] | {"CPU": CPUS[name]}}
        for name, node in cluster["available_node_types"].items()
    }
    types["ray.head.default"]["max_workers"] = 0
    return cluster | {
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",  # as "fake_multinode" Ray looks for defaults in a file that its wheels lack
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": f"{get_node_ip_address()}:{gcs_port}",
            "head_node_id": FAKE_HEAD_NODE_ID,
            "launch_multiple": True,
            "disable_node_updaters": True,  # there is nothing to set up, and no SSH server
            "disable_launch_config_check": True,
        },
        "available_node_types": types,
        "head_node_type": names["head"],
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
    }


class Cluster:
    """A Ray head, and what users do with it.

    Every environment variable and folder of its processes is its own, so that all of them can be found again.
    """

    def __init__(self, folder, config, ports):
        gcs, dashboard, agent = ports
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
            "PATH": f"{BIN}:{os.environ['PATH']}",  # where jobs find `python`
            # What Ray's own AutoscalingCluster sets, which begins with ending every Ray on the machine.
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_worker_niceness": "0",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "120",
            "RAY_worker_register_timeout_seconds": "300",  # a busy machine is none that is broken
        }
        self._folder = folder
        self._address = f"http://127.0.0.1:{dashboard}"
        options = {"port": gcs, "dashboard-port": dashboard, "dashboard-agent-listen-port": agent, "num-cpus": 0}
        options |= {"autoscaling-config": config, "temp-dir": folder, "object-store-memory": 150_000_000}
        given = [f"--{name}={value}" for name, value in options.items()]
        self._command = [BIN / "ray", "start", "--head", "--block", *given]

    def start(self):
        """Ray gives a head 30 s to be up, which no setting changes and a busy machine may not keep: so twice."""
        for _ in range(2):
            with (self._folder / "start.log").open("w") as log:
                self._head = subprocess.Popen(self._command, env=self.environment, stdout=log, stderr=log)
            if self._has_nodes(2):
                return
            self.end()
        pytest.fail(self._said())

    def submit(self, *command, options=()):
        """What ``ray job submit`` says until the job has ended, or has run for ``JOB_TIMEOUT_S``.

        Without ``--working-dir`` jobs and tasks read the code from one place. With it every node unpacks the folder
        again, which pretended nodes would do under each other's processes.
        """
        arguments = [BIN / "ray", "job", "submit", "--address", self._address, *options, "--", *command]
        with subprocess.Popen(
            arguments, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as job:
            limit = threading.Timer(JOB_TIMEOUT_S, job.kill)
            limit.start()
            output = job.stdout.read()
            limit.cancel()
        return output

    def wait_for_nodes(self, wanted):
        assert self._has_nodes(wanted), f"{self.states()} instead of {wanted} nodes:\n{self._said()}"

    def _has_nodes(self, wanted):
        """Whether so many are alive before ``NODES_TIMEOUT_S``, or the head, have ended."""
        end = time.monotonic() + NODES_TIMEOUT_S
        while self.states().count("ALIVE") != wanted:
            if self._head.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.5)
        return True

    def _said(self):
        return (self._folder / "start.log").read_text()

    def end(self):
        """Pretended nodes are processes of the head's autoscaler, and outlive it; jobs outlive both."""
        self._head.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._head.wait(20)
        end_marked(str(self._folder), self.environment["RAY_AUTH_TOKEN"])
        self._head.wait()

    def states(self):
        """Of all nodes that were ever there; empty while the head is not up, or too busy to answer."""
        token = self.environment["RAY_AUTH_TOKEN"]
        request = Request(f"{self._address}/nodes?view=summary", headers={"Authorization": f"Bearer {token}"})
        try:
            with urlopen(request, timeout=10) as response:
                nodes = json.load(response)["data"]["summary"]
        except OSError:
            return []
        return [node["raylet"].get("state") for node in nodes]


@pytest.fixture(scope="module")
def cluster(repository, tmp_path_factory, new_port):
    """The head of ``cluster.yaml`` and the one node that is always there."""
    ports = [new_port() for _ in range(3)]
    config = tmp_path_factory.mktemp("cluster") / "cluster.json"
    config.write_text(json.dumps(as_pretended(yaml.safe_load((repository / "cluster.yaml").read_text()), ports[0])))
    # A socket's path has at most 107 characters, so not pytest's folder.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    started = Cluster(folder, config, ports)
    try:
        started.start()
        yield started
    finally:
        started.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe file beside its recorded answers, every second one of them right."""
    folder = tmp_path_factory.mktemp("recipe")
    answers = [answer for split in ("train", "test") for answer in recorded_answers(split, RECIPE["task"][split])]
    (folder / "pool.jsonl").write_text("\n".join(map(json.dumps, answers)))
    generator = RECIPE["generators"][0] | {"pool": str(folder / "pool.jsonl")}
    (folder / "tiny.yaml").write_text(json.dumps(RECIPE | {"generators": [generator]}))
    return folder / "tiny.yaml"


def recorded_answers(split, data):
    other = {"knight": "knave", "knave": "knight"}
    for _, gold in KnightsKnaves().load(split, source=data["source"], limit=data["limit"], seed=0):
        for sample in range(16):
            roles = {name: other[role] if sample % 2 else role for name, role in gold.value["roles"].items()}
            yield {"problem_id": gold.problem_id, "model": "g", "text": f"Attempt {sample}: {json.dumps(roles)}"}


@pytest.fixture(scope="module")
def trained(cluster, recipe, repository):
    """The run of a submitted training, and what the job said."""
    run, job = recipe.parent / "run", repository / "jobs" / "train_all.py"
    output = cluster.submit("python", str(job), "--config", str(recipe), "--run-dir", str(run))
    return RunDir(str(run)), output


@pytest.mark.ray
def test_a_submitted_training_succeeds_and_leaves_an_ensemble(trained):
    run, output = trained

    assert "succeeded" in output, output
    assert read_ensemble_file(run.uri("scorer"))["adapters"] == ["a0"]


@pytest.mark.ray
def test_a_job_of_a_packed_folder_that_cannot_begin_has_failed_and_says_why(cluster, repository, tmp_path):
    shutil.copytree(repository / "jobs", tmp_path / "jobs")

    output = cluster.submit(
        "python", "jobs/train_all.py", "--config", "none.yaml", options=["--working-dir", str(tmp_path)]
    )

    assert "failed" in output
    assert "none.yaml" in output


@pytest.mark.ray
def test_nodes_come_for_scoring_tasks_that_no_node_can_hold_and_go_afterwards(cluster, recipe, repository, trained):
    run, _ = trained
    cluster.wait_for_nodes(2)

    options = ("--until", "energies", "--config", str(recipe), "--run-dir", run.root, "ray.cpus_per_adapter=3")
    output = cluster.submit("python", "-m", "raydebm", "run", *options)

    assert "succeeded" in output, output
    assert run.exists("energies", "energies.parquet")
    cluster.wait_for_nodes(2)
