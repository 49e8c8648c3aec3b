"""The one Ray of the first lane, and the one run on it that most of its tests look at."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raydebm.pipeline.ray.session import ENVIRONMENT, OWN_CLUSTER_ENVIRONMENT

HERE = Path(__file__).parent
for name, value in (ENVIRONMENT | OWN_CLUSTER_ENVIRONMENT).items():
    os.environ.setdefault(name, value)
sys.path[:0] = [str(HERE), str(HERE.parent / "service")]  # for the modules beside this one, and tiny_service_run
BIN = Path(sys.executable).parent
os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # where submitted jobs find `python`
# Workers unpickle what tests hand them by the same names.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "helpers"), os.environ["PYTHONPATH"]])

ADAPTERS = [
    {"name": "a0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]},
    {"name": "a1", "rank": 2, "alpha": 4, "targets": ["Wqkv", "Wi"]},
    {"name": "a2", "rank": 4, "alpha": 8, "targets": ["Wqkv"]},
    {"name": "a3", "rank": 1, "alpha": 2, "targets": ["Wqkv"]},
    {"name": "a4", "rank": 2, "alpha": 4, "targets": ["Wo"]},
]


@pytest.fixture(scope="session")
def local_ray(new_port):
    """The one Ray: 8 logical CPUs, 3 declared GPUs, and the dashboard that jobs are submitted to."""
    import ray

    port = new_port()
    # A port that Ray takes at random may be another cluster's on a busy machine; gRPC then shares it between the two.
    os.environ["RAY_GCS_SERVER_PORT"] = str(new_port())
    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=3,
        include_dashboard=True,
        dashboard_port=port,
        object_store_memory=200_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    del os.environ["RAY_GCS_SERVER_PORT"]
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def submit(local_ray):
    """``ray job submit`` until the job has ended; returns all that it printed."""
    from ray._private.services import find_gcs_addresses

    if others := find_gcs_addresses() - {local_ray.get_runtime_context().gcs_address}:
        pytest.fail(
            f"Another Ray runs on this machine ({', '.join(others)}), and may be given the jobs of this one: end it or"
            " run the other tests with --ignore tests/on_ray"
        )
    address = f"http://{local_ray.get_runtime_context().worker.node.address_info['webui_url']}"

    def call(*command):
        arguments = [BIN / "ray", "job", "submit", "--address", address, "--", *command]
        for _ in range(60):
            output = subprocess.run(
                arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, check=False
            ).stdout
            if "No available agent" not in output:  # it comes up a while after the node
                break
            time.sleep(1)
        return output

    return call


def recipe_of(run_dir, url):
    """Two models of one endpoint, and five adapters that share three GPUs."""
    endpoint = {"kind": "openai", "base_url": url, "api_key_env": None, "max_retries": 2, "timeout_s": 60.0}
    return {
        "name": "whole",
        "seed": 3,
        "run_dir": str(run_dir),
        "task": {
            "name": "knights_knaves",
            "train": {"split": "train", "source": "generate:2-3", "limit": 14},
            "test": {"split": "test", "source": "generate:2-3", "limit": 8},
        },
        "generators": [endpoint | {"name": name, "model": name} for name in ("fair", "poor")],
        "generation": {"num_samples": 2, "max_tokens": 128, "num_processes": 1, "max_failed_frac": 0.5},
        "pairs": {"validation_frac": 0.4},
        "scorer": {"backbone": "embedded:encoder-mini", "max_length": 512, "adapters": ADAPTERS},
        "training": {"max_epochs": 1, "learning_rate": 1e-3},
        "decision": {"num_regenerate": 2, "lambdas": [0.0, 1.0], "rule": "paper"},
    }


@pytest.fixture(scope="session")
def whole(submit, repository, tmp_path_factory):
    """A run from its problems to its report: trained by a submitted job, from answers of an endpoint in a storm, and
    brought to its end by this process."""
    from puzzle_server import PuzzleServer

    from raydebm.config import parse_recipe
    from raydebm.pipeline.runner import Pipeline
    from raydebm.tasks import get_task

    folder = tmp_path_factory.mktemp("whole")
    solutions = {
        problem.prompt: gold.value["roles"]
        for split in ("train", "test")
        for problem, gold in get_task("knights_knaves").load(split, source="generate:2-3", limit=40, seed=3)
    }
    with PuzzleServer(solutions) as server:
        tree = recipe_of(folder / "run", server.url)
        (folder / "recipe.yaml").write_text(json.dumps(tree), encoding="utf-8")
        output = submit("python", str(repository / "jobs" / "train_all.py"), "--config", str(folder / "recipe.yaml"))
        assert "succeeded" in output, output
        reports = []
        pipeline = Pipeline(recipe=parse_recipe(tree), on_stage=reports.append)
        result = pipeline.evaluate()
        return SimpleNamespace(
            pipeline=pipeline, run=pipeline.run, result=result, reports=reports, output=output,
            server=server, recipe=pipeline.recipe,
        )  # fmt: skip
