"""Shared fixtures. Environment for Ray is set before anything imports it."""

import asyncio
import os
import secrets
import socket
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import lanes
import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent

os.environ.update(
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2",
    RAY_DATA_DISABLE_PROGRESS_BARS="1",
    RAY_SERVE_USE_GRPC_BY_DEFAULT="1",
    RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="60",
    RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S="60",
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S="0",
    # Of a busy machine nothing is wrong when a process takes minutes to come up.
    RAY_worker_register_timeout_seconds="300",
    # Ray's workers would otherwise wait for whatever else runs on the machine, such as tests without Ray beside them.
    RAY_worker_niceness="0",
    TOKENIZERS_PARALLELISM="false",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    # Ray workers import the package by the same path as the tests, installed or not.
    PYTHONPATH=os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])),
)

# Hundreds of processes of the tests import raydebm; where the caller forbids bytecode each would compile it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Time says nothing about correctness where the machine is shared. The same examples every time: a change is judged by
# what it changed. To look for new ones: pytest --hypothesis-profile=explore
_ANY_SPEED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("explore", **_ANY_SPEED)
settings.register_profile("shared-machine", **_ANY_SPEED, derandomize=True, database=None)
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


_GIVEN: set[int] = set()
# Above the ports of Ray's workers, below those that the kernel gives to outgoing connections: nobody takes one of these
# between its choice and its use.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


def unused_port() -> int:
    """A port that nobody listens at and that no other test of this session was given."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port


@pytest.fixture
def free_port() -> int:
    return unused_port()


@pytest.fixture(scope="session")
def new_port():
    """Call it for a port; for fixtures that live longer than a test."""
    return unused_port


@pytest.fixture(scope="session")
def eventually():
    """Waits until a condition holds; returns what it gave last, for an ``assert``."""

    def wait(condition, *, seconds=240):
        deadline = time.monotonic() + seconds
        while not (value := condition()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return value

    return wait


@pytest.fixture
def refusing_port():
    """A port that refuses every connection for as long as the test runs: taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@pytest.fixture(scope="session")
def local_ray():
    """One Ray for the whole session: 8 logical CPUs and 3 pretend GPUs, whatever the machine has."""
    import ray

    def start() -> None:
        ray.init(
            address="local",
            num_cpus=8,
            num_gpus=3,
            include_dashboard=False,
            object_store_memory=200_000_000,
            log_to_driver=False,
            logging_level="ERROR",
        )

    try:
        start()
    except Exception:  # noqa: BLE001 - Ray's own, a plain one, when its node is not up within 30 s
        ray.shutdown()
        start()
    yield ray
    ray.shutdown()


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while anything can run, and jumps to the next timer when nothing can.

    What would take minutes takes no time, and always happens in the same order. For code without threads and sockets.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        really = self._selector.select

        def select(timeout: float | None = None):
            events = really(0)
            if not events and timeout is None:
                raise RuntimeError("everything waits for something that will never happen")
            self._now_s += 0.0 if events else timeout
            return events

        self._selector.select = select

    def time(self) -> float:
        return self._now_s


@pytest.fixture
def run_virtually():
    """Like ``asyncio.run``, in virtual time, which begins at 0."""

    def run(work):
        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            return runner.run(work)

    return run


@pytest.fixture
def ended_spans(monkeypatch):
    """Call it for the trace spans that have ended so far."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("raydebm.tracing._tracer", provider.get_tracer("test"))
    return exporter.get_finished_spans


@pytest.fixture
def raydebm(capsys, monkeypatch):
    """What a command line says in this process, without the start of another one and its imports."""
    from raydebm.cli import main

    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        said = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=said.out, stderr=said.err)

    return run


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What stays in one process where there are several (``make test``): the files that need Ray, folder by folder, so
    that each folder starts what it shares once; and each other file. Folders of Ray come first, because a process that
    waits for Ray leaves half of a second CPU to the other one, which small files fill at the end."""
    from xdist.scheduler import LoadScopeScheduling

    class FoldersOfRayFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return "/".join(file.split("/")[:2]) if needs_ray(config.rootpath / file) else file

    config.option.loadscopereorder = False  # by the number of tests, the longest would begin last
    return FoldersOfRayFirst(config, log)


def pytest_addoption(parser):
    lanes.add_options(parser)


def pytest_configure(config):
    for kind, meaning in lanes.KINDS.items():
        config.addinivalue_line("markers", f"{kind}: second lane; {meaning}")
    config.pluginmanager.register(lanes.Clock(config), "clock")


def pytest_collection_modifyitems(items, config):
    items.sort(key=lambda item: not needs_ray(item.path))
    lanes.select(items, config, {item.nodeid: lanes.kind_of(item, needs_ray=needs_ray(item.path)) for item in items})


@cache
def needs_ray(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return "mark.ray" in text or "local_ray" in text
