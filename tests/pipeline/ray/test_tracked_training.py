"""A training on Ray, reported to a real tracker."""

import json

import pytest
from scorer_parts import recipe_for, train

from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.scorer.training.tracked_jobs import training_identity
from raydebm.scorer.training.training_job import PROGRESS, TrainingJob

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def tracked(five):
    pytest.importorskip("tensorboard")
    return five[0]


@pytest.mark.parametrize("adapter", ["a0", "a1"])
@pytest.mark.parametrize("curve", ["train_loss", "validation_loss", "validation_accuracy", "learning_rate", "seconds"])
def test_the_curves_are_those_of_the_training_record(tracked, adapter, curve):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tracked / "tensorboard" / "tiny" / adapter))
    events.Reload()
    record = json.loads((tracked / "scorer" / adapter / "training.json").read_text())

    assert [(event.step, event.value) for event in events.Scalars(curve)] == [
        (epoch["epoch"], pytest.approx(epoch[curve], rel=1e-6)) for epoch in record["epochs"]
    ]


def test_other_trackers_train_nothing_again(tracked, backbone):
    summary = train(recipe_for(backbone, training={"report_to": []}), tracked)

    assert [adapter.reused for adapter in summary.adapters] == [True] * 5


def test_a_training_keeps_its_identity_until_it_is_complete(backbone, tmp_path):
    run = RunDir(str(tmp_path))
    job = TrainingJob(
        adapter=recipe_for(backbone).scorer.adapters[0],
        recipe=recipe_for(backbone),
        run=run,
        stage="scorer",
        plan="p",
        data="d",
        device="cpu",
        graph_gib=None,
    )
    first, again = training_identity(job), training_identity(job)
    run.remove("scorer", PROGRESS)

    assert first == again
    assert training_identity(job) != first


def test_a_missing_package_is_refused_before_anything_starts(backbone, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install wandb"):
        train(recipe_for(backbone, training={"report_to": "wandb"}), tmp_path)
    assert not (tmp_path / "scorer").exists()
