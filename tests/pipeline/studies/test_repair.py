"""Which repair belongs to a run's scorer; the repair itself is a fake."""

from dataclasses import replace

import pytest
from tiny_run import recipe_of

from raydebm.pipeline.ray import confounding as shell
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.studies import repair
from raydebm.pipeline.studies.repair import ensure_repaired, repair_run
from raydebm.pipeline.studies.reproduction import with_repairs
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import STAGES

pytestmark = pytest.mark.ray


class Killed(BaseException):
    """What ends the process."""


def finish(pipeline, stages):
    for stage in stages:
        pipeline.run.finish(stage.name, new_manifest(stage.name, pipeline.recipe, pipeline.run, facts={}))


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A run whose stages are complete by their manifests alone. A repair of it writes a marker and a scorer."""
    pipeline = Pipeline(recipe=recipe_of(tmp_path / "run"))
    finish(pipeline, STAGES)

    def repaired_heads(run, *_, **__):
        RunDir(run.uri("repair")).write_json({}, "scorer", "ensemble.json")
        return "report", None

    monkeypatch.setattr(shell, "repaired_heads", repaired_heads)
    monkeypatch.setattr(repair, "_texts", lambda *_: [])
    monkeypatch.setattr(repair, "swap_inputs", lambda *_: None)
    monkeypatch.setattr(repair, "settings_of", lambda *_: None)
    monkeypatch.setattr(repair, "write_report", lambda *_: "address")
    monkeypatch.setattr(repair, "make_energies", lambda *_: {})
    return pipeline


@pytest.fixture
def calls(monkeypatch):
    """One entry for each repair that is made from now on."""
    made = []
    monkeypatch.setattr(repair, "repair_run", lambda pipeline: made.append(pipeline))
    return made


def test_a_repair_of_this_scorer_is_kept(pipeline, calls):
    repair_run(pipeline)

    ensure_repaired(pipeline)

    assert calls == []


def test_a_repair_that_was_killed_leaves_no_scorer_of_an_earlier_one(pipeline, monkeypatch):
    repair_run(pipeline)
    finish(pipeline, STAGES[1:])  # trained again

    def killed(*_, **__):
        raise Killed

    monkeypatch.setattr(shell, "repaired_heads", killed)
    with pytest.raises(Killed):
        repair_run(pipeline)

    assert RunDir(pipeline.run.uri("repair")).manifest("scorer") is None


def test_a_run_is_followed_by_the_repair_of_its_scorer(pipeline):
    repair_run(pipeline)

    assert [each.run.root for each in with_repairs([pipeline])] == [pipeline.run.root, pipeline.run.uri("repair")]


def test_a_repair_of_an_earlier_scorer_is_left_out(pipeline, caplog):
    repair_run(pipeline)
    finish(pipeline, STAGES[4:])  # trained again

    assert with_repairs([replace(pipeline)]) == [pipeline]
    assert "repair is left out: the run's scorer was trained again after the repair" in caplog.text
