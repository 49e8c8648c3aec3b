"""The posterior's rule on the test problems: selections, calibrated confidence, guarantees, and fields.

Intervals of fields are over problems, because fields of one problem are not independent.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from raydebm.config.decision import Profile
from raydebm.decision.calibration.profile_choice import ProfileTest
from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.evidence.terms import representatives
from raydebm.decision.policy import Policy
from raydebm.decision.table import Floats, Ints, PoolTable
from raydebm.evaluation.certainty.reliability import Reliability, Stated, reliability
from raydebm.evaluation.certainty.signals import SignalRow
from raydebm.evaluation.selectors import BEST_GENERATOR, Selector, one_hot
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import OWN_LOGPROB, OWN_WORST_LOGPROB, FieldBelief, Label, Outcome
from raydebm.tasks.fields import kind_of_field

POSTERIOR, CHOSEN = "posterior", "chosen profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGuarantee:
    """Guarantee of one error rate, fitted on the labelled problems and checked on the test problems."""

    max_error: float
    confidence: float
    certified: bool
    tau: float | None
    problems: int
    coverage: float
    """Share of the labelled problems that are answered."""
    upper_bound: float | None
    more_problems: int | None
    """Estimated number of further labelled problems needed, if nothing is certified."""
    test_coverage: Estimate
    """Share of the test problems that are answered at this threshold."""
    test_error: Estimate
    """Share of wrong answers among the answered test problems. Mean violation if labels are violation scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStudy:
    """Results of the posterior's rule on single-pass pools."""

    profile: Profile
    tests: tuple[ProfileTest, ...]
    num_labelled: int
    confidence: SignalRow
    reliability: Reliability
    promises: tuple[CheckedGuarantee, ...]
    weights: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """Selections under a policy's posterior: rows of shape (P,), -1 for a pool without a selection."""

    policy: Policy
    by_profile: Ints
    """Selection by the policy's profile."""
    confidence: Floats
    """Probability that the profile's selection is right. 0 without one."""
    by_posterior: Ints
    by_best_author: Ints

    @classmethod
    def of(cls, pools: PoolTable, policy: Policy) -> "Decided | None":
        """Apply a policy's posterior to the pools. None without a posterior."""
        posterior = policy.posterior
        if posterior is None:
            return None
        estimates, given = posterior.estimates(pools), np.append(representatives(pools, posterior.reference), -1)
        profiles: tuple[Profile, ...] = (policy.profile, "posterior", "best_author")
        first, probable, best = (winners(profile, pools, estimates, posterior) for profile in profiles)
        return cls(
            policy=policy,
            by_profile=given[first],
            confidence=np.append(estimates.probability, 0.0)[first],
            by_posterior=given[probable],
            by_best_author=given[best],
        )

    def best_generator(self) -> Selector:
        """Selector of the best generator, the profile ``best_author``."""
        how = (
            "the profile best_author: the answer that the generator of the highest skill on labelled "
            "problems gives most often, as this generator gave it; the next one's where all its answers are refuted"
        )
        return _selector(BEST_GENERATOR, self.by_best_author, how)

    def selectors(self) -> list[Selector]:
        """Rows of the selector table."""
        scores = _scores_of(self.policy.posterior)
        probable = "the most probable answer, as the most skilled generator gave it; ties by lowest E"
        chosen = f"the profile that held-out problems chose: {self.policy.profile}"
        return [
            _selector(POSTERIOR, self.by_posterior, probable, scores),
            _selector(CHOSEN, self.by_profile, chosen, scores),
        ]

    def stated(self, pools: PoolTable) -> Stated:
        """Confidence in the profile's selections, and their worth."""
        own = self.by_profile
        return Stated(confidence=self.confidence, correct=pools.correct_at(own), violation=pools.violation_at(own))


def _selector(name: str, picked: Ints, description: str, scores: tuple[str, ...] = ()) -> Selector:
    """Selector that picks these rows.

    Every profile uses the ensemble's energies: among an author's candidates with the same answer, the one with the
    lowest E is selected, and ties of a profile go to the more probable answer.
    """
    weights = partial(one_hot, picked=picked)
    return Selector(name=name, group="decision", description=description, weights=weights, energies=1.0, scores=scores)


def _scores_of(posterior: Posterior | None) -> tuple[str, ...]:
    """Outside scorers with a weight in the posterior. A generator's own log-probabilities cost nothing and are
    excluded."""
    weights = {} if posterior is None else {**posterior.weights, **posterior.context_weights}
    names = {
        name.removeprefix(kind)
        for name, weight in weights.items()
        for kind in (SCORE, POOL_SCORE)
        if name.startswith(kind) and weight
    }
    return tuple(sorted(names - {OWN_LOGPROB, OWN_WORST_LOGPROB}))


