"""A slot's worker, with Ray faked: from which stored epoch it goes on, and what it says of a disk that refuses."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray.train
from scorer_parts import groups_of, recipe_for

from raydebm.errors import StorageError
from raydebm.pipeline.ray import train_worker
from raydebm.pipeline.ray.train_worker import train_loop
from raydebm.run.directory import RunDir
from raydebm.run.folder import Folder
from raydebm.scorer.model.backbone import frozen_weights
from raydebm.scorer.training.training_job import CHECKPOINT, TrainingJob

NUM_EPOCHS = 3


class WorkerKilledError(BaseException):
    """The end of a worker's process."""


class FakeTrain:
    """What Ray Train does in one run: it stores the last two checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.reported: list[int] = []
        """Epochs that were stored."""
        self.fails: dict[int, BaseException] = {}
        """What happens when an epoch is reported."""

    def report(self, metrics, checkpoint):
        if metrics["epoch"] in self.fails:
            raise self.fails[metrics["epoch"]]
        self.reported.append(metrics["epoch"])
        shutil.copytree(checkpoint.path, self._stored(0))
        shutil.rmtree(self._stored(2), ignore_errors=True)

    def get_checkpoint(self):
        return SimpleNamespace(path=str(self._stored(0)))

    def _stored(self, num_later):
        return self._folder / f"checkpoint-{len(self.reported) - num_later}"


class Training:
    """The training of one adapter, by workers in turn."""

    def __init__(self, backbone, folder):
        recipe = recipe_for(backbone, num_adapters=1, training={"max_epochs": NUM_EPOCHS, "patience": NUM_EPOCHS})
        self.job = TrainingJob(
            adapter=recipe.scorer.adapters[0],
            recipe=recipe,
            run=RunDir(str(folder)),
            stage="scorer",
            plan="p" * 16,
            data="d",
            device="cpu",
            graph_gib=None,
        )
        self.fake = FakeTrain(folder / "scorer" / "progress" / "slot-1")

    def run(self):
        """What a worker returns."""
        weights = [frozen_weights(self.job.recipe.scorer.backbone)]
        return train_loop({"jobs": [self.job], "weights": weights, "groups": [(groups_of(0, 12), groups_of(500, 4))]})

    def run_until_killed(self, *, in_epoch):
        self.fake.fails = {in_epoch: WorkerKilledError()}
        with pytest.raises(WorkerKilledError):
            self.run()
        self.fake.fails = {}

    def weights(self):
        files = ("adapter_model.safetensors", "head.safetensors")
        return [self.job.run.read_bytes("scorer", "a0", file) for file in files]


@pytest.fixture(scope="module")
def fake_ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.set_num_threads", lambda number: None)
        patch.setattr(ray, "get", lambda references: references)
        patch.setattr(train_worker, "_gpu", lambda: None)
        yield patch


@pytest.fixture(scope="module")
def begin(backbone, fake_ray):
    """Begins a training in a folder."""

    def call(folder):
        training = Training(backbone, folder)
        fake_ray.setattr(ray.train, "report", training.fake.report)
        fake_ray.setattr(ray.train, "get_checkpoint", training.fake.get_checkpoint)
        return training

    return call


@pytest.fixture(scope="module")
def undisturbed(begin, tmp_path_factory):
    """The weights of a training in peace."""
    training = begin(tmp_path_factory.mktemp("undisturbed"))
    assert training.run() is None
    return training.weights()


@pytest.fixture
def killed(undisturbed, begin, tmp_path):
    """A training whose worker was killed in the third epoch, before it was stored."""
    training = begin(tmp_path)
    training.run_until_killed(in_epoch=3)
    return training


def truncate(folder):
    file = folder / "optimizer.safetensors"
    os.truncate(file, file.stat().st_size // 2)


def exchange(folder):
    """For a checkpoint of a training with other settings."""
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"run_fingerprint": "', '"run_fingerprint": "other '))


DAMAGES = {
    truncate: "optimizer.safetensors cannot be read",
    exchange: "made with other data, settings, adapter or backbone",
    shutil.rmtree: "state.json cannot be read",
}


@pytest.mark.parametrize(("damage", "why"), DAMAGES.items(), ids=["truncated", "foreign", "missing"])
def test_where_the_newest_epoch_cannot_be_read_training_goes_on_after_the_one_before(
    undisturbed, killed, caplog, damage, why
):
    damage(Path(killed.job.checkpoints()[0].address))

    assert killed.run() is None
    assert killed.fake.reported == [1, 2, 2, 3]
    assert killed.weights() == undisturbed
    assert "adapter a0: cannot go on after epoch 2, going back to epoch 1" in caplog.text
    assert why in caplog.text


def test_where_no_stored_epoch_can_be_read_training_starts_again(undisturbed, killed, caplog):
    for stored in killed.job.checkpoints():
        truncate(Path(stored.address))

    assert killed.run() is None
    assert killed.fake.reported == [1, 2, 1, 2, 3]
    assert killed.weights() == undisturbed
    assert "cannot go on after epoch 1, starting again" in caplog.text


def test_where_the_note_of_the_stored_epochs_is_torn_training_starts_again(killed, caplog):
    (note,) = Path(killed.job.run.root).rglob(CHECKPOINT)
    os.truncate(note, 20)

    assert killed.run() is None
    assert killed.fake.reported == [1, 2, 1, 2, 3]
    assert f"adapter a0: {note} cannot be read" in caplog.text


def test_an_epoch_that_was_made_again_takes_the_place_of_the_torn_one(killed):
    truncate(Path(killed.job.checkpoints()[0].address))
    killed.run_until_killed(in_epoch=3)
    killed.run()

    assert killed.fake.reported == [1, 2, 2, 3]


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refuse(monkeypatch, code, *, in_file):
    """Have files of the run directory refused by the disk."""
    write = Folder.write_bytes

    def refusing(self, content, *parts):
        if parts[-1] == in_file:
            raise OSError(code, os.strerror(code))
        write(self, content, *parts)

    monkeypatch.setattr(Folder, "write_bytes", refusing)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "No space left on device; free space there"),
        (errno.EDQUOT, "quota exceeded; free space there, or have the quota raised"),
        (errno.EROFS, "Read-only file system; make it writable"),
        (errno.EACCES, "Permission denied; make it writable for the user that trains"),
    ],
)
def test_a_disk_that_refuses_is_named_with_reason_and_remedy(begin, tmp_path, monkeypatch, code, remedy):
    refuse(monkeypatch, code, in_file="starts.json")
    reason = begin(tmp_path).run().reason

    assert reason.startswith(f"cannot write to {tmp_path}/scorer: ")
    assert remedy in reason


@pytest.mark.parametrize("file", ["0001.json", "checkpoint.json", "head.safetensors", "finished.json"])
def test_a_full_disk_ends_the_slot_whatever_is_written(begin, tmp_path, monkeypatch, file):
    refuse(monkeypatch, errno.ENOSPC, in_file=file)
    refusal = begin(tmp_path).run()

    assert (refusal.adapter, refusal.refuses_all) == ("a0", True)
    assert "No space left on device" in refusal.reason


def test_a_full_scratch_disk_names_that_disk(begin, tmp_path, monkeypatch):
    def full(file, tensors):
        raise FULL

    monkeypatch.setattr("raydebm.scorer.training.adapter.save_tensors", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert begin(tmp_path / "run").run().reason.startswith(f"cannot write to {tmp_path} (TMPDIR): ")


@pytest.mark.parametrize(
    ("file", "trained"), [("0002.json", [1, 2, 3]), ("checkpoint.json", [1, 1, 2, 3]), ("finished.json", [1, 2, 3])]
)
def test_when_there_is_room_again_no_finished_epoch_is_lost(undisturbed, begin, tmp_path, monkeypatch, file, trained):
    training = begin(tmp_path)
    with monkeypatch.context() as full:
        refuse(full, errno.ENOSPC, in_file=file)
        training.run()

    assert training.run() is None
    assert training.fake.reported == trained
    assert training.weights() == undisturbed


def test_a_full_disk_where_the_ensemble_is_written_is_named(begin, tmp_path, monkeypatch):
    def full(self, content, **options):
        raise FULL

    training = begin(tmp_path)
    training.run()
    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(StorageError, match=f"the ensemble: cannot write to {tmp_path}/scorer: .* kept: a0"):
        train_worker._write_ensemble([training.job])
