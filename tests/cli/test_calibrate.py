"""What `raydebm calibrate` prints of the policy in force, and of what calibration certified."""

import pytest

from raydebm.cli.calibrate import show_calibrated
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id

BY_VOTES = Posterior(weights={"votes": 1.0}, context_weights={})
CALIBRATED = Policy(rule="posterior", posterior=BY_VOTES, tau_accept=0.8, tau_answer=0.6)
REPLACED = CALIBRATED.replaced(tau_accept=0.9)
GUARANTEE = {"max_error": 0.05, "confidence": 0.9, "certified": True, "problems": 300}


@pytest.fixture
def shown(capsys):
    """What is printed of a policy in force, and of the fit of the calibrated one."""

    def show(policy, *, is_fitted=True):
        fit = {"policy": policy_id(CALIBRATED), "guarantee": None, "promises": []}
        show_calibrated(policy, fit if is_fitted else None)
        return " ".join(capsys.readouterr().out.split())

    return show


def test_the_calibrated_policy_is_shown_without_a_remark(shown):
    printed = shown(CALIBRATED)

    assert '"tau_accept": 0.8' in printed
    assert "was replaced" not in printed


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [(None, "it guarantees nothing."), (GUARANTEE, "it guarantees an error of at most 0.05.")],
)
def test_a_replaced_policy_is_told_from_the_calibrated_one(shown, guarantee, words):
    replaced = REPLACED.replaced(guarantee=guarantee)
    printed = shown(replaced)

    assert '"tau_accept": 0.9' in printed
    assert f"the settings of policy {policy_id(replaced)}: policy.json was replaced" in printed
    assert words in printed
    assert f"What follows was found for the calibrated policy {policy_id(CALIBRATED)}" in printed


def test_a_replaced_posterior_is_told_from_the_papers_rule_that_was_calibrated(shown):
    printed = shown(REPLACED, is_fitted=False)

    assert "What follows was found for the calibrated policy, and does not hold for the one in force" in printed
    assert "The paper's rule decides" in printed
