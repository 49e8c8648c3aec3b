"""The posterior's rule on the test problems: selections, calibrated confidence, and guarantees."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from raydebm.config.policy import Profile
from raydebm.decision.calibration.profile_choice import ProfileTest
from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.evidence.terms import representatives
from raydebm.decision.groups import Floats, Ints
from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.evaluation.certainty.reliability import Reliability, Stated
from raydebm.evaluation.certainty.signals import SignalRow
from raydebm.evaluation.selectors import BEST_GENERATOR, Selector, one_hot
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import OWN_LOGPROB, OWN_WORST_LOGPROB

POSTERIOR, CHOSEN = "posterior", "chosen profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Guarantee possible at one error on the labelled problems, with its result on the test problems."""

    max_error: float
    confidence: float
    certified: bool
    tau: float | None
    problems: int
    """Number of labelled problems used."""
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
    """Tests that chose the profile, on labelled problems outside the test split."""
    num_labelled: int
    confidence: SignalRow
    reliability: Reliability
    promises: tuple[Promise, ...]
    weights: dict[str, float]
    """Fitted weights of the terms of evidence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """Selections of a policy's posterior: row and probability of each pool's, shape (P,). -1 and 0 without one."""

    policy: Policy
    first: Ints
    """The profile's selection."""
    confidence: Floats
    """Probability that the profile's selection is right."""
    probable: Ints
    """The most probable answer."""
    best_author: Ints
    """Selection of the profile ``best_author``."""

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
            first=given[first],
            confidence=np.append(estimates.probability, 0.0)[first],
            probable=given[probable],
            best_author=given[best],
        )

    def best_generator(self) -> Selector:
        """Selector of the best generator, the profile ``best_author``."""
        return Selector(
            name=BEST_GENERATOR,
            group="decision",
            description="the profile best_author: the answer that the generator of the highest skill on labelled "
            "problems gives most often, as this generator gave it; the next one's where all its answers are refuted",
            weights=partial(one_hot, picked=self.best_author),
            energies=1.0,
        )

    def selectors(self) -> list[Selector]:
        """Rows of the selector table.

        Both use the ensemble's energies under every profile: among an author's candidates with the same answer, the one
        with the lowest E is selected, and ties of a profile go to the more probable answer.
        """
        scores = _scores_of(self.policy.posterior)
        return [
            Selector(
                name=POSTERIOR,
                group="decision",
                description="the most probable answer, as the most skilled generator gave it; ties by lowest E",
                weights=partial(one_hot, picked=self.probable),
                energies=1.0,
                scores=scores,
            ),
            Selector(
                name=CHOSEN,
                group="decision",
                description=f"the profile that held-out problems chose: {self.policy.profile}",
                weights=partial(one_hot, picked=self.first),
                energies=1.0,
                scores=scores,
            ),
        ]

    def stated(self, pools: PoolTable) -> Stated:
        """Confidence in the profile's selections, 0 without one, and what they are worth."""
        return Stated(
            confidence=self.confidence,
            correct=pools.correct_at(self.first),
            violation=pools.violation_at(self.first),
        )


def _scores_of(posterior: Posterior | None) -> tuple[str, ...]:
    """Outside scorers whose scores have weight. A generator's own log-probabilities cost nothing and are excluded."""
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
        promises=tuple(_promise(promise, stated, bootstrap) for promise in fit["promises"]),
        weights={} if posterior is None else {**posterior.weights, **posterior.context_weights},
    )


def _promise(promise: Mapping[str, Any], stated: Stated, bootstrap: Bootstrap) -> Promise:
    answered = stated.confidence >= (math.inf if promise["tau"] is None else promise["tau"])
    return Promise(
        **{name: promise[name] for name in ("max_error", "confidence", "certified", "tau", "problems", "coverage")},
        upper_bound=promise["upper_bound"],
        more_problems=promise["more_problems"],
        test_coverage=bootstrap.proportion(answered.astype(np.float64)),
        test_error=bootstrap.proportion(np.where(answered, 1 - stated.worth, math.nan)),
    )
