"""Ray Train: placement, death and return of workers, what is kept and what is trained again."""

import json
import logging
import re
import shutil
import threading

import pytest
from scorer_parts import recipe_for, train

from raydebm.errors import CheckpointError, PoolError, ResourceError, TrainingError

ADAPTERS = ("a0", "a1", "a2", "a3", "a4")
ONE_SLOT = {"gpus_per_adapter": 0, "cpus_per_adapter": 5}
"""Each slot costs three processes, which takes longer than these trainings: where slots are not the matter, one."""

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


def files_of(folder):
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_five_adapters_share_three_gpus_two_two_and_one(five):
    _, summary, _, _ = five

    assert list(summary["adapters"]) == list(ADAPTERS)
    assert sorted(adapter["gpu"] for adapter in summary["adapters"].values()) == ["0", "0", "1", "1", "2"]


def test_every_epoch_of_every_adapter_is_reported(five):
    _, _, progress, epochs = five

    assert sorted(epochs) == [(name, epoch) for name in ADAPTERS for epoch in (1, 2)]
    assert progress[-1] == (10, 10)


def test_the_ensemble_on_disk_can_score(five):
    from raydebm.scorer.ensemble import EnsembleScorer

    folder, _, _, _ = five
    scorer = EnsembleScorer.load(str(folder / "scorer"), device="cpu")

    assert scorer.adapters == ADAPTERS
    assert len(scorer.score([("w1 w2", "w3 right")])[0].members) == 5
    assert not (folder / "scorer" / "progress").exists()


def test_finished_adapters_are_not_trained_again(five, backbone):
    folder, _, _, _ = five
    before = files_of(folder / "scorer")
    summary = train(recipe_for(backbone), folder)

    after = files_of(folder / "scorer")
    files = {name for name in before if "/" in name}
    assert all(adapter["reused"] for adapter in summary["adapters"].values())
    assert {name: after[name] for name in files} == {name: before[name] for name in files}


@pytest.fixture(scope="module")
def retrained(five, backbone, tmp_path_factory):
    """(run directory, summary, warnings) of the same training with another rank of a1, and with a5 and a6 added, where
    TensorBoard's folder is a file."""
    folder = tmp_path_factory.mktemp("retrained") / "run"
    shutil.copytree(five[0], folder, ignore=shutil.ignore_patterns("tensorboard"))
    (folder / "tensorboard").write_text("a file where the folder should be")
    recipe = recipe_for(backbone, num_adapters=7, **ONE_SLOT)
    changed = recipe.scorer.adapters[1].model_copy(update={"rank": 3})
    adapters = tuple(changed if adapter.name == "a1" else adapter for adapter in recipe.scorer.adapters)
    scorer = recipe.scorer.model_copy(update={"adapters": adapters})
    warnings = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("raydebm").addHandler(listener)
    summary = train(recipe.model_copy(update={"scorer": scorer}), folder)
    logging.getLogger("raydebm").removeHandler(listener)
    return folder, summary, "\n".join(warnings)


def test_only_the_adapter_whose_settings_changed_is_trained_again_and_those_that_were_added(retrained):
    _, summary, warnings = retrained

    assert {name: adapter["reused"] for name, adapter in summary["adapters"].items()} == {
        "a0": True, "a1": False, "a2": True, "a3": True, "a4": True, "a5": False, "a6": False,
    }  # fmt: skip
    assert re.findall(r"adapter (\w+) was trained from other data or settings", warnings) == ["a1"]


def test_adapters_that_are_added_leave_the_weights_of_the_others_as_they_are(five, retrained):
    before, after = five[0] / "scorer", retrained[0] / "scorer"
    files = ("adapter_model.safetensors", "head.safetensors", "training.json")

    same = {
        name: all((before / name / file).read_bytes() == (after / name / file).read_bytes() for file in files)
        for name in ADAPTERS
    }
    assert same == {"a0": True, "a1": False, "a2": True, "a3": True, "a4": True}
    assert json.loads((after / "ensemble.json").read_text())["adapters"] == [
        *ADAPTERS, "a5", "a6",
    ]  # fmt: skip


def test_a_tracker_that_cannot_write_does_not_stop_a_training(retrained):
    pytest.importorskip("tensorboard")
    _, summary, warnings = retrained

    assert summary["adapters"]["a1"]["num_epochs"] == 2
    assert "TensorBoard receives nothing more from this training" in warnings


def test_a_diverging_adapter_fails_once_and_says_what_to_try(backbone, tmp_path):
    recipe = recipe_for(backbone, num_adapters=1, training={"learning_rate": 1e30})

    with pytest.raises(TrainingError, match=r"lower training\.learning_rate"):
        train(recipe, tmp_path)
    (started,) = tmp_path.glob("scorer/progress/a0-*.epochs/starts.json")
    assert len(json.loads(started.read_text())["pids"]) == 1


def test_a_backbone_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        train(recipe_for(tmp_path / "nowhere", num_adapters=1), tmp_path)
    waiting = [thread for thread in threading.enumerate() if thread.name.startswith("slot_")]
    assert all(thread.daemon for thread in waiting)  # so that the process can end


def test_a_request_that_no_node_can_hold_is_refused_before_anything_starts(backbone, tmp_path):
    with pytest.raises(ResourceError, match="100 CPU"):
        train(recipe_for(backbone, cpus_per_adapter=100), tmp_path)


def test_nothing_to_train_on_is_an_error(backbone, tmp_path):
    with pytest.raises(PoolError, match="nothing to train on"):
        train(recipe_for(backbone), tmp_path, size=0)
