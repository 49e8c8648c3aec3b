"""The calibration: lambda and the thresholds on sigma, then posterior, profile and promise."""

from raydebm.decision.calibration.grid import calibrate
from raydebm.decision.policy import Policy
from raydebm.pipeline.context import TEST, VALIDATION, Facts, StageContext
from raydebm.pipeline.policies import default_policy
from raydebm.pipeline.pools import later_passes, recorded_pools
from raydebm.pipeline.scores import evidence_names, score_baselines, score_later_pass
from raydebm.pipeline.stages.passes import complete, recorded_parts
from raydebm.pipeline.stages.posterior import fit_run_policy


def make_calibration(context: StageContext) -> Facts:
    """Choose lambda and the thresholds on sigma on the validation split; then fit the posterior, and choose profile and
    thresholds on its probabilities."""
    recipe, run, default = context.recipe, context.run, default_policy(context)
    run.remove("calibration", "grid.json")
    run.remove("calibration", "decision.json")
    if recipe.calibration.enabled:
        policy, facts = _thresholds(context, default)
    else:
        policy, facts = default, Facts(enabled=False)
    if recipe.triage.rule == "posterior":
        policy, decision_facts = fit_run_policy(context, policy)
        facts = {**facts, "decision": decision_facts}
    run.write_json(policy.to_json(), "calibration", "policy.json")
    return facts


def _thresholds(context: StageContext, default: Policy) -> tuple[Policy, Facts]:
    """The policy with lambda and the thresholds on sigma that are best on the validation split, and facts about them;
    samples every later pass that some lambda asks for."""
    config = context.recipe.calibration
    # The grid may ask for a later pass of any problem under any lambda, so all of them are sampled.
    lambdas = sorted({default.lambda_, *config.lambdas})
    always = [default.replaced(lambda_=lambda_, theta_sigma=0.0, theta_abstain=1e9) for lambda_ in lambdas]
    complete(context, VALIDATION, always)
    pools = recorded_pools(context, VALIDATION)
    result = calibrate(
        context.problems_of(VALIDATION),
        parts=recorded_parts(context, pools)[0],
        labels=pools.labels,
        base=default,
        config=config,
    )
    context.run.write_json(result.to_json(), "calibration", "grid.json")
    return result.policy, result.facts()


def score_evidence(context: StageContext) -> None:
    """Score the candidates of every pass by the baselines that are evidence, where scores are missing."""
    if not context.recipe.evidence:
        return
    score_baselines(context, evidence_names(context.recipe))
    for split in (VALIDATION, TEST):
        for stage in later_passes(context, split):
            score_later_pass(context, stage)
