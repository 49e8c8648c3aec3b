"""Shared fixtures. Environment for Ray is set before anything imports it."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent

os.environ.update(
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2",
    RAY_DATA_DISABLE_PROGRESS_BARS="1",
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S="0",
    TOKENIZERS_PARALLELISM="false",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    # Ray workers import the package by the same path as the tests, installed or not.
    PYTHONPATH=os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])),
)

# Time says nothing about correctness where the machine is shared.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded data beside the checkout, or RAYDEBM_DATA; tests that need it skip without it."""
    folder = Path(os.environ.get("RAYDEBM_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"recorded data not found at {folder}; set RAYDEBM_DATA to the folder that holds gsm8k/ and others")
    return folder


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def local_ray():
    """One Ray for the whole session: 8 logical CPUs and 3 pretend GPUs, whatever the machine has."""
    import ray

    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=3,
        include_dashboard=False,
        object_store_memory=200_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield ray
    ray.shutdown()
