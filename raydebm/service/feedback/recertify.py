"""Recalibration and recertification of a run's policy on reported outcomes.

In:   the records folder of a service with outcomes, the policy in force, costs or a guarantee to certify.
Out:  the policy with new thresholds and a guarantee that states the origin of its problems.
Does not know: files, Ray, HTTP.

Every decision is made again under the policy, from its stored candidates. Reports are used as follows:

- A verdict labels the selected answer, and a correct answer labels all of them. An answer that the policy would accept
  without a label counts as wrong, and so does one from a pass that was not sampled: the guarantee then holds whatever
  their labels are.
- Reports on abstentions are rarer or more frequent than reports on answers. So they do not count, and no threshold is
  tested that would answer one of the stored abstentions after any of its passes (``Walk.floor``). It depends on
  confidences alone, so the test is valid.
- Several decisions on one problem are not independent, so only the newest counts.

The guarantee holds for decisions like the reported ones. The reports cannot show whether these represent all answers;
reports on a random share ensure it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.field_fit import FieldFit
from raydebm.decision.calibration.policy_fit import PolicyFit, fit_thresholds, with_fields
from raydebm.decision.calibration.walks import Walk
from raydebm.decision.fields import UNFITTED
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import Recorded, redecide
from raydebm.errors import ConfigError, PoolError
from raydebm.records import Decision, Label, ScoredCandidate, Verdict
from raydebm.service.feedback.labelled import LabelledDecision, labelled_decisions
from raydebm.service.store.reader import DecisionReader, Filter
from raydebm.service.store.record import DecisionRecord
from raydebm.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Filter of decisions and reports."""

    task: Task
    checkpoint: str | None
    """``versions["checkpoint"]`` of decisions whose energies are comparable with the run's. Default: any."""
    where: Filter
    by: tuple[str, ...] | None = None
    """Reporters that count. Default: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSample:
    """One labelled decision per problem, and facts about the unlabelled ones."""

    origin: Origin
    decisions: tuple[LabelledDecision, ...]
    """Newest accepted decision of each problem."""
    abstained: tuple[Recorded, ...]
    """Abstentions that a guarantee must not answer, with or without an outcome."""
    reported: int
    """Number of decisions with an outcome."""
    contradictory: int
    """Decisions left out because their reports contradict each other."""
    other_ensemble: int
    """Decisions left out because another ensemble scored them."""
    repeated: int
    """Decisions left out because a newer one is about the same problem."""
    reviewed: int
    """Abstentions with an outcome, left out because they are reported more or less often than answers."""

    @property
    def times(self) -> tuple[datetime, datetime]:
        """Times of the oldest and the newest decision."""
        times = [decision.record.time for decision in self.decisions]
        return min(times), max(times)


def outcome_sample(reader: DecisionReader, origin: Origin) -> OutcomeSample:
    """Read the decisions.

    Raises:
        PoolError: no decision can be used; the message has the reason.
    """
    where = origin.where.model_copy(update={"task": origin.task.name})
    labelled = list(labelled_decisions(reader, lambda _: origin.task, where=where, by=origin.by))
    if not labelled:
        raise PoolError(_nothing_reported(reader, origin))
    usable = [decision for decision in labelled if decision.fault is None]
    own = [decision for decision in usable if _is_own(decision.record, origin)]
    counted = [decision for decision in own if decision.record.outcome.decision is Decision.ACCEPT]
    newest = {
        (decision.problem.problem_id, decision.problem.prompt): decision for decision in sorted(counted, key=_time)
    }
    sample = OutcomeSample(
        origin=origin,
        decisions=tuple(newest.values()),
        abstained=_abstained(reader, replace(origin, where=where)),
        reported=len(labelled),
        contradictory=len(labelled) - len(usable),
        other_ensemble=len(usable) - len(own),
        repeated=len(counted) - len(newest),
        reviewed=len(own) - len(counted),
    )
    if not sample.decisions:
        raise PoolError(_nothing_usable(sample))
    return sample


def _time(decision: LabelledDecision) -> datetime:
    return decision.record.time


def _is_own(record: DecisionRecord, origin: Origin) -> bool:
    return origin.checkpoint is None or record.versions.get("checkpoint") == origin.checkpoint


def _abstained(reader: DecisionReader, origin: Origin) -> tuple[Recorded, ...]:
    where = origin.where.model_copy(update={"decision": str(Decision.ABSTAIN)})
    return tuple(record.recorded for record in reader.records(where) if _is_own(record, origin))


def _nothing_reported(reader: DecisionReader, origin: Origin) -> str:
    stored = reader.table(["task"], origin.where.model_copy(update={"task": None}))["task"].to_pylist()
    if not stored:
        return f"no stored decision in {reader.root!r} matches; check the folder and the filters"
    others = sorted(set(stored) - {origin.task.name})
    if origin.task.name not in stored:
        return f"{reader.root!r} holds decisions of {', '.join(others)} and none of the run's task {origin.task.name!r}"
    whose = "" if origin.by is None else f" by {', '.join(origin.by)}"
    return (
        f"none of {stored.count(origin.task.name)} stored decisions of {origin.task.name!r} has an outcome{whose}; "
        "report some (POST /v1/decisions/{record_id}/outcome)"
    )


def _nothing_usable(sample: OutcomeSample) -> str:
    counts = {
        "contradict themselves": sample.contradictory,
        "were scored by another ensemble than the run's (`raydebm replay --checkpoint` scores texts again)": (
            sample.other_ensemble
        ),
        "are about abstentions, which do not count": sample.reviewed,
    }
    why = "; ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"of {sample.reported} decisions with an outcome none can be used: {why}"


def recertified(sample: OutcomeSample, policy: Policy, config: DecisionConfig) -> PolicyFit:
    """Choose thresholds and certify the guarantee on reported outcomes.

    The posterior is kept: it is independent of these decisions, so the guarantee is exact.

    Raises:
        ConfigError: the policy has thresholds on sigma.
        PoolError: there are too few decisions.
    """
    if policy.rule != "posterior" or policy.posterior is None:
        raise ConfigError(
            "the run's policy decides by the paper's rule, which has no confidence to certify; run `raydebm calibrate` "
            "with triage.rule: posterior first"
        )
    if policy.posterior.task not in ("", sample.origin.task.name):
        raise ConfigError(
            f"the policy was fitted for task {policy.posterior.task!r}, and these decisions are of task "
            f"{sample.origin.task.name!r}"
        )
    fit = fit_thresholds(policy, lambda current: _walked(sample, current), config=config)
    if config.max_field_error is not None:
        fit = with_fields(fit, _reported_fields(sample, fit.policy), config)
    promised = {
        name: {**guarantee, "outcomes": source_of(sample)}
        for name in ("guarantee", "field_guarantee")
        if (guarantee := getattr(fit.policy, name)) is not None
    }
    return replace(fit, policy=fit.policy.replaced(**promised)) if promised else fit


def _reported_fields(sample: OutcomeSample, policy: Policy) -> FieldFit | None:
    """Confidence and verdict of the fields of the selected answers, of the decisions whose reports settle every field.

    Users report the fields that they found wrong, so a decision with an unsettled field says nothing about its others.
    """
    owner, paths, confidence, right = list[int](), list[str](), list[float](), list[bool]()
    settled = 0
    for decision in sample.decisions:
        again = redecide(decision.record.recorded, policy=policy)
        verdicts = {} if again.best is None else decision.labels[again.best.candidate.candidate_id].fields
        fields = [each for each in again.fields if each.path in verdicts]
        if fields and all(each.is_missing or each.path in verdicts for each in again.fields):
            owner += [settled] * len(fields)
            paths += [each.path for each in fields]
            confidence += [each.confidence for each in fields]
            right += [verdicts[each.path] for each in fields]
            settled += 1
    if not settled:
        return None
    given = np.array(confidence)
    return FieldFit(
        model=policy.fields or UNFITTED,
        owner=np.array(owner, dtype=np.intp),
        paths=tuple(paths),
        confidence=given,
        marginal=given,
        share=given,
        right=np.array(right, dtype=np.float64),
    )


def _walked(sample: OutcomeSample, policy: Policy) -> Walk:
    """Replay every decision through the passes of one policy."""
    steps = [_steps(each, policy) for each in sample.decisions]
    return Walk(
        confidence=np.array([[step.confidence for step in row] for row in steps]),
        worth=np.array([[step.worth for step in row] for row in steps]),
        floor=_floor(sample.abstained, policy),
        is_unknown=np.array([[step.is_unknown for step in row] for row in steps], dtype=bool),
    )


def source_of(sample: OutcomeSample) -> dict[str, Any]:
    """Origin of a guarantee's problems, for its ``outcomes``."""
    first, last = sample.times
    return {
        "decisions": len(sample.decisions),
        "since": first.isoformat(),
        "until": last.isoformat(),
        "by": None if sample.origin.by is None else list(sample.origin.by),
    }


