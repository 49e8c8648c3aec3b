"""Ray Train: placement, death and return of workers, what is kept and what is trained again."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from scorer_parts import HeldRun, groups_of, recipe_for, tiny_backbone

from raydebm.distributed.train import train_ensemble
from raydebm.distributed.train_worker import private_mib
from raydebm.errors import CheckpointError, PoolError, ResourceError, TrainingError
from raydebm.store import RunDir

ADAPTERS = ("a0", "a1", "a2", "a3", "a4")

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture(scope="module", autouse=True)
def _own_cluster():
    """The session's Ray is one of our own, which saves a helper process for every adapter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raydebm.distributed.train.is_own_cluster", lambda: True)
        yield


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("backbone"))


def train(recipe, folder, *, size=12, **options):
    return train_ensemble(
        recipe=recipe,
        run=folder if isinstance(folder, RunDir) else RunDir(str(folder)),
        train=groups_of(0, size),
        validation=groups_of(500, 4),
        **options,
    )


def files_of(folder):
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def trained(local_ray, backbone, tmp_path_factory):
    """(run directory, summary, what was reported) of five adapters on three pretend GPUs."""
    folder = tmp_path_factory.mktemp("run")
    progress, epochs = [], []
    summary = train(
        recipe_for(backbone),
        folder,
        on_progress=lambda done, total: progress.append((done, total)),
        on_epoch=lambda name, facts: epochs.append((name, facts["metrics"]["epoch"])),
    )
    return folder, summary, progress, epochs


def test_five_adapters_share_three_gpus_two_two_and_one(trained):
    _, summary, _, _ = trained

    assert [adapter.name for adapter in summary.adapters] == list(ADAPTERS)
    assert sorted(adapter.gpu for adapter in summary.adapters) == ["0", "0", "1", "1", "2"]


def test_every_epoch_of_every_adapter_is_reported(trained):
    _, _, progress, epochs = trained

    assert sorted(epochs) == [(name, epoch) for name in ADAPTERS for epoch in (1, 2)]
    assert progress[-1] == (10, 10)


def test_the_ensemble_on_disk_can_score(trained):
    from raydebm.scorer.ensemble import EnsembleScorer

    folder, summary, _, _ = trained
    scorer = EnsembleScorer.load(summary.checkpoint, device="cpu")

    assert scorer.adapters == ADAPTERS
    assert len(scorer.score([("w1 w2", "w3 right")])[0].members) == 5
    assert not (folder / "scorer" / "progress").exists()


def test_adapters_do_not_see_the_same_problems_and_have_the_same_validation(trained):
    folder, _, _, _ = trained
    records = [json.loads((folder / "scorer" / name / "training.json").read_text()) for name in ADAPTERS]

    assert {record["num_train_problems"] for record in records} == {10}
    assert {record["num_validation_problems"] for record in records} == {4}
    assert len({record["data_fingerprint"] for record in records}) == 1


def test_the_facts_of_a_run_are_json(trained):
    facts = json.loads(json.dumps(trained[1].facts()))

    assert facts["adapters"]["a3"]["restarts"] == 0
    assert facts["backbone_mib"] > 0


def test_finished_adapters_are_not_trained_again(trained, backbone):
    folder, _, _, _ = trained
    before = files_of(folder / "scorer")
    summary = train(recipe_for(backbone), folder)

    after = files_of(folder / "scorer")
    kept = {name for name in before if "/" in name}
    assert all(adapter.reused for adapter in summary.adapters)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_only_the_adapter_whose_settings_changed_is_trained_again(trained, backbone, tmp_path, caplog):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    recipe = recipe_for(backbone)
    changed = recipe.scorer.adapters[1].model_copy(update={"rank": 3})
    adapters = tuple(changed if adapter.name == "a1" else adapter for adapter in recipe.scorer.adapters)
    scorer = recipe.scorer.model_copy(update={"adapters": adapters})

    with caplog.at_level(logging.WARNING):
        summary = train(recipe.model_copy(update={"scorer": scorer}), folder)

    assert {adapter.name: adapter.reused for adapter in summary.adapters} == {
        "a0": True, "a1": False, "a2": True, "a3": True, "a4": True,
    }  # fmt: skip
    assert "adapter a1 was trained from other data or settings" in caplog.text


