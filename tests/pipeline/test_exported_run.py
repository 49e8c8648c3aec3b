"""A finished run, exported with its evaluation."""

import json
import re

import pytest

from raydebm.decision.policy import Policy
from raydebm.pipeline.export import export_scorer
from raydebm.run.ensemble_file import read_ref

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "out"
    assert export_scorer(finished[0].run.root, folder) == []
    return folder


def test_the_card_of_an_evaluated_run_has_its_figures_with_intervals(exported, finished):
    text = (exported / "README.md").read_text(encoding="utf-8")
    paper = finished[1].row("energy (paper)").pass_at_1

    assert "`mu only` is this scorer by itself" in text
    assert re.search(rf"\| \**energy \(paper\)\**.*? \| \**{100 * paper.value:.1f} \[", text)


def test_the_exported_policy_names_the_exported_scorer(exported):
    policy = Policy.from_json(json.loads((exported / "policy.json").read_text()))

    assert policy.posterior.checkpoint == read_ref(str(exported)).fingerprint
