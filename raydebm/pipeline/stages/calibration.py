"""The calibration: lambda and the thresholds on sigma, then posterior, profile and guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.decision.calibration.grid import CalibrationResult, calibrate, without_gate
from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError
from raydebm.pipeline.context import VALIDATION, Facts, StageContext
from raydebm.pipeline.pools import default_policy, recorded_labels
from raydebm.pipeline.stages.passes import outcomes_under
from raydebm.pipeline.stages.posterior import fit_run_policy
from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibrated policy that is not yet written."""

    policy: Policy
    files: Mapping[str, Any]
    """JSON values by file name."""
    facts: Facts

    @property
    def is_certified(self) -> bool:
        """True if the policy has a guarantee, and each of its guarantees is certified."""
        stated = [each for each in (self.policy.guarantee, self.policy.field_guarantee) if each is not None]
        return bool(stated) and all(each["certified"] for each in stated)

    def write(self, run: RunDir) -> None:
        """Replace the files of the stage. The policy is last, because the service reads it."""
        for name in ("grid.json", "decision.json"):
            if name not in self.files:
                run.remove("calibration", name)
        for name, value in self.files.items():
            run.write_json(value, "calibration", name)
        run.write_json(self.policy.to_json(), "calibration", "policy.json")


def make_calibration(context: StageContext) -> Facts:
    """Calibrate, and write the policy."""
    calibrated = calibrate_run(context)
    calibrated.write(context.run)
    return calibrated.facts


def calibrate_run(context: StageContext) -> Calibrated:
    """Choose lambda and the thresholds on sigma on the validation split; then fit the posterior and choose its profile
    and thresholds. Writes no file of the stage."""
    recipe, policy = context.recipe, default_policy(context)
    files: dict[str, Any] = {}
    facts = Facts(enabled=False)
    if recipe.decision.calibrate:
        grid = _thresholds(context, policy)
        policy, facts, files["grid.json"] = grid.policy, grid.facts(), grid.to_json()
    if recipe.decision.rule == "posterior":
        fit, facts["decision"] = fit_run_policy(context, policy)
        if fit is not None:
            policy, files["decision.json"] = fit.policy, fit.decision_file()
    return Calibrated(policy=policy, files=files, facts=facts)


def keep_guarantees(context: StageContext, reason: str) -> None:
    """Refuse to replace a policy that has a certified guarantee by one without it.

    Args:
        reason: reason why the stage is made again.

    Raises:
        ConfigError: the recipe does not ask for the guarantee.
    """
    run = context.run
    if not run.exists("calibration", "policy.json"):
        return
    # Read as JSON, so that a policy that this version cannot read can be calibrated again too.
    policy, asked = run.needed_object("calibration", "policy.json"), context.recipe.decision
    for guarantee, wanted, key in (
        (policy.get("guarantee"), asked.max_error, "max_error"),
        (policy.get("field_guarantee"), asked.max_field_error, "max_field_error"),
    ):
        if wanted is None and guarantee is not None and guarantee["certified"]:
            raise ConfigError(
                f"{run.uri('calibration', 'policy.json')} guarantees {key} {guarantee['max_error']:g}, and calibrating "
                f"again would drop that ({reason}). Set decision.{key} to have it certified again, or remove the file"
            )


def _thresholds(context: StageContext, default: Policy) -> CalibrationResult:
    """Choose lambda and the thresholds on sigma on the validation split, sampling every later pass of any lambda."""
    config = context.recipe.decision
    policies = without_gate(default, config)
    outcomes = outcomes_under(context, VALIDATION, list(policies.values()))
    labels = recorded_labels(context, VALIDATION)
    return calibrate(dict(zip(policies, outcomes, strict=True)), labels, base=default, config=config)
