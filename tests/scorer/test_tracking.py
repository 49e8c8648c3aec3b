"""What a training tells to trackers, and that no tracker can harm it."""

import logging
import sys
import threading
from types import SimpleNamespace

import pytest

from raydebm.config import parse_recipe
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.scorer.tracking import TrackedAdapter, TrackedTraining, Tracking, check_trackers

METRICS = {"train_loss": 0.5, "validation_loss": None, "seconds": 2.0}


def training_of(folder="unused", adapters=("a0", "a1")):
    return TrackedTraining(
        project="p",
        run_name="r",
        run=RunDir(str(folder)),
        adapters={name: TrackedAdapter(identity=f"id-{name}", settings={"rank": 2}) for name in adapters},
    )


@pytest.fixture
def trackers(monkeypatch):
    """The table of trackers, to be filled."""
    table = {}
    monkeypatch.setattr("raydebm.scorer.tracking.TRACKERS", table)
    return table


def notebook(told):
    """A tracker that writes down what it is told."""
    return lambda training: lambda *arguments: told.append(arguments)


def full(training):
    def tell(*arguments):
        raise OSError("disk full")

    return tell


def refuse(training):
    raise OSError("wandb is down")


def test_what_happens_is_told_in_order_and_what_is_unknown_is_left_out(trackers):
    told = []
    trackers["wandb"] = notebook(told)
    tracking = Tracking(["wandb"], training_of())

    tracking.epoch("a0", 1, METRICS)
    tracking.finish("a0", {"best_epoch": 1, "validation_loss": None})
    tracking.close()

    assert told == [("a0", 1, {"train_loss": 0.5, "seconds": 2.0}), ("a0", None, {"best_epoch": 1}), ("a1", None, None)]


def test_a_tracker_that_fails_is_named_once_and_the_others_go_on(trackers, caplog):
    told = []
    trackers |= {"wandb": full, "tensorboard": notebook(told)}
    tracking = Tracking(trackers, training_of())

    with caplog.at_level(logging.WARNING):
        tracking.epoch("a0", 1, METRICS)
        tracking.epoch("a0", 2, METRICS)
        tracking.close()

    assert [call[:2] for call in told[:2]] == [("a0", 1), ("a0", 2)]
    assert [record.message for record in caplog.records] == [
        "tracker wandb failed and receives nothing more from this training: OSError: disk full"
    ]


def test_a_tracker_that_cannot_start_is_a_warning(trackers, caplog):
    trackers["wandb"] = refuse
    with caplog.at_level(logging.WARNING):
        tracking = Tracking(["wandb"], training_of())
        tracking.epoch("a0", 1, METRICS)
        tracking.close()

    assert "tracker wandb failed" in caplog.text
    assert "wandb is down" in caplog.text


def test_a_tracker_that_hangs_is_left_behind(trackers, caplog):
    gate = threading.Event()
    trackers["wandb"] = lambda training: gate.wait()
    with caplog.at_level(logging.WARNING):
        tracking = Tracking(["wandb"], training_of())
        tracking.epoch("a0", 1, METRICS)
        tracking.close(limit_s=0)
    gate.set()

    assert "tracker wandb is still sending" in caplog.text


def test_a_package_that_is_missing_is_named_with_what_to_install(monkeypatch):
    installed = SimpleNamespace(origin="tensorboard/__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "wandb" else installed)

    check_trackers(["tensorboard"])
    with pytest.raises(ConfigError, match=r"report_to names wandb, .*`pip install wandb`"):
        check_trackers(["tensorboard", "wandb"])


def test_a_folder_of_the_packages_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)

    with pytest.raises(ConfigError, match="pip install wandb"):
        check_trackers(["wandb"])


RECIPE = {
    "name": "r",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}],
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("wandb", ("wandb",)), (["tensorboard", "wandb"], ("tensorboard", "wandb")), ([], ())],
    ids=["one", "several", "none"],
)
def test_report_to_is_a_name_or_a_list_of_names(value, expected):
    recipe = parse_recipe(RECIPE | {"training": {"report_to": value}})

    assert recipe.training.report_to == expected


@pytest.mark.parametrize(
    ("value", "words"), [("comet", "'tensorboard' or 'wandb'"), (["wandb", "wandb"], "must differ")]
)
def test_a_wrong_report_to_is_refused(value, words):
    with pytest.raises(ConfigError, match=words):
        parse_recipe(RECIPE | {"training": {"report_to": value}})


def test_where_a_training_is_reported_changes_no_fingerprint():
    from raydebm.run.directory import RunDir
    from raydebm.run.fingerprints import stage_fingerprint

    silent = parse_recipe(RECIPE)
    told = parse_recipe(RECIPE | {"training": {"report_to": "wandb"}})
    other = parse_recipe(RECIPE | {"training": {"max_epochs": 3}})
    run = RunDir("no-run")

    assert stage_fingerprint("scorer", silent, run) == stage_fingerprint("scorer", told, run)
    assert stage_fingerprint("scorer", silent, run) != stage_fingerprint("scorer", other, run)
