"""From policies and their comparison to the bodies of ``schema.policy_bodies``. Pure."""

from collections.abc import Sequence

from raydebm.decision.policy import policy_id
from raydebm.decision.policy_history import PolicyChange, SecondPolicy
from raydebm.evaluation.studies.policy_pairs import PolicyComparison, PolicyFigures
from raydebm.serving.api.outcomes.accuracy import exact_interval
from raydebm.serving.api.schema.policy_bodies import (
    ComparisonBody,
    EstimateBody,
    FirstPolicyBody,
    PairedTestBody,
    PoliciesBody,
    PolicyChangeBody,
    PolicyFiguresBody,
    SecondPolicyBody,
)
from raydebm.serving.settings.bundle import Bundle


def policies_body(bundle: Bundle, changes: Sequence[PolicyChange], *, tasks: Sequence[str]) -> PoliciesBody:
    """The policies of a run, every change of its first one, and the tasks of the service that have policies."""
    (first,) = bundle.policies.values()
    return PoliciesBody(
        tasks=list(tasks),
        first=FirstPolicyBody(version=bundle.versions["policy"], policy_id=policy_id(bundle.served(first))),
        second=None if bundle.second is None else second_body(bundle, bundle.second),
        history=[change_body(change) for change in reversed(changes)],
    )


def second_body(bundle: Bundle, second: SecondPolicy) -> SecondPolicyBody:
    """The policy on trial in a run."""
    return SecondPolicyBody(
        version=second.version,
        policy_id=policy_id(bundle.served(second.policy)),
        percent=second.percent,
        time=second.time,
        reason=second.reason,
    )


def change_body(change: PolicyChange) -> PolicyChangeBody:
    """One change, with the id of the policy that it replaced."""
    names = PolicyChangeBody.model_fields.keys() - {"replaced"}
    return PolicyChangeBody(replaced=policy_id(change.replaced), **{name: getattr(change, name) for name in names})


def comparison_body(comparison: PolicyComparison) -> ComparisonBody:
    """A comparison with the shares that follow from its counts."""
    num_known = comparison.num_agree + comparison.num_differ
    counts = {name: getattr(comparison, name) for name in ComparisonBody.model_fields if name.startswith("num_")}
    return ComparisonBody(
        first=_figures(comparison.first, num_known),
        second=_figures(comparison.second, num_known),
        **counts,
        agreement=comparison.num_agree / num_known if num_known else None,
        right=PairedTestBody.model_validate(comparison.right),
        wrong=PairedTestBody.model_validate(comparison.wrong),
        answered=PairedTestBody.model_validate(comparison.answered),
        candidates=EstimateBody.model_validate(comparison.candidates),
        candidates_p=comparison.candidates_p,
        cost_usd=EstimateBody.model_validate(comparison.cost_usd),
        cost_p=comparison.cost_p,
        margin=comparison.margin,
        outcomes_needed=comparison.outcomes_needed,
    )


def _figures(figures: PolicyFigures, num_known: int) -> PolicyFiguresBody:
    num_judged = figures.right + figures.wrong
    coverage = figures.answered / num_known if num_known else None
    accuracy = figures.right / num_judged if num_judged else None
    low, high = exact_interval(figures.right, num_judged)
    return PolicyFiguresBody(
        version=figures.version,
        decided=figures.decided,
        answered=figures.answered,
        coverage=coverage,
        right=figures.right,
        wrong=figures.wrong,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
        candidates=figures.candidates,
        cost_usd=figures.cost_usd,
        cost_per_right_usd=figures.cost_usd / (coverage * accuracy)
        if figures.cost_usd is not None and coverage and accuracy
        else None,
    )
