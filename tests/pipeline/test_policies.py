"""Which calibration belongs to the policy that is evaluated."""

from types import SimpleNamespace

import pytest

from raydebm.decision.policy import Policy, policy_id
from raydebm.pipeline.pools import decision_fit, fit_in_force
from raydebm.run.directory import RunDir

CALIBRATED = Policy(theta_sigma=0.5)


@pytest.fixture
def context(tmp_path):
    """A run whose calibration fitted ``CALIBRATED``, which is in force."""
    run = RunDir(str(tmp_path))
    run.write_json(CALIBRATED.to_json(), "calibration", "policy.json")
    run.write_json({"policy": policy_id(CALIBRATED)}, "calibration", "decision.json")
    return SimpleNamespace(run=run)


def test_a_replaced_policy_has_no_calibration_and_a_warning_says_what_to_do(context, caplog):
    context.run.write_json(CALIBRATED.replaced(theta_sigma=0.7).to_json(), "calibration", "policy.json")

    assert fit_in_force(context) is None
    assert decision_fit(context) == {"policy": policy_id(CALIBRATED)}
    assert "remove calibration/manifest.json to calibrate again" in caplog.text


def test_without_a_fit_there_is_none_and_no_warning(context, caplog):
    context.run.remove("calibration", "decision.json")

    assert fit_in_force(context) is None
    assert caplog.text == ""