def _worth(labels: Mapping[str, Label], scored: ScoredCandidate) -> float:
    """1 for right, 0 for wrong, 1 minus the violation score if there is one; NaN for unknown."""
    label = labels[scored.candidate.candidate_id]
    if label.violation_score is not None:
        return 1 - label.violation_score
    return {Verdict.CORRECT: 1.0, Verdict.INCORRECT: 0.0}.get(label.verdict, math.nan)


class _Step(NamedTuple):
    """The selection after one pass."""

    confidence: float
    worth: float
    is_unknown: bool = False


def _steps(decision: LabelledDecision, policy: Policy) -> list[_Step]:
    """Selection after each pass; a wrong answer after a pass that was not sampled."""
    record = decision.record
    recorded = record.recorded
    steps: list[_Step] = []
    for num_passes in range(1, policy.max_passes + 1):
        again = redecide(recorded, policy=policy.without_accepting().replaced(max_passes=num_passes))
        if again.decision is Decision.REGENERATE:
            steps.append(_Step(1.0, 0.0, is_unknown=True))
        elif again.best is None or again.confidence is None:
            steps.append(_Step(-math.inf, 0.0))
        else:
            worth = _worth(decision.labels, again.best)
            steps.append(_Step(again.confidence, 0.0 if math.isnan(worth) else worth))
    return steps


def _floor(abstained: Sequence[Recorded], policy: Policy) -> float:
    """Lowest confidence above those of all abstentions after each pass, because any may be answered from. Proven
    answers need no outcome, so abstentions that withheld one do not count."""
    confidences = [
        redecide(recorded, policy=policy.without_accepting().replaced(max_passes=num_passes)).confidence
        for num_passes in range(1, policy.max_passes + 1)
        for recorded in abstained
    ]
    known = [value for value in confidences if value is not None and value < 1]
    return float(np.nextafter(max(known), math.inf)) if known else -math.inf
