"""Labelled problems walked through their passes, and tests of guarantees on these walks.

A walk has the confidence and the worth of each problem's selection after each pass. A problem stops at the first pass
whose confidence reaches ``tau_accept``. Independent of: posteriors, costs, files.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydebm.decision.guarantee.guarantee import Guarantee, certify, certify_smallest
from raydebm.decision.policy import Policy
from raydebm.decision.table import Bools, Floats, correct_of, violation_of
from raydebm.records import Label, Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """Labelled problems walked through every pass: P problems, S passes."""

    confidence: Floats
    """Shape (P, S). Confidence in the selection after each pass; -inf where nothing can be selected. A problem that
    stopped early repeats its last pass."""
    worth: Floats
    """Shape (P, S). Worth of the selection; 0 without one, NaN if unlabelled."""
    floor: float = -math.inf
    """Lowest threshold that can be certified (``guarantee.certify``)."""
    is_unknown: Bools | None = None
    """Passes that were not sampled, shape (P, S). Each counts as a returned wrong answer: confidence 1, worth 0.
    Default: all passes were sampled."""

    def expected(self) -> "Walk":
        """The same walk without labels: each selection's worth is its confidence.

        A pass that was not sampled has worth 0, because nothing is known about its result.
        """
        worth = np.where(np.isfinite(self.confidence), self.confidence, 0.0)
        return replace(self, worth=worth if self.is_unknown is None else np.where(self.is_unknown, 0.0, worth))


WalkOf = Callable[[Sequence[Policy]], Walk]
"""Function that walks the pools' problems through all passes, each under its own policy."""


def final_step(steps: Walk, tau_accept: float) -> tuple[Floats, Floats]:
    """(confidence, worth) of each problem at its last pass: the first that reaches ``tau_accept``, else the last."""
    last = stops(steps, tau_accept)
    rows = np.arange(len(last))
    return steps.confidence[rows, last], steps.worth[rows, last]


def stops(steps: Walk, tau_accept: float) -> Any:
    """Index of the pass after which each problem stops. Shape (P,)."""
    passed = steps.confidence >= tau_accept
    passed[:, -1] = True
    return passed.argmax(axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuaranteeTest:
    """Answer thresholds, each tested on the walk of its own policy.

    ``tau_accept`` must be at least ``tau_answer``, so an answer threshold above the policy's ``tau_accept`` raises it
    and changes where problems stop. With waves it also changes the samples. Such thresholds then share the walk of the
    next higher value in ``accept``.
    """

    steps: tuple[Walk, ...]
    """A single walk for all values of ``tau_accept`` or, with waves, one walk for each value of ``accept``."""
    accept: tuple[float, ...]
    """Values of ``tau_accept``, the policy's own first. Chosen from confidences only."""
    is_free: bool
    """Whether each ``tau_accept`` above the policy's own can be tested, because it only changes where problems stop."""

    @classmethod
    def of(cls, policy: Policy, steps: Walk, walked: Callable[[Policy], Walk]) -> "GuaranteeTest":
        """Walk the problems under the policies that need a walk of their own.

        Args:
            steps: walk under the policy.
            walked: function that walks the problems under another policy.
        """
        own = policy.tau_accept
        if policy.waves is None:
            return cls(steps=(steps,), accept=(own,), is_free=True)
        above = steps.confidence[np.isfinite(steps.confidence) & (steps.confidence > own)]
        accept = sorted({own, 1.0, *([float(np.median(above))] if len(above) else [])})
        more = [walked(policy.replaced(tau_accept=tau)) for tau in accept[1:]]
        return cls(steps=(steps, *more), accept=tuple(accept), is_free=False)

    def tau_accept(self, tau: float) -> float:
        """``tau_accept`` of the policy whose answer threshold is ``tau``."""
        if self.is_free:
            return max(self.accept[0], tau)
        return next(value for value in self.accept if value >= tau)  # the last one is 1

    def steps_at(self, tau_accept: float) -> Walk:
        """Walk for this ``tau_accept``."""
        return self.steps[0 if self.is_free else self.accept.index(tau_accept)]

    def certify(self, error: float, *, confidence: float, binary: bool) -> Guarantee:
        """Find the lowest threshold with a guarantee for this error rate.

        The tested thresholds are confidences of labelled problems under the policy and, without waves, each
        problem's highest confidence over all passes.
        """
        own, losses = self._at(-math.inf)
        own = own[~np.isnan(losses)]
        thresholds = np.concatenate([own, self.steps[0].confidence.max(axis=1)]) if self.is_free else own
        return certify(
            self._at, thresholds, max_error=error, confidence=confidence, binary=binary, floor_at=self._floor_at
        )

    def smallest(self, *, min_coverage: float, confidence: float, binary: bool) -> Guarantee:
        """Find the smallest error rate that can be guaranteed at this coverage."""
        return certify_smallest(
            self._at, min_coverage=min_coverage, confidence=confidence, binary=binary, floor_at=self._floor_at
        )

    def _floor_at(self, tau: float) -> float:
        return self.steps_at(self.tau_accept(tau)).floor

    def _at(self, tau: float) -> tuple[Floats, Floats]:
        tau_accept = self.tau_accept(tau)
        confidence, worth = final_step(self.steps_at(tau_accept), tau_accept)
        return confidence, 1 - worth


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """Inputs of the decision after one pass, None if unknown, and the labels of the selection."""

    signal: float | None
    sigma: float | None
    penalty: float | None
    confidence: float | None
    """Probability that the selection is right. None without a posterior or a selection."""
    correct: float
    """1 for a right selection, 0 for a wrong one or none, NaN if no candidate is labelled."""
    violation: float
    """Violation score of the selection; 1 without a selection. NaN if no candidate has one."""

    @property
    def worth(self) -> float:
        """1 minus the violation score. Without such scores, the same as ``correct``."""
        return self.correct if math.isnan(self.violation) else 1 - self.violation


def steps_of(outcome: Outcome, labels: Mapping[str, Label]) -> list[TraceStep]:
    """One step per pass of an outcome. A failed later pass has no step, because it decides nothing."""
    steps = []
    for done in outcome.passes:
        if not any(scored.candidate.pass_index == done.pass_index for scored in outcome.pool):
            break
        pool = [scored for scored in outcome.pool if scored.candidate.pass_index <= done.pass_index]
        best = next((scored for scored in pool if scored.candidate.candidate_id == done.selected), None)
        if best is not None:
            label = labels.get(best.candidate.candidate_id)
            correct, violation = correct_of(label), violation_of(label)
        else:
            pool_labels = [labels.get(scored.candidate.candidate_id) for scored in pool]
            is_labelled = any(not math.isnan(correct_of(label)) for label in pool_labels)
            has_violation = any(not math.isnan(violation_of(label)) for label in pool_labels)
            correct, violation = 0.0 if is_labelled else math.nan, 1.0 if has_violation else math.nan
        steps.append(
            TraceStep(
                signal=done.sigma,
                sigma=None if best is None or best.energies is None else best.energies.sigma,
                penalty=done.penalty,
                confidence=done.confidence,
                correct=correct,
                violation=violation,
            )
        )
    return steps


def to_length(steps: Sequence[TraceStep], num: int) -> list[TraceStep]:
    """The steps of ``num`` passes. If the loop stopped earlier, its last step, from which it decided, is repeated."""
    return [steps[min(index, len(steps) - 1)] for index in range(num)]
