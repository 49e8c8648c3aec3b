"""Two trainings on the candidates of one run, on a real Ray."""

from unittest import mock

import pytest
from tiny_run import recipe_of

from raydebm.errors import ConfigError, MissingKeyError
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.studies.children import SHARED
from raydebm.pipeline.studies.seeds import _with_seed, train_seeds
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def trained(finished, tmp_path_factory):
    """(summary, run directory, what the stages reported) of seeds 5 and 6."""
    pipeline, _, _ = finished
    folder = tmp_path_factory.mktemp("seeds")
    one_adapter = pipeline.recipe.scorer.model_copy(update={"adapters": pipeline.recipe.scorer.adapters[:1]})
    one_pass = pipeline.recipe.triage.model_copy(update={"max_passes": 1})
    recipe = pipeline.recipe.model_copy(update={"scorer": one_adapter, "triage": one_pass})
    for stage in SHARED:  # the first training's own, were it not for the time that generating takes
        pipeline.run.copy_stage(stage, RunDir(str(folder / "seed-5")))
    reports = []
    # As on a cluster of our own, which saves a helper process for every adapter.
    with mock.patch("raydebm.distributed.train.is_own_cluster", return_value=True):
        summary, address = train_seeds(recipe, [5, 6], run=RunDir(str(folder)), on_stage=reports.append)
    assert address == str(folder / "seeds" / "report.html")
    return summary, folder, reports


def test_each_seed_is_a_run_of_its_own(trained):
    _, folder, _ = trained
    weights = [(folder / f"seed-{seed}" / "scorer" / "a0" / "head.safetensors").read_bytes() for seed in (5, 6)]
    assert weights[0] != weights[1]


def test_candidates_and_labels_are_made_once(trained):
    _, folder, reports = trained
    made = {report.stage for report in reports if not report.reused}
    assert made.isdisjoint(SHARED)
    assert made >= {"pairs", "scorer", "energies", "evaluation"}
    tables = [(folder / f"seed-{seed}" / "labels" / "labels.parquet").read_bytes() for seed in (5, 6)]
    assert tables[0] == tables[1]


def test_the_summary_is_over_both(trained):
    summary, _, _ = trained
    assert summary.seeds == (5, 6)
    assert summary.num_problems == 6
    assert len(summary.row("ours").by_seed) == 2
    assert summary.row("oracle").sd == 0
    assert len(summary.screens) == 2


def test_one_seed_is_refused(finished, tmp_path):
    with pytest.raises(ConfigError, match="two or more"):
        train_seeds(finished[0].recipe, [1], run=RunDir(str(tmp_path)))


def test_requests_that_failed_are_asked_again_on_demand(tmp_path, monkeypatch):
    """With the candidates there no key is needed; with one of them to be asked again it is missed at once."""
    monkeypatch.delenv("SEEDS_KEY", raising=False)
    asked = {"kind": "openai", "name": "g", "model": "m", "api_key_env": "SEEDS_KEY"}
    recipe, run = recipe_of(tmp_path, generators=[asked]), RunDir(str(tmp_path))
    pipelines = [Pipeline(recipe=_with_seed(recipe, seed, run)) for seed in (5, 6)]
    for pipeline in pipelines:
        pipeline.run.finish(
            "candidates", new_manifest("candidates", pipeline.recipe, pipeline.run, facts={"num_failed": 1})
        )

    with pytest.raises(MissingKeyError, match="SEEDS_KEY"):
        train_seeds(recipe, [5, 6], run=run, retry_failed=True)
    assert [pipeline.run.manifest("candidates") for pipeline in pipelines] == [None, None]
