"""A training on Ray, reported to a real tracker; and a finished run, exported with its evaluation."""

import json

import pytest
import yaml
from scorer_parts import recipe_for, train

from raydebm.distributed.tracked import training_identity
from raydebm.distributed.training_job import PROGRESS, TrainingJob
from raydebm.errors import ConfigError
from raydebm.store import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def tracked(five):
    pytest.importorskip("tensorboard")
    return five[0]


@pytest.mark.parametrize("adapter", ["a0", "a1"])
@pytest.mark.parametrize("curve", ["train_loss", "validation_loss", "validation_accuracy", "learning_rate", "seconds"])
def test_the_curves_are_those_of_the_training_record(tracked, adapter, curve):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tracked / "tensorboard" / "first" / adapter))
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

    with pytest.raises(ConfigError, match="pip install mlflow"):
        train(recipe_for(backbone, training={"report_to": "mlflow"}), tmp_path)
    assert not (tmp_path / "scorer").exists()


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    from raydebm.export.finished_run import FinishedRun
    from raydebm.export.scorer_folder import export_scorer

    run = FinishedRun.read(finished[0].run.root)
    return export_scorer(run, tmp_path_factory.mktemp("export") / "out")


def test_the_card_of_an_evaluated_run_has_its_figures_with_intervals(exported, finished):
    _, block, text = (exported.folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    alone, ours = (finished[1].row(name).pass_at_1 for name in ("mu only", "ours"))
    metrics = yaml.safe_load(block)["model-index"][0]["results"][0]["metrics"]

    assert metrics[0] == {
        "type": "accuracy",
        "value": round(alone.value, 4),
        "name": f"pass@1 by the mean energy alone (95 % interval {alone.low:.4f} to {alone.high:.4f}, n={alone.n})",
    }
    assert [metric["value"] for metric in metrics if "constraints" in metric["name"]] == [round(ours.value, 4)]
    assert "`mu only` is this scorer by itself" in text
    assert f"| **ours** | **{100 * ours.value:.1f}**" in text or f"| ours | {100 * ours.value:.1f}" in text


def test_the_hubs_own_reader_understands_the_figures(exported):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    data = huggingface_hub.ModelCard.load(exported.folder / "README.md").data

    assert data.eval_results[0].metric_type == "accuracy"


def test_the_thresholds_of_the_run_are_exported(exported, finished):
    from raydebm.decision.policy import Policy

    found = Policy.from_json(json.loads((exported.folder / "policy.json").read_text()))
    assert found == finished[0].policy()
    assert exported.left_out == ()
