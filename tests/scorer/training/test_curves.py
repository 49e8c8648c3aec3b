"""Curves in TensorBoard, read back with its own reader, and that they cannot harm a training."""

import sys
from types import SimpleNamespace

import pytest
from scorer_parts import recipe_for

from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import stage_fingerprint
from raydebm.scorer.training.curves import Curves, check_trackers
from raydebm.scorer.training.training_job import DONE_FILE, TrainingJob

FIRST = {"epoch": 1, "train_loss": 0.75, "validation_loss": None}
SECOND = {"epoch": 2, "train_loss": 0.25, "validation_loss": 0.5}


def recipe(**training):
    return recipe_for("a backbone", training=training)


@pytest.fixture
def job_in():
    """A finished training of a0 in a run directory."""
    pytest.importorskip("tensorboard")

    def make(root):
        given, run = recipe(report_to="tensorboard"), RunDir(str(root))
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


def test_a_package_that_is_missing_is_named_with_what_to_install(monkeypatch):
    for spec in (None, SimpleNamespace(origin=None)):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ConfigError, match=r"report_to names tensorboard, .*`pip install tensorboard`"):
            check_trackers(["tensorboard"])


def test_a_folder_of_the_packages_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "tensorboard").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tensorboard", raising=False)

    with pytest.raises(ConfigError, match="pip install tensorboard"):
        check_trackers(["tensorboard"])


def test_report_to_is_a_name_or_a_list_of_names():
    assert recipe(report_to="tensorboard") == recipe(report_to=["tensorboard"])
    assert recipe().training.report_to == ()
    with pytest.raises(ConfigError, match="'tensorboard'"):
        recipe(report_to="comet")


def test_where_a_training_is_reported_changes_no_fingerprint():
    run = RunDir("no-run")
    silent, shown, other = (
        stage_fingerprint("scorer", each, run)
        for each in (recipe(), recipe(report_to="tensorboard"), recipe(max_epochs=3))
    )

    assert silent == shown != other
