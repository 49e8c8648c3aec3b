"""Errors of the builder that Serve calls: one line, and the end of the command that waits for it."""

from pathlib import Path

import pytest
from ray.serve.exceptions import RayServeException

from raydebm.service.ray.app import build

BUILDER = "raydebm.service.ray.app:build"


def no_recipe(run):
    (run / "recipe.json").unlink()
    return r"recipe\.json does not exist; make a run first"


def unknown_key(run):
    file = run / "recipe.json"
    file.write_text(file.read_text().replace('"seed"', '"sead"', 1))
    return r"recipe\.json .*sead.*\. If another version made the run, run its recipe again"


def torn_policy(run):
    (run / "calibration" / "policy.json").write_text('{"rule": ')
    return r"policy\.json"


def policy_of_another_version(run):
    (run / "calibration" / "policy.json").write_text('{"tau_sure": 0.9}')
    return r"policy\.json is not a policy: .*unknown key\(s\) tau_sure; .*\. If another version wrote it, calibrate"


def unreadable_ensemble(run):
    (run / "scorer" / "ensemble.json").write_text('{"format": 2, "members": []}')
    return r"ensemble\.json is not a valid EnsembleRecord"


@pytest.mark.parametrize(
    "break_it", [no_recipe, unknown_key, torn_policy, policy_of_another_version, unreadable_ensemble]
)
def test_a_broken_run_is_one_line(write_run, break_it):
    run = Path(write_run())
    words = break_it(run)

    with pytest.raises(RayServeException, match=words) as caught:
        build({"run_dir": str(run)})
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_misspelt_argument_is_one_line():
    with pytest.raises(RayServeException, match="the application's args do not define a service: run_dri"):
        build({"run_dir": "demo", "run_dri": "demo"})
