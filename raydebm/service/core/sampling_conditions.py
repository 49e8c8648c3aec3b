"""Conditions that void a guarantee for one decision: it was made differently from those of calibration.

Seven conditions do: a changed policy (``Policy.changed``), sampling that differs from calibration's, earlier turns of a
chat, a ceiling that can bind, a limit of time or money that left candidates out, evidence that failed, other adapters.
A different seed does not: any seed samples from the same distribution.

Does not know: Ray, HTTP.
"""

from raydebm.decision.policy import Policy
from raydebm.decision.sampling.deadline import is_late
from raydebm.records import Outcome
from raydebm.service.core.request import RequestContext


def asked_otherwise(context: RequestContext) -> str | None:
    """The request's change to the sampling of pass 1, or None."""
    if context.earlier_turns:
        return "the generators saw earlier turns of the chat"
    changed = [
        *(["generators"] if context.generators != context.bundle.generators else []),
        *(["num_samples"] if context.num_samples is not None else []),
        *(["response_format"] if context.response_format is not None else []),
        *sorted(context.sampling.model_dump(exclude_none=True)),
    ]
    return f"the request changed {', '.join(changed)}" if changed else None


def decided_under(context: RequestContext, outcome: Outcome, *, over_budget: bool, has_all_evidence: bool) -> Policy:
    """The request's policy, with its guarantee void if it does not cover this decision.

    Args:
        context: the request.
        outcome: outcome of the loop.
        over_budget: a limit of money left candidates out.
        has_all_evidence: the baselines that are evidence worked, if there are any.
    """
    policy = context.policy
    if policy.guarantee is None or not policy.guarantee["certified"]:
        return policy
    reason = (
        asked_otherwise(context)
        or _served_otherwise(context)
        or _limited(outcome, over_budget=over_budget)
        or (None if has_all_evidence else "baselines that are evidence did not work")
    )
    return policy if reason is None else policy.without_promise(reason)


def _served_otherwise(context: RequestContext) -> str | None:
    """The operator's setting that differs from calibration, or None."""
    posterior, checkpoint = context.policy.posterior, context.bundle.versions["checkpoint"]
    if posterior is not None and posterior.checkpoint not in ("", checkpoint):
        return f"checkpoint {checkpoint} scores, and the policy was calibrated with {posterior.checkpoint}"
    calibrated = [config.name for config in context.bundle.recipe.generators]
    if absent := [name for name in calibrated if name not in context.generators]:
        return f"the service does not ask {', '.join(absent)}, which calibration did"
    return ceiling_on_candidates(context, calibrated=context.bundle.policies[context.problem.task])


def ceiling_on_candidates(context: RequestContext, *, calibrated: Policy) -> str | None:
    """The ceiling that allows fewer candidates than the calibration problems had, or None.

    Args:
        context: the request.
        calibrated: the calibrated policy, with its budget.
    """
    policy = context.policy
    if policy.budget is None or policy.budget == calibrated.budget:
        return None
    most = len(context.requests(1, None)) + (policy.max_passes - 1) * policy.num_regenerate
    if policy.budget >= most:
        return None
    return f"a ceiling of the service allows {policy.budget} candidates, and all passes may sample {most}"


def _limited(outcome: Outcome, *, over_budget: bool) -> str | None:
    """The limit that cut this decision's candidates, or None."""
    if over_budget:
        return "a limit of money left candidates out"
    if any(is_late(scored.candidate) for scored in outcome.pool):
        return "the deadline left candidates out"
    if any(record.pass_index > 1 and record.num_requested == 0 for record in outcome.passes):
        return "a limit kept a further pass from being sampled"
    return None
