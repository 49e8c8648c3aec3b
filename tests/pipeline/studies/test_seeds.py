"""Two trainings on the candidates of one run, on a real Ray."""

from unittest import mock

import pytest
from tiny_run import recipe_of

from raydebm.errors import ConfigError, MissingKeyError
from raydebm.pipeline.runner import SHARED, Pipeline
from raydebm.pipeline.studies.trainings import train_several
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def trained(finished, tmp_path_factory):
    """(summary, run directory, what the stages reported) of seeds 5 and 6."""
    pipeline, _, _ = finished
    folder = tmp_path_factory.mktemp("seeds")
    one_adapter = pipeline.recipe.scorer.model_copy(update={"adapters": pipeline.recipe.scorer.adapters[:1]})
    one_pass = pipeline.recipe.decision.model_copy(update={"max_passes": 1})
    update = {"run_dir": str(folder), "scorer": one_adapter, "decision": one_pass}
    for stage in SHARED:  # the run's own, were it not for the time that generating takes
        pipeline.run.copy_stage(stage, RunDir(str(folder)))
    reports = []
    shared = Pipeline(recipe=pipeline.recipe.model_copy(update=update), on_stage=reports.append)
    # As on a cluster of our own, which saves a helper process for every adapter.
    with mock.patch("raydebm.pipeline.ray.train.is_own_cluster", return_value=True):
        summary, address = train_several(shared, seeds=[5, 6])
    assert address == str(folder / "seeds" / "report.html")
    return summary, folder, reports


def test_the_summary_is_over_both(trained):
    summary, _, _ = trained
    assert (summary.seeds, summary.folds, summary.num_problems) == ((5, 6), (), 6)
    assert len(summary.row("energy (paper)").by_seed) == 2
    assert summary.row("oracle").sd_of_seeds == 0
    assert all(training.screen for training in summary.trainings)


def test_one_seed_is_refused(finished):
    with pytest.raises(ConfigError, match="two or more"):
        train_several(finished[0], seeds=[1])


def test_requests_that_failed_are_asked_again_on_demand(tmp_path, monkeypatch):
    """With the candidates there no key is needed; with one of them to be asked again it is missed at once."""
    monkeypatch.delenv("SEEDS_KEY", raising=False)
    asked = {"kind": "openai", "name": "g", "model": "m", "api_key_env": "SEEDS_KEY"}
    shared = Pipeline(recipe=recipe_of(tmp_path, generators=[asked]))
    shared.run.finish("candidates", new_manifest("candidates", shared.recipe, shared.run, facts={"num_failed": 1}))

    with pytest.raises(MissingKeyError, match="SEEDS_KEY"):
        train_several(shared, seeds=[5, 6], retry_failed=True)
    assert shared.run.manifest("candidates") is None
