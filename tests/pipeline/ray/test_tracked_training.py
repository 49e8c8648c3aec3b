"""A training on Ray, with its curves in TensorBoard."""

import json

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def tracked(five):
    pytest.importorskip("tensorboard")
    return five[0]


@pytest.mark.parametrize("adapter", ["a0", "a1"])
def test_the_curves_are_those_of_the_training_record(tracked, adapter):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tracked / "tensorboard" / "tiny" / adapter))
    events.Reload()
    record = json.loads((tracked / "scorer" / adapter / "training.json").read_text())

    for curve in ("train_loss", "validation_loss", "validation_accuracy", "learning_rate", "seconds"):
        assert [(event.step, event.value) for event in events.Scalars(curve)] == [
            (epoch["epoch"], pytest.approx(epoch[curve], rel=1e-6)) for epoch in record["epochs"]
        ]