class Killer(threading.Thread):
    """Ends the worker of ``a1`` with SIGKILL once Ray Train holds the checkpoint of its first epoch.

    In a ``HeldRun`` that worker waits for it in its second epoch, however slow this thread is.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder, self._progress = folder, folder / "scorer" / "progress"
        self.killed: int | None = None

    def run(self) -> None:
        while not self._holds_a_checkpoint():
            time.sleep(0.02)
        (started,) = self._progress.glob("a1-*.epochs/0000.json")
        self.killed = json.loads(started.read_text())["pids"][-1]
        os.kill(self.killed, signal.SIGKILL)
        (self._folder / "killed").touch()

    def _holds_a_checkpoint(self) -> bool:
        for snapshot in self._progress.glob("a1-*/checkpoint_manager_snapshot.json"):
            with contextlib.suppress(FileNotFoundError):  # while it is being replaced
                return '"checkpoint_dir_name":' in snapshot.read_text()
        return False


def test_a_killed_worker_costs_its_adapter_the_current_epoch_and_the_others_nothing(backbone, tmp_path):
    recipe = recipe_for(backbone, num_adapters=2, training={"max_epochs": 3, "patience": 3})
    killer = Killer(tmp_path)
    killer.start()
    epochs = {}
    summary = train(
        recipe,
        HeldRun(str(tmp_path)),
        on_epoch=lambda name, facts: epochs.setdefault(name, []).append((facts["metrics"]["seconds"], facts["pid"])),
    )

    assert [adapter.restarts for adapter in summary.adapters] == [0, 1]
    assert [adapter.num_epochs for adapter in summary.adapters] == [3, 3]
    assert len({pid for _, pid in epochs["a0"]}) == 1
    first, *others = epochs["a1"]
    assert first[1] == killer.killed
    assert killer.killed not in {pid for _, pid in others}
    record = json.loads((tmp_path / "scorer" / "a1" / "training.json").read_text())
    assert record["epochs"][0]["seconds"] == first[0]  # to the last digit: kept, not trained again


def test_adapters_that_finished_are_kept_when_one_fails_and_a_rerun_trains_only_that_one(backbone, tmp_path):
    recipe = recipe_for(backbone, num_adapters=2, max_failures=0)
    Killer(tmp_path).start()
    with pytest.raises(TrainingError, match="Finished adapters kept: a0") as raised:
        train(recipe, HeldRun(str(tmp_path)))
    assert set(raised.value.failed) == {"a1"}
    assert not (tmp_path / "scorer" / "ensemble.json").exists()

    summary = train(recipe, tmp_path)

    assert [(adapter.reused, adapter.restarts) for adapter in summary.adapters] == [(True, 0), (False, 1)]
    assert (tmp_path / "scorer" / "ensemble.json").exists()


def test_a_diverging_adapter_fails_once_and_says_what_to_try(backbone, tmp_path):
    recipe = recipe_for(backbone, num_adapters=1, training={"learning_rate": 1e30})

    with pytest.raises(TrainingError, match=r"lower training\.learning_rate"):
        train(recipe, tmp_path)
    (started,) = tmp_path.glob("scorer/progress/a0-*.epochs/0000.json")
    assert len(json.loads(started.read_text())["pids"]) == 1


def test_a_backbone_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        train(recipe_for(tmp_path / "nowhere"), tmp_path)
    waiting = [thread for thread in threading.enumerate() if thread.name.startswith("adapter_")]
    assert all(thread.daemon for thread in waiting)  # so that the process can end


def test_a_request_that_no_node_can_hold_is_refused_before_anything_starts(backbone, tmp_path):
    with pytest.raises(ResourceError, match="100 CPU"):
        train(recipe_for(backbone, cpus_per_adapter=100), tmp_path)


def test_nothing_to_train_on_is_an_error(backbone, tmp_path):
    with pytest.raises(PoolError, match="nothing to train on"):
        train(recipe_for(backbone), tmp_path, size=0)


MAP = """
import mmap, sys
from raydebm.distributed.train_worker import private_mib

before = private_mib()
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    num_ones = sum(mapped[start] for start in range(0, len(mapped), 4096))
print(num_ones, before is not None and private_mib() - before, flush=True)
copied = mapped[:]
print(len(copied), before is not None and private_mib() - before, flush=True)
sys.stdin.read()
"""


def test_private_memory_does_not_count_shared_pages(tmp_path):
    """Two processes map one file of 50 MiB; what the second one then copies is its own."""
    (tmp_path / "ones").write_bytes(b"\x01" * (50 * 2**20))
    if private_mib() is None:
        pytest.skip("this system does not tell private memory")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", MAP, str(tmp_path / "ones")]
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            mapped, copied = (process.stdout.readline().split() for _ in range(2))

    assert (mapped[0], copied[0]) == (str(50 * 256), str(50 * 2**20))
    assert float(mapped[1]) < 10
    assert float(copied[1]) > 45
