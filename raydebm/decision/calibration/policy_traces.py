"""Problems walked through every pass regardless of thresholds, with the inputs of each decision."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raydebm.decision.feedback import exemplar, feedback_messages
from raydebm.decision.loop import PASS_FAILURES
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool
from raydebm.decision.sampling.one_pass import Parts, sample_pass, waves_of
from raydebm.records import Label, Problem, ScoredCandidate, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """Inputs of the decision after one pass. None where nothing could be selected."""

    signal: float | None
    sigma: float | None
    penalty: float | None
    verdict: Verdict
    """Verdict of the selected candidate. Without a selection: incorrect, or unlabeled if no candidate has a label."""
    violation: float | None = None
    """Violation score of the selected candidate, if any. Without a selection: 1 if other candidates have one."""
    confidence: float | None = None
    """Probability that the selection is right. None without a posterior or a selection."""

    @property
    def worth(self) -> float:
        """1 for a right selection, 0 for a wrong one or none, or 1 minus the violation score. NaN if unlabelled."""
        return CORRECT[self.verdict] if self.violation is None else 1 - self.violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One problem walked through every pass, regardless of thresholds."""

    problem_id: str
    steps: tuple[TraceStep, ...]


async def trace(problem: Problem, *, parts: Parts, labels: Mapping[str, Label], policy: Policy) -> Trace:
    """Walk one problem through every pass. A failed later pass ends the walk, as it ends the loop."""
    pool: tuple[ScoredCandidate, ...] = ()
    steps: list[TraceStep] = []
    messages = None
    for pass_index in range(1, policy.max_passes + 1):
        try:
            waves = waves_of(policy, parts=parts, pass_index=pass_index, earlier=pool)
            pool += await sample_pass(problem, parts=parts, pass_index=pass_index, messages=messages, waves=waves)
        except PASS_FAILURES:
            if pass_index == 1:
                raise
            break
        decided = decide_pool(pool, passes_left=0, policy=policy)
        sigma = None if decided.best is None or decided.best.energies is None else decided.best.energies.sigma
        verdict, violation = _worth(decided.best, pool, labels)
        steps.append(
            TraceStep(
                signal=decided.signal,
                sigma=sigma,
                penalty=decided.penalty,
                verdict=verdict,
                violation=violation,
                confidence=decided.confidence,
            )
        )
        messages = feedback_messages(parts.task, problem, decided.best or exemplar(pool))
    return Trace(problem_id=problem.problem_id, steps=tuple(steps))


def _worth(
    best: ScoredCandidate | None, pool: Sequence[ScoredCandidate], labels: Mapping[str, Label]
) -> tuple[Verdict, float | None]:
    if best is not None:
        label = labels.get(best.candidate.candidate_id)
        return (Verdict.UNLABELED, None) if label is None else (label.verdict, label.violation_score)
    pool_labels = [label for scored in pool if (label := labels.get(scored.candidate.candidate_id)) is not None]
    labelled = any(label.verdict is not Verdict.UNLABELED for label in pool_labels)
    continuous = any(label.violation_score is not None for label in pool_labels)
    return (Verdict.INCORRECT if labelled else Verdict.UNLABELED, 1.0 if continuous else None)


CORRECT = {Verdict.CORRECT: 1.0, Verdict.INCORRECT: 0.0, Verdict.UNLABELED: math.nan}
