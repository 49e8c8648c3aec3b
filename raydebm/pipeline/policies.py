"""The policies of a run: its recipe's own, the calibrated one, and the one that is evaluated."""

import logging
from typing import Any

from raydebm.decision.policy import Policy, policy_id, policy_of
from raydebm.pipeline.context import StageContext

log = logging.getLogger(__name__)


def default_policy(context: StageContext) -> Policy:
    """The recipe's own policy, before calibration; of one pass where a recorded pool has no reply to any feedback."""
    policy = policy_of(context.recipe.triage, context.task.defaults, context.recipe.generators)
    is_asked = context.passes.regenerator.kind != "recorded"
    return policy if is_asked or context.recorded_replies is not None else policy.replaced(max_passes=1)


def calibrated_policy(context: StageContext) -> Policy:
    """The policy that the calibration stage wrote."""
    return Policy.from_json(context.run.needed_object("calibration", "policy.json"))


def evaluated_policy(context: StageContext) -> Policy:
    """The calibrated policy, limited to one pass where the evaluation may not sample further ones."""
    policy = calibrated_policy(context)
    return policy if context.recipe.evaluation.two_pass else policy.replaced(max_passes=1)


def decision_fit(context: StageContext) -> dict[str, Any] | None:
    """How calibration fitted the posterior; None where it fitted none."""
    if not context.run.exists("calibration", "decision.json"):
        return None
    return context.run.needed_object("calibration", "decision.json")


def fit_in_force(context: StageContext) -> dict[str, Any] | None:
    """The same, of the policy in force; None where another file has taken the place of the calibrated one, for its
    thresholds and what they promise are another policy's then."""
    fit, version = decision_fit(context), policy_id(calibrated_policy(context))
    if fit is None or fit["policy"] == version:
        return fit
    log.warning(
        "policy %s is in force, and calibration fitted %s: confidence and promises are left out of the report; remove "
        "calibration/manifest.json to calibrate again",
        version,
        fit["policy"],
    )
    return None