def decision_study(
    decided: Decided, pools: PoolTable, *, fit: Mapping[str, Any], bootstrap: Bootstrap
) -> DecisionStudy:
    """Evaluate confidence and guarantees on test pools.

    Args:
        decided: Selections of the policy's posterior in these pools.
        pools: Pools of the test split.
        fit: Contents of the run's ``calibration/decision.json``.
        bootstrap: Resamples over the pools.
    """
    posterior = decided.policy.posterior
    stated = decided.stated(pools)
    return DecisionStudy(
        profile=decided.policy.profile,
        tests=tuple(ProfileTest(**test) for test in fit["profile"]["tests"]),
        num_labelled=fit["num_problems"],
        confidence=stated.row(bootstrap),
        reliability=stated.reliability(bootstrap),
        promises=tuple(_guarantee(guarantee, stated, bootstrap) for guarantee in fit["promises"]),
        weights={} if posterior is None else {**posterior.weights, **posterior.context_weights},
    )


def _guarantee(guarantee: Mapping[str, Any], stated: Stated, bootstrap: Bootstrap) -> CheckedGuarantee:
    answered = stated.confidence >= (math.inf if guarantee["tau"] is None else guarantee["tau"])
    given = [field.name for field in fields(CheckedGuarantee) if not field.name.startswith("test_")]
    return CheckedGuarantee(
        **{name: guarantee[name] for name in given},
        test_coverage=bootstrap.proportion(answered.astype(np.float64)),
        test_error=bootstrap.proportion(np.where(answered, 1 - stated.worth, math.nan)),
    )


MAX_KINDS = 20
"""Maximum number of kinds of field with their own row. The most frequent kinds are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    kind: str
    """Path with ``[*]`` for list items."""
    num: int
    right: Estimate
    confidence: float
    shown: Estimate
    """Share of the fields that are not flagged for review."""
    error: Estimate
    """Share of wrong fields among those."""
    auroc: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldStudy:
    """Fields of the selected answers: all together first, then by kind."""

    tau_field: float
    rows: tuple[FieldRow, ...]
    reliability: Reliability


def field_study(
    outcomes: Sequence[Outcome],
    labels: Mapping[str, Label],
    *,
    problem_ids: Sequence[str],
    tau_field: float,
    bootstrap: Bootstrap,
) -> FieldStudy | None:
    """Compare confidences with verdicts, or return None if no selected answer has labelled fields.

    Args:
        outcomes: Outcomes, one per problem.
        labels: Labels by candidate id.
        problem_ids: Problems in the bootstrap's order.
    """
    places = {name: place for place, name in enumerate(problem_ids)}
    judged = [
        (places[outcome.problem.problem_id], each, verdict)
        for outcome in outcomes
        if outcome.problem.problem_id in places
        for each, verdict in _verdicts(outcome, labels)
    ]
    if not judged:
        return None
    owner = np.array([place for place, _, _ in judged])
    confidence = np.array([each.confidence for _, each, _ in judged])
    right = np.array([verdict for _, _, verdict in judged], dtype=np.float64)
    kinds = np.array([kind_of_field(each.path) for _, each, _ in judged])
    # A field has its problem's weight in every resample.
    by_field = bootstrap.of_items(owner)

    def share(values: Floats, among: Floats) -> Estimate:
        top, bottom = (np.bincount(owner, part, len(problem_ids)) for part in (values * among, among))
        return bootstrap.ratio(top.astype(np.float64), bottom.astype(np.float64))

    def row(kind: str, inside: Floats) -> FieldRow:
        shown = (confidence >= tau_field).astype(np.float64)
        return FieldRow(
            kind=kind,
            num=int(inside.sum()),
            right=share(right, inside),
            confidence=float(confidence[inside > 0].mean()),
            shown=share(shown, inside),
            error=share(1 - right, inside * shown),
            auroc=by_field.auroc(np.where(inside > 0, confidence, np.nan), right),
        )

    every = np.ones(len(judged))
    most = [kind for kind, _ in Counter(kinds.tolist()).most_common(MAX_KINDS)]
    stated = reliability("field confidence", "the field is right", confidence, right, by_field)
    return FieldStudy(
        tau_field=tau_field,
        rows=(row("all", every), *(row(kind, (kinds == kind).astype(np.float64)) for kind in most if len(most) > 1)),
        reliability=replace(stated, brier=share((confidence - right) ** 2, every)),
    )


def _verdicts(outcome: Outcome, labels: Mapping[str, Label]) -> list[tuple[FieldBelief, bool]]:
    """Fields of the selected answer with their verdicts; empty if it is not labelled."""
    label = None if outcome.best is None else labels.get(outcome.best.candidate.candidate_id)
    if label is None or not label.fields:
        return []
    # A field that neither the answer nor the reference answer has is rightly missing.
    return [(each, label.fields.get(each.path, True)) for each in outcome.fields]
