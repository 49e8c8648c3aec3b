"""Ray for one run: attach to a given cluster, or start a lean one on this machine.

Own cluster: at least 8 logical CPUs on any machine (Ray Data hangs with two), no dashboard, quiet logs; ends with the
session. Given cluster (``RAY_ADDRESS``, which ``ray job submit`` sets): checked first, because ``ray.init`` ends the
process after two minutes without an answer. If this process has already initialised Ray, that Ray is used and left
running.

Authentication is explicit: an own cluster gets its own token unless ``RAY_AUTH_MODE`` is set; for a given cluster the
caller's ``RAY_AUTH_MODE`` counts.
"""

import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raydebm.errors import RaydebmError, ResourceError, in_one_line, is_out_of_memory, last_line

LOG = logging.getLogger(__name__)

MIN_LOGICAL_CPUS = 8
OBJECT_STORE_BYTES = 512 * 2**20
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 12.0

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # train.report waits for the controller's next check: 2 s by default, longer than a small epoch.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    # On a busy machine a worker that needs more than 60 s to start would be stopped and restarted forever.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    # Workers keep the driver's folder, so that relative paths in a recipe mean the same everywhere.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_DATA_LOG_LEVEL": "WARNING",
    # Rows in progress per asynchronous generation actor; its own semaphore is the real limit.
    "RAY_DATA_DEFAULT_ASYNC_ROW_UDF_MAX_CONCURRENCY": "1024",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables for drivers and workers, read at import. The caller's values are kept."""

OWN_CLUSTER_ENVIRONMENT = {
    # Preemption watching and metrics: useless on a cluster that ends with its driver, and each costs a process or a
    # poll per adapter.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # Text lengths vary, and oneDNN would keep a compiled primitive for each.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
    "LRU_CACHE_CAPACITY": "32",
    # Activations reuse glibc's own heap. Mapping each tensor anew would make page faults a third of the time.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(128 * 2**20),
}

SERVE_ENVIRONMENT = {
    # Serve's 5 s for its proxy are too short for starting a process on a busy machine.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # Serve's parts call each other by gRPC, without objects of Ray: a third more requests (docs/performance.md).
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
}

_own_clusters = 0


@contextmanager
def ray_session() -> Iterator[Path | None]:
    """Context manager that initialises Ray; yields the folder of its logs if this process starts it.

    Raises:
        ResourceError: the cluster at the given address does not answer, or Ray cannot start here.
    """
    _set_defaults(ENVIRONMENT)
    import ray

    if ray.is_initialized():
        yield None
        return
    address = os.environ.get("RAY_ADDRESS")
    if address is not None and address != "local":
        with _attached(address):
            yield None
    else:
        with _own_cluster() as logs:
            yield logs


def is_own_cluster() -> bool:
    """True if this process started its cluster, so that nothing of the cluster outlives the process."""
    return _own_clusters > 0


def _set_defaults(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)


@contextmanager
def _own_cluster() -> Iterator[Path]:
    global _own_clusters  # a process has only one Ray
    import ray

    _set_defaults(OWN_CLUSTER_ENVIRONMENT)
    if "RAY_AUTH_MODE" not in os.environ:
        # Ray then switches to token mode by itself. A token in the environment reaches the cluster's processes only,
        # and Ray writes no token to the home folder.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with _raylet_muted():
        session = start_here(
            num_cpus=max(MIN_LOGICAL_CPUS, os.cpu_count() or 1),
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            remedy="Free memory or disk space, or set RAY_ADDRESS to a running cluster",
        )
        _own_clusters += 1
        try:
            _quieten()
            yield session / "logs"
        finally:
            _own_clusters -= 1
            ray.shutdown()


@contextmanager
def _raylet_muted() -> Iterator[None]:
    """Keep the raylet's messages off the terminal: Ray has no setting for them, and also writes them to raylet.out.

    They are about the number of worker processes, or repeat a failure that raydebm reports itself.
    """
    from ray._private import worker

    worker._worker_logs_enabled = False  # as Ray's debugger does
    try:
        yield
    finally:
        worker._worker_logs_enabled = True


def start_here(*, remedy: str, attempts: int = 2, **options: Any) -> Path:
    """Start Ray without a dashboard on this machine; returns the folder of its session.

    Args:
        remedy: advice for the error message.
        attempts: number of tries. Ray gives its node 30 s, which a busy machine may exceed.
        options: further arguments of ``ray.init``.

    Raises:
        ResourceError: Ray did not start.
    """
    import ray

    _set_defaults(SERVE_ENVIRONMENT)
    try:
        context: Any = ray.init(address="local", include_dashboard=False, **options)
        return Path(context.address_info["session_dir"])
    except Exception as error:  # Ray raises a plain Exception if the node is not up in time
        ray.shutdown()
        if attempts > 1:
            return start_here(remedy=remedy, attempts=attempts - 1, **options)
        reason = last_line(str(error)).rstrip(".")
        raise ResourceError(f"Ray did not start on this machine: {reason}. {remedy}") from error


@contextmanager
def _attached(address: str) -> Iterator[None]:
    import ray

    # Under `ray job submit` the cluster itself started this process, so it is there.
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        check_reachable(address)
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": _environment()}
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreachable(address, str(error)) from error
    try:
        _quieten()
        yield
    finally:
        ray.shutdown()


def _environment() -> dict[str, str]:
    """Environment variables for workers of a given cluster; those of raydebm's own cluster inherit them."""
    return {name: os.environ[name] for name in ENVIRONMENT}


def _quieten() -> None:
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray.train", "ray.tune"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Silences a warning that Ray's progress bars are off; ours replace them.
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)


def check_reachable(address: str) -> None:
    """Check that a Ray cluster answers at ``address`` (``host:port``, ``ray://host:port`` or ``auto``).

    Raises:
        ResourceError: nothing listens there, or it does not answer as Ray within 15 s.
    """
    place = _host_and_port(address)
    if place is not None:
        try:
            socket.create_connection(place, timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise _unreachable(address, str(error)) from error
    if address.startswith("ray://"):
        return  # Ray Client has time limits of its own
    _ask(address)


def _ask(address: str) -> None:
    # A separate process, because Ray's client cannot be interrupted and ends a process that waits too long.
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        command += ["--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, f"no answer within {ANSWER_TIMEOUT_S:.0f} s") from error
    if answer.returncode != 0:
        lines = (answer.stderr or answer.stdout).strip().splitlines() or ["the health check failed"]
        raise _unreachable(address, lines[-1].strip())


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Host and port of the address; None for ``auto``.

    Raises:
        ResourceError: the address has no port.
    """
    if address == "auto":
        return None
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        raise _unreachable(address, "it is not of the form host:port")
    return host.strip("[]"), int(port)


def _unreachable(address: str, reason: str) -> ResourceError:
    return ResourceError(
        f"no Ray cluster answers at {address!r}: {reason}. Start one (`ray start --head`), correct "
        "RAY_ADDRESS (unset it to start a local cluster), and export the cluster's RAY_AUTH_MODE here"
    )


def get_or_raise(reference: Any) -> Any:
    """The value of a Ray reference. An error of this package is raised without Ray's wrapper.

    Raises:
        RaydebmError: the task raised it.
        ResourceError: the task ran out of memory.
    """
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RaydebmError):
            raise error.cause from error
        if is_out_of_memory(error.cause):
            raise ResourceError(
                f"too little memory: {in_one_line(str(error.cause))}. Choose a smaller model, a lower "
                "scorer.micro_batch_tokens, or a machine or device with more"
            ) from error
        raise
