"""Killed processes: what a training and a generation lose, and what they do not."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import is_running, journal_pids, num_journaled
from scorer_parts import HeldRun, recipe_for, tiny_backbone, train

from raydebm.config import parse_recipe
from raydebm.errors import TrainingError
from raydebm.pipeline.ray.generate import generate
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.directory import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

ONE_SLOT = {"gpus_per_adapter": 0, "cpus_per_adapter": 5}
"""Each slot costs three processes; this is about the one that is killed."""
SERVER = Path(__file__).parent.parent / "helpers" / "misbehaving_server.py"


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("backbone"))


class Killer(threading.Thread):
    """Ends the worker of ``a1`` with SIGKILL in its second epoch and in its third, once Ray Train holds the checkpoint
    of the epoch before.

    In a ``HeldRun`` that worker waits for it in these epochs, however slow this thread is.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder, self._progress = folder, folder / "scorer" / "progress"
        self.killed: list[int] = []

    def run(self) -> None:
        for epoch in (2, 3):
            while self._last_epoch_held() < epoch - 1:
                time.sleep(0.02)
            (started,) = self._progress.glob("a1-*.epochs/starts.json")
            self.killed.append(json.loads(started.read_text())["pids"][-1])
            os.kill(self.killed[-1], signal.SIGKILL)
            while is_running(self.killed[-1]):  # the signal is sent, not yet delivered
                time.sleep(0.02)
            (self._folder / f"killed-in-000{epoch}.json").touch()

    def _last_epoch_held(self) -> int:
        for held in self._progress.glob("a1-*.epochs/checkpoint.json"):
            with contextlib.suppress(FileNotFoundError):  # while it is being replaced
                return json.loads(held.read_text())["epoch"]
        return 0


@pytest.fixture(scope="module")
def killed(local_ray, backbone, tmp_path_factory):
    """Three adapters in one slot, one restart each; the worker is killed in the second epoch of a1, the next one in its
    third."""
    folder = tmp_path_factory.mktemp("killed")
    training = {"max_epochs": 3, "patience": 3}
    recipe = recipe_for(backbone, task="gsm8k", num_adapters=3, training=training, **ONE_SLOT)
    killer = Killer(folder)
    killer.start()
    epochs = {"a0": [], "a1": [], "a2": []}
    with pytest.raises(TrainingError) as raised:
        train(
            recipe,
            HeldRun(str(folder)),
            max_restarts=1,
            on_epoch=lambda name, facts: epochs[name].append((facts["metrics"]["seconds"], facts["pid"])),
        )
    was_complete = (folder / "scorer" / "ensemble.json").exists()
    torn = shutil.copytree(folder, tmp_path_factory.mktemp("torn") / "run")
    (note,) = torn.glob("scorer/progress/a1-*.epochs/checkpoint.json")
    place = json.loads(note.read_text())
    os.truncate(torn / "scorer" / "progress" / place["run"] / place["checkpoint"] / "member.safetensors", 100)
    again = train(recipe, folder)
    train(recipe, torn)
    return SimpleNamespace(
        folder=folder,
        torn=torn,
        pids=killer.killed,
        epochs=epochs,
        error=raised.value,
        was_complete=was_complete,
        again=again,
    )


def test_a_killed_worker_costs_its_adapter_the_current_epoch_and_the_others_nothing(killed):
    assert [pid for _, pid in killed.epochs["a0"]] == killed.pids[:1] * 3
    assert [pid for _, pid in killed.epochs["a1"]] == killed.pids
    assert len(killed.epochs["a2"]) == 3
    assert len(set(killed.pids)) == 2
    record = json.loads((killed.folder / "scorer" / "a1" / "training.json").read_text())
    durations = [seconds for seconds, _ in killed.epochs["a1"]]
    assert [epoch["seconds"] for epoch in record["epochs"]][:2] == durations  # to the last digit: not trained again


