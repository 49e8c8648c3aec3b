"""Curves in TensorBoard, read back with its own reader, and that they cannot harm a training."""

import pytest
from scorer_parts import recipe_for

from raydebm.run.directory import RunDir
from raydebm.scorer.training.curves import Curves
from raydebm.scorer.training.training_job import DONE_FILE, TrainingJob

FIRST = {"epoch": 1, "train_loss": 0.75, "validation_loss": None}
SECOND = {"epoch": 2, "train_loss": 0.25, "validation_loss": 0.5}


@pytest.fixture
def job_in():
    """A finished training of a0 in a run directory."""
    pytest.importorskip("tensorboard")

    def make(root):
        given, run = recipe_for("a backbone"), RunDir(str(root))
        run.write_json({"summary": {"best_epoch": 2, "restarts": None, "pid": 7}}, "scorer", "a0", DONE_FILE)
        return TrainingJob(
            adapter=given.scorer.adapters[0], recipe=given, run=run, stage="scorer", plan="p", data="d", device="cpu",
            graph_gib=None,
        )  # fmt: skip

    return make


def told(job, *metrics):
    curves = Curves([job])
    for each in metrics:
        curves.epoch("a0", {"metrics": each})
    curves.finish([job])


def points(root):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(root / "tensorboard" / "tiny" / "a0"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.parametrize("prefix", ["", "file://"], ids=["folder", "URL"])
def test_every_epoch_is_a_point_of_the_adapters_curves(job_in, tmp_path, prefix):
    told(job_in(f"{prefix}{tmp_path}"), FIRST, SECOND)

    assert points(tmp_path) == {
        "train_loss": [(1, 0.75), (2, 0.25)], "validation_loss": [(2, 0.5)], "kept/best_epoch": [(0, 2.0)],
    }  # fmt: skip


def test_another_training_replaces_the_curves(job_in, tmp_path):
    told(job_in(tmp_path), FIRST)
    told(job_in(tmp_path), FIRST, SECOND)

    assert points(tmp_path)["train_loss"] == [(1, 0.75), (2, 0.25)]


def test_curves_that_cannot_be_written_end_with_one_warning(job_in, tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")

    told(job_in(tmp_path), FIRST, SECOND)

    (record,) = caplog.records
    assert record.message.startswith("TensorBoard receives nothing more from this training: ")
    assert str(tmp_path) in record.message


def test_curves_that_fail_later_end_with_one_warning(job_in, tmp_path, caplog):
    job = job_in(tmp_path)
    curves = Curves([job])
    curves.epoch("a0", {"metrics": FIRST})
    curves.epoch("a0", {"metrics": {**SECOND, "train_loss": "a word"}})
    curves.epoch("a0", {"metrics": SECOND})

    assert len(caplog.records) == 1
    assert points(tmp_path)["train_loss"] == [(1, 0.75)]
