"""The posterior's rule on the test problems: selections, calibrated confidence, and what was promised of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydebm.config.policy import Profile
from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.profile_choice import ProfileTest
from raydebm.decision.evidence.profiles import ranked
from raydebm.decision.policy import Policy
from raydebm.evaluation.certainty.reliability import Reliability, reliability
from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.certainty.trust import CONFIDENCE, Certainty
from raydebm.evaluation.certainty.uncertainty import SignalRow, signal_rows
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import Selector, Value, value_of_nothing
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

POSTERIOR, CHOSEN = "posterior", "chosen profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What labelled problems allow to promise at one error, and what the test problems say of it."""

    max_error: float
    confidence: float
    certified: bool
    tau: float | None
    problems: int
    """Labelled problems that it rests on."""
    coverage: float
    """Share of them that is answered."""
    upper_bound: float | None
    more_problems: int | None
    """Further labelled problems that would probably do, where nothing is certified."""
    test_coverage: Estimate
    """Share of the test problems that is answered at this threshold."""
    test_error: Estimate
    """Share of wrong answers among them; mean violation where labels are violation scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStudy:
    """How the posterior's rule decides about single-pass pools."""

    profile: Profile
    tests: tuple[ProfileTest, ...]
    """By which the profile was chosen, on labelled problems outside the test."""
    num_labelled: int
    confidence: SignalRow
    reliability: Reliability
    promises: tuple[Promise, ...]
    weights: dict[str, float]
    """Fitted weights of the terms of evidence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """What a policy's posterior believes about every pool."""

    policy: Policy
    first: Mapping[str, Belief | None]
    """The profile's selection, by problem id; None without one."""
    probable: Mapping[str, Belief | None]
    """The most probable answer."""

    @classmethod
    def of(cls, pools: Sequence[EvaluatedPool], policy: Policy) -> "Decided | None":
        """None for a policy without a posterior."""
        posterior = policy.posterior
        if posterior is None:
            return None
        found = posterior.beliefs_of([pool.candidates for pool in pools])
        ids = [pool.problem.problem_id for pool in pools]
        return cls(
            policy=policy,
            first={
                name: _usable(ranked(policy.profile, beliefs, posterior))
                for name, beliefs in zip(ids, found, strict=True)
            },
            probable={name: _usable(beliefs.beliefs) for name, beliefs in zip(ids, found, strict=True)},
        )

    def selectors(self) -> list[Selector]:
        """Rows of the table of selectors."""
        return [
            Selector(
                name=POSTERIOR,
                group="decision",
                description="the most probable answer; the candidate of lowest E among those that give it",
                weights=lambda pool: _weights(pool, self.probable[pool.problem.problem_id]),
            ),
            Selector(
                name=CHOSEN,
                group="decision",
                description=f"the profile that held-out problems chose: {self.policy.profile}",
                weights=lambda pool: _weights(pool, self.first[pool.problem.problem_id]),
            ),
        ]

    def confidence(self, pools: Sequence[EvaluatedPool]) -> tuple[Floats, list[Value]]:
        """(confidence of the selection, what it is worth) for each pool; no selection has confidence 0."""
        chosen = [self.first[pool.problem.problem_id] for pool in pools]
        values = [_value(pool, belief) for pool, belief in zip(pools, chosen, strict=True)]
        return np.array([0.0 if belief is None else belief.probability for belief in chosen]), values

    def certainty(self, pools: Sequence[EvaluatedPool]) -> Certainty:
        """The confidence as a signal about the chosen profile's selections."""
        confidence, values = self.confidence(pools)
        return Certainty(
            signals=(Signal(CONFIDENCE, "probability that the selection is right, by the posterior", confidence),),
            correct=np.array([value.correct for value in values]),
            violation=np.array([value.violation for value in values]),
            reliabilities=(),
        )


def _usable(beliefs: Sequence[Belief]) -> Belief | None:
    return beliefs[0] if beliefs and beliefs[0].probability > 0 else None


def _weights(pool: EvaluatedPool, belief: Belief | None) -> Floats:
    weights = np.zeros(len(pool.correct))
    if belief is not None:
        weights[next(row for row, scored in enumerate(pool.candidates) if scored is belief.best)] = 1.0
    return weights


def _value(pool: EvaluatedPool, belief: Belief | None) -> Value:
    if belief is None:
        return value_of_nothing(pool)
    row = next(row for row, scored in enumerate(pool.candidates) if scored is belief.best)
    return Value(float(pool.correct[row]), float(pool.violation[row]))


def decision_study(
    decided: Decided, pools: Sequence[EvaluatedPool], *, fit: Mapping[str, Any], bootstrap: Bootstrap
) -> DecisionStudy:
    """Evaluate confidence and promises on test pools.

    Args:
        decided: the policy's beliefs about these pools.
        pools: the test split.
        fit: ``calibration/decision.json`` of the run.
        bootstrap: resamples over the pools.
    """
    posterior = decided.policy.posterior
    found = decided.certainty(pools)
    confidence = found.signals[0].values
    is_violation = posterior is not None and posterior.outcome == "violation"
    worth = 1 - found.violation if is_violation else found.correct
    (row,) = signal_rows(found.signals, found.correct, bootstrap)
    event = "1 - violation of the selection" if is_violation else "the selection is correct"
    return DecisionStudy(
        profile=decided.policy.profile,
        tests=tuple(ProfileTest(**test) for test in fit["profile"]["tests"]),
        num_labelled=fit["num_problems"],
        confidence=row,
        reliability=reliability(CONFIDENCE, event, confidence, worth, bootstrap),
        promises=tuple(_promise(found, confidence, worth, bootstrap) for found in fit["promises"]),
        weights={} if posterior is None else {**posterior.weights, **posterior.context_weights},
    )


def _promise(found: Mapping[str, Any], confidence: Floats, worth: Floats, bootstrap: Bootstrap) -> Promise:
    answered = confidence >= (math.inf if found["tau"] is None else found["tau"])
    return Promise(
        **{name: found[name] for name in ("max_error", "confidence", "certified", "tau", "problems", "coverage")},
        upper_bound=found["upper_bound"],
        more_problems=found["more_problems"],
        test_coverage=bootstrap.proportion(answered.astype(np.float64)),
        test_error=bootstrap.proportion(np.where(answered, 1 - worth, math.nan)),
    )
