"""A finished run, exported with its evaluation."""

import json
import re

import pytest
import yaml

from raydebm.decision.policy import Policy
from raydebm.pipeline.export import export_scorer
from raydebm.pipeline.pools import calibrated_policy
from raydebm.run.ensemble_file import read_ref

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "out"
    assert export_scorer(finished[0].run.root, folder) == []
    return folder


def test_the_card_of_an_evaluated_run_has_its_figures_with_intervals(exported, finished):
    _, block, text = (exported / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    alone, paper = (finished[1].row(name).pass_at_1 for name in ("mu only", "energy (paper)"))
    metrics = yaml.safe_load(block)["model-index"][0]["results"][0]["metrics"]

    assert metrics[0] == {
        "type": "accuracy",
        "value": round(alone.value, 4),
        "name": f"pass@1 by the mean energy alone (95 % interval {alone.low:.4f} to {alone.high:.4f}, n={alone.n})",
    }
    assert [metric["value"] for metric in metrics if "constraints" in metric["name"]] == [round(paper.value, 4)]
    assert "`mu only` is this scorer by itself" in text
    assert re.search(rf"\| \**energy \(paper\)\**.*? \| \**{100 * paper.value:.1f} \[", text)


def test_the_hubs_own_reader_understands_the_figures(exported):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    data = huggingface_hub.ModelCard.load(exported / "README.md").data

    assert data.eval_results[0].metric_type == "accuracy"


def test_the_exported_policy_names_the_exported_scorer(exported):
    policy = Policy.from_json(json.loads((exported / "policy.json").read_text()))

    assert policy.posterior.checkpoint == read_ref(str(exported)).fingerprint


def test_the_thresholds_of_the_run_are_exported(exported, finished):
    policy = Policy.from_json(json.loads((exported / "policy.json").read_text()))

    assert policy == calibrated_policy(finished[0])