def test_adapters_that_finished_are_kept_when_one_fails(killed):
    assert "Finished adapters kept: a0, a2" in str(killed.error)
    assert set(killed.error.failed) == {"a1"}
    assert not killed.was_complete


def test_a_rerun_trains_only_what_failed(killed):
    adapters = killed.again["adapters"].values()

    assert [(adapter["reused"], adapter["restarts"], adapter["num_epochs"]) for adapter in adapters] == [
        (True, 0, 3), (False, 2, 3), (True, 0, 3),
    ]  # fmt: skip
    assert (killed.folder / "scorer" / "ensemble.json").exists()


def test_a_torn_epoch_costs_this_epoch_and_those_before_it_are_not_trained_again(killed):
    folder = killed.torn / "scorer" / "a1"
    seconds = [epoch["seconds"] for epoch in json.loads((folder / "training.json").read_text())["epochs"]]
    first, second = (seconds for seconds, _ in killed.epochs["a1"])

    assert seconds[0] == first
    assert seconds[1] != second
    for file in ("adapter_model.safetensors", "head.safetensors"):
        assert (folder / file).read_bytes() == (killed.folder / "scorer" / "a1" / file).read_bytes()


def ask(content):
    return GenerationRequest(
        task="toy",
        problem_id=content.partition(":")[0],
        generator="g",
        messages=({"role": "user", "content": content},),
        sampling=Sampling(max_tokens=12, temperature=0.7),
        seed=0,
    )


def recipe_of(url):
    endpoint = {
        "kind": "openai", "name": "g", "model": "m", "base_url": url, "api_key_env": None, "max_retries": 1,
        "timeout_s": 60, "max_in_flight": 16,
    }  # fmt: skip
    return parse_recipe({"name": "test", "task": {"name": "toy"}, "generators": [endpoint]})


DRIVER = """
import sys
sys.path.insert(0, {folder!r})
from test_generate_driver import requests, recipe, run
from raydebm.pipeline.ray.generate import generate
from raydebm.generators.account import SHARED_PASSES, JournalAccount
from raydebm.pipeline.ray.session import ray_session
with ray_session():
    generate(requests, recipe=recipe, run=run)
"""


@contextlib.contextmanager
def process(*command, **options):
    """Killed at the end, whatever happened in between."""
    with subprocess.Popen([sys.executable, *command], **options) as started:
        try:
            yield started
        finally:
            started.kill()


def test_killed_driver_resumes_without_a_repeated_call(tmp_path, eventually):
    """After SIGKILL of the driver halfway, a new run asks only for what did not arrive."""
    run = RunDir(str(tmp_path / "run"))
    with process(str(SERVER), "--hold-from", "150", stdout=subprocess.PIPE) as endpoint:
        port = int(endpoint.stdout.readline())
        get = lambda path: urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60).read()  # noqa: E731
        count = lambda: json.loads(get("count"))["requests"]  # noqa: E731
        requests = [ask(f"p{i}: ok") for i in range(300)]
        recipe = recipe_of(f"http://127.0.0.1:{port}/v1")
        (tmp_path / "test_generate_driver.py").write_text(
            "from raydebm.config import Recipe\nfrom raydebm.run.directory import RunDir\n"
            "from raydebm.records import GenerationRequest, Sampling\n"
            f"requests = {requests!r}\nrecipe = Recipe.model_validate({recipe.model_dump()!r})\nrun = {run!r}\n"
        )
        with process("-c", DRIVER.format(folder=str(tmp_path))):
            assert eventually(lambda: count() == 149 + 16)
        assert eventually(
            lambda: not any(map(is_running, journal_pids(run)))
        )  # the driver's actors outlive it for a moment
        journaled = num_journaled(run)
        get("release")
        summary = generate(requests, recipe=recipe, run=run)
        asked_again = count() - (149 + 16)
    assert 149 - 16 <= journaled <= 149
    assert (summary.num_ok, summary.num_reused) == (300, journaled)
    assert asked_again == 300 - journaled
