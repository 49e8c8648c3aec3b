"""Which of two policies is better on live traffic: paired tests over decisions that both of them decided.

In:   ``PairedDecision`` records.
Out:  a ``PolicyComparison``: what each answered, got right and spent; differences with intervals and p; how many more
      outcomes would show a difference of a given size.
Does not know: files, HTTP.

Decisions about one problem are not independent, so the newest counts. Where both policies chose the same, their
difference is 0: such decisions count, and decide no test. The p-values are those of one look at the outcomes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.decisions.paired import PairedDecision, PolicyChoice
from raydebm.errors import PoolError
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats
from raydebm.evaluation.stats.significance import (
    Comparison,
    compare,
    holm_adjusted,
    mcnemar_sample_size,
    sign_flip_p_values,
)

MAX_PROBLEMS = 10_000
"""The newest ones count: the bootstrap keeps a number per resample and problem."""
NUM_BOOTSTRAP = 1000
FIRST, SECOND = "first", "second"
Versions = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """One policy over the decisions where both choices are known."""

    version: str
    answered: int
    right: int
    """Right answers given out, of the decisions with an outcome."""
    wrong: int
    decided: int
    """Decisions that it made itself, as first policy or canary."""
    candidates: float | None
    """Mean per decision."""
    cost_usd: float | None
    """Mean per decision, where costs are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """Two policies on the same decisions. Differences are the second minus the first."""

    first: PolicyFigures
    second: PolicyFigures
    num_decisions: int
    """One per problem; the counts below are parts of it."""
    num_repeated: int
    """Older decisions about the same problems, which do not count."""
    num_agree: int
    num_differ: int
    num_unknown: int
    """The policy that did not answer would have sampled more, so its choice is not known."""
    num_inexact: int
    """A pass that was used answers feedback about another candidate than the other policy would have selected."""
    num_outcomes: int
    """With an outcome that judges both choices."""
    num_unjudged: int
    """With an outcome that does not judge the other policy's choice."""
    right: Comparison
    """Share of the outcomes on which a right answer was given out."""
    wrong: Comparison
    """Share of the outcomes on which a wrong one was."""
    answered: Comparison
    """Share of the decisions with known choices that were answered; needs no outcome."""
    candidates: Estimate
    candidates_p: float | None
    cost_usd: Estimate
    cost_p: float | None
    margin: float
    outcomes_needed: int | None
    """How many outcomes more would show a difference of ``margin`` in right answers (p < 0.05) with probability 0.8, at
    the share of outcomes on which one policy alone is right; None where no outcome tells them apart."""


def compare_policies(
    decisions: Iterable[PairedDecision], *, versions: Versions | None = None, margin: float = 0.05, seed: int = 0
) -> PolicyComparison:
    """Compare two policies.

    Args:
        decisions: of any pair of policies.
        versions: ids of the first and the second policy; None: those of the newest decision.
        margin: difference in the share of right answers that is asked about, in (0, 1).
        seed: of resamples and permutations.

    Raises:
        PoolError: no decision of such a pair is stored.
    """
    stored = list(decisions)
    wanted = versions or max(((each.time, each.versions) for each in stored), default=(None, None))[1]
    pairs = [each for each in stored if each.versions == wanted]
    if wanted is None or not pairs:
        words = "" if wanted is None else f" by policies {wanted[0]} and {wanted[1]}"
        raise PoolError(
            f"no stored decision was made{words} as two policies side by side; `raydebm policies try POLICY.json` "
            "starts that, and `raydebm policies list` has the ids"
        )
    newest = {each.problem: each for each in sorted(pairs, key=lambda each: each.time)}
    chosen = sorted(newest.values(), key=lambda each: each.time)[-MAX_PROBLEMS:]
    known = [each for each in chosen if each.agrees is not None]
    judged = [each for each in known if each.is_judged]
    right, wrong = (_test(judged, name, seed) for name in ("right", "wrong"))
    answered = _test(known, "answered", seed)
    holm = holm_adjusted([right.p_value, wrong.p_value, answered.p_value])
    bootstrap = Bootstrap.of(len(known), num_bootstrap=NUM_BOOTSTRAP, seed=seed)
    candidates, costs = _differences(known, "num_candidates"), _differences(known, "cost_usd")
    candidates_p, cost_p = sign_flip_p_values([candidates, costs], seed=seed) if known else (None, None)
    return PolicyComparison(
        first=_figures(wanted[0], FIRST, chosen, known, judged),
        second=_figures(wanted[1], SECOND, chosen, known, judged),
        num_decisions=len(chosen),
        num_repeated=len(pairs) - len(newest),
        num_agree=sum(each.agrees is True for each in known),
        num_differ=sum(each.agrees is False for each in known),
        num_unknown=len(chosen) - len(known),
        num_inexact=sum(not each.exact for each in known),
        num_outcomes=len(judged),
        num_unjudged=sum(each.has_outcome for each in known) - len(judged),
        right=replace(right, p_holm=holm[0]),
        wrong=replace(wrong, p_holm=holm[1]),
        answered=replace(answered, p_holm=holm[2]),
        candidates=bootstrap.mean(candidates),
        candidates_p=candidates_p,
        cost_usd=bootstrap.mean(costs),
        cost_p=cost_p,
        margin=margin,
        outcomes_needed=_outcomes_needed(right, len(judged), margin),
    )


def _outcomes_needed(right: Comparison, num_outcomes: int, margin: float) -> int | None:
    num_discordant = right.only_one + right.only_other
    if not num_discordant:
        return None
    return max(mcnemar_sample_size(num_discordant / num_outcomes, margin) - num_outcomes, 0)


def _test(decisions: Sequence[PairedDecision], name: str, seed: int) -> Comparison:
    values = {SECOND: _values(decisions, SECOND, name), FIRST: _values(decisions, FIRST, name)}
    bootstrap = Bootstrap.of(len(decisions), num_bootstrap=NUM_BOOTSTRAP, seed=seed)
    (comparison,) = compare(values, [(SECOND, FIRST)], bootstrap=bootstrap, seed=seed)
    return comparison


def _values(decisions: Sequence[PairedDecision], which: str, name: str) -> Floats:
    values = [getattr(getattr(each, which), name) for each in decisions]
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _differences(decisions: Sequence[PairedDecision], name: str) -> Floats:
    difference: Floats = _values(decisions, SECOND, name) - _values(decisions, FIRST, name)
    return difference


def _figures(
    version: str,
    which: str,
    chosen: Sequence[PairedDecision],
    known: Sequence[PairedDecision],
    judged: Sequence[PairedDecision],
) -> PolicyFigures:
    of_known: list[PolicyChoice] = [getattr(each, which) for each in known]
    of_judged: list[PolicyChoice] = [getattr(each, which) for each in judged]
    return PolicyFigures(
        version=version,
        answered=sum(choice.answered for choice in of_known),
        right=sum(choice.right is True for choice in of_judged),
        wrong=sum(choice.wrong is True for choice in of_judged),
        decided=sum((each.role == "first") == (which == FIRST) for each in chosen),
        candidates=_mean([choice.num_candidates for choice in of_known]),
        cost_usd=_mean([choice.cost_usd for choice in of_known if choice.cost_usd is not None]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
