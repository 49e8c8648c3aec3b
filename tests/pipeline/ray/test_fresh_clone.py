"""Commands as the pages have them, in a copy of the clone, on a machine where the package is not installed."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from processes import end_marked

from raydebm.run.ensemble_file import read_ensemble_file

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
LIMIT_S = 600
NOT_INSTALLED = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "raydebm" not in str(finder)]
"""
"""A ``sitecustomize`` that undoes an editable install."""
SMALLER = {
    "limit: 100}": "limit: 16}",
    "limit: 50}": "limit: 2}",
    "num_samples: 8": "num_samples: 2",
    "greedy: true": "greedy: false",
    "max_epochs: 2": "max_epochs: 1",
}
"""Changes of the demo's recipe that make it end in seconds."""


class Clone:
    """A copy of what jobs and the service need of the repository, and commands in it."""

    def __init__(self, repository, folder, home):
        for name in ("raydebm", "jobs"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(repository / name, folder / name, symlinks=True, ignore=ignored)
        for name in ("serve_config.yaml", "cluster.yaml", ".rayignore"):
            shutil.copy(repository / name, folder / name)
        recipe = folder / "raydebm" / "cli" / "starter" / "recipe.yaml"
        text = recipe.read_text()
        for old, new in SMALLER.items():
            assert old in text
            text = text.replace(old, new)
        recipe.write_text(text)
        (home / "sitecustomize.py").write_text(NOT_INSTALLED)
        self.folder, self.home = folder, home
        self.mark = secrets.token_hex(16)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(home),
            "HOME": str(home),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_worker_register_timeout_seconds": "300",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
            "RAY_raylet_start_wait_time_s": "300",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "200",
            "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "200",
            "RAYDEBM_TEST_MARK": self.mark,
        }

    def start(self, *command, **environment):
        # A shell's `&` makes the tests, and so their children, ignore SIGINT.
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment | environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def run(self, *command, **environment):
        """Its exit code and what it printed; None: it was killed at the limit."""
        with self.start(*command, **environment) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return None, process.stdout.read()
        return process.returncode, output

    def end(self):
        """End every process that a command of this clone has left."""
        end_marked(self.mark)

    def replace(self, file, old, new):
        text = (self.folder / file).read_text()
        assert old in text
        (self.folder / file).write_text(text.replace(old, new))


@pytest.fixture
def clone(repository, tmp_path):
    folder, home = tmp_path / "clone", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    made = Clone(repository, folder, home)
    yield made
    made.end()


@pytest.fixture
def head(clone, new_port):
    """Address of a Ray head that was started in the clone."""
    # A socket's path has at most 107 characters, so not pytest's folder.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    gcs, dashboard, agent = (new_port() for _ in range(3))
    options = {"port": gcs, "dashboard-port": dashboard, "dashboard-agent-listen-port": agent, "num-cpus": 8}
    options |= {"temp-dir": folder, "object-store-memory": 150_000_000}
    for _ in range(2):  # Ray gives a head 30 s to be up, which a busy machine may not keep
        code, output = clone.run("ray", "start", "--head", *(f"--{name}={value}" for name, value in options.items()))
        if code == 0:
            break
        clone.end()
    assert code == 0, output
    yield f"http://127.0.0.1:{dashboard}"
    clone.end()
    shutil.rmtree(folder, ignore_errors=True)


def members_of(run):
    return read_ensemble_file(str(run / "scorer"))["adapters"]


def test_training_is_submitted_without_arguments(clone, head):
    code, output = clone.run("ray", "job", "submit", "--", "python", "jobs/train_all.py", RAY_API_SERVER_ADDRESS=head)

    assert code == 0, output
    assert members_of(clone.folder / "runs" / "demo") == ["a0", "a1", "a2", "a3", "a4"]


def test_training_is_submitted_with_the_working_directory(clone, head):
    code, output = clone.run(
        "ray", "job", "submit", "--working-dir", ".", "--", "python", "jobs/train_all.py", RAY_API_SERVER_ADDRESS=head
    )

    assert code == 0, output
    assert "very large" not in output
    assert members_of(clone.home / "runs" / "demo") == ["a0", "a1", "a2", "a3", "a4"]


@pytest.fixture
def served(clone, free_port):
    """Starts ``serve run serve_config.yaml``; returns the process and the service's URL."""
    clone.replace("serve_config.yaml", "port: 8000", f"port: {free_port}")
    clone.replace("serve_config.yaml", "num_replicas: 2", "num_replicas: 1")

    def start():
        process = clone.start("serve", "run", "serve_config.yaml", RAY_ADDRESS="local")
        return process, f"http://127.0.0.1:{free_port}"

    return start


def triage(url, problem):
    request = Request(
        f"{url}/v1/triage", data=json.dumps({"problem": problem}).encode(), headers={"Content-Type": "application/json"}
    )
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            with urlopen(request, timeout=120) as reply:
                return json.load(reply)
        except URLError:  # not there yet, or 503 while replicas start
            assert time.monotonic() < deadline
            time.sleep(1)


def test_the_service_answers_in_a_fresh_clone(clone, served):
    before = {file: file.stat().st_mtime_ns for file in (clone.folder / "raydebm" / "embedded" / "demo_run").rglob("*")}
    process, url = served()
    with urlopen_when_ready(url) as reply:
        problem = json.load(reply)["problem"]["prompt"]
    answer = triage(url, problem)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)

    assert answer["decision"] in ("accept", "abstain")
    assert answer["versions"]["recipe"] == "demo"
    after = {file: file.stat().st_mtime_ns for file in (clone.folder / "raydebm" / "embedded" / "demo_run").rglob("*")}
    assert after == before


def urlopen_when_ready(url):
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return urlopen(f"{url}/v1/problems", timeout=120)
        except URLError:
            assert time.monotonic() < deadline
            time.sleep(1)


def no_run(clone):
    clone.replace("serve_config.yaml", "run_dir: demo", "run_dir: runs/none")
    return "runs/none/recipe.json does not exist"


def of_another_version(clone):
    clone.replace("raydebm/embedded/demo_run/recipe.json", '"seed":', '"sead": 1, "seed":')
    return "sead"


def torn_adapter(clone):
    file = clone.folder / "raydebm" / "embedded" / "demo_run" / "scorer" / "a3" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    return f"{file.relative_to(clone.folder.resolve())} cannot be read"


def misspelt_argument(clone):
    clone.replace("serve_config.yaml", "run_dir: demo", "run_dri: demo")
    return "run_dri"


@pytest.mark.parametrize("break_it", [no_run, of_another_version, torn_adapter, misspelt_argument])
def test_a_service_that_cannot_be_built_is_one_line_and_an_exit(clone, served, break_it):
    words = break_it(clone)
    process, _ = served()
    output, _ = process.communicate(timeout=LIMIT_S)

    assert process.returncode != 0, output
    [line] = [line for line in output.splitlines() if line.startswith("raydebm: error: ")]
    assert words in line
    assert "Traceback" not in output
