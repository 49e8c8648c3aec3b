"""A certified guarantee is kept, or dropped only on purpose."""

import shutil

import pytest
from tiny_run import recipe_of

from raydebm.config import changed_recipe
from raydebm.errors import ConfigError
from raydebm.pipeline.pools import calibrated_policy
from raydebm.pipeline.runner import Pipeline

pytestmark = pytest.mark.ray


@pytest.fixture
def recipe(finished, tmp_path):
    """The recipe of a copy of the finished run."""
    shutil.copytree(finished[0].run.root, tmp_path / "run")
    return recipe_of(tmp_path / "run")


def certify(recipe, max_error, *, force=False):
    asking = changed_recipe(recipe, {"decision": {"max_error": max_error}})
    return Pipeline(recipe=asking).certify(recipe, force=force)


def contents(run):
    return {name: run.read_json("calibration", name) for name in run.names("calibration")}


def test_a_certified_policy_is_kept_by_the_next_run(recipe):
    certified = certify(recipe, 0.95)
    reports = []
    pipeline = Pipeline(recipe=recipe, on_stage=reports.append)
    pipeline.make("calibration")

    assert certified.is_certified
    assert calibrated_policy(pipeline) == certified.policy
    assert all(report.reused for report in reports)


def test_what_is_not_certified_leaves_the_stage_as_it_was(recipe):
    run = Pipeline(recipe=recipe).run
    before = contents(run)

    assert not certify(recipe, 0.001).is_certified
    assert contents(run) == before


def test_what_is_not_certified_is_written_by_force(recipe):
    calibrated = certify(recipe, 0.001, force=True)

    assert calibrated_policy(Pipeline(recipe=recipe)) == calibrated.policy
    assert calibrated.policy.tau_answer == 1.0


def test_a_calibration_that_would_drop_a_guarantee_is_refused_and_nothing_is_lost(recipe):
    certify(recipe, 0.95)
    pipeline = Pipeline(recipe=changed_recipe(recipe, {"decision": {"calibrate": False}}))
    before = contents(pipeline.run)

    with pytest.raises(ConfigError, match=r"policy\.json guarantees max_error 0\.95.*decision\.max_error"):
        pipeline.make("calibration")
    assert contents(pipeline.run) == before


def test_a_calibration_that_asks_for_a_guarantee_replaces_a_certified_policy(recipe):
    certify(recipe, 0.95)
    pipeline = Pipeline(recipe=changed_recipe(recipe, {"decision": {"max_error": 0.9}}))
    pipeline.make("calibration")

    assert calibrated_policy(pipeline).guarantee["max_error"] == 0.9


def test_a_policy_that_this_version_cannot_read_is_calibrated_again(recipe):
    pipeline = Pipeline(recipe=recipe)
    pipeline.run.reopen("calibration")
    older = {"rule": "posterior", "posterior": {"of_an_older_version": 1}}
    pipeline.run.write_json(older, "calibration", "policy.json")

    pipeline.make("calibration")

    assert calibrated_policy(pipeline).rule == "posterior"
