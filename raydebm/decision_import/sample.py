"""Stored decisions with outcomes, as problems for certifying a guarantee.

In:   the records folder of a service; the run's task and ensemble.
Out:  one labelled decision per problem, and the limits on their use: unjudged abstentions, and numbers of decisions
left
      out.
Does not know: policies, Ray, HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from scipy.stats import binomtest

from raydebm.decision.redecide import Recorded
from raydebm.decision_import.labelled import LabelledDecision, labelled_decisions
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import DecisionRecord
from raydebm.errors import ConfigError, PoolError
from raydebm.records import Decision
from raydebm.tasks.base import Task

AUDIT_LEVEL = 0.001
"""Smallest p-value of the stated audit share, given the reported share; below it the audit is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Filter of decisions and reports."""

    task: Task
    checkpoint: str | None
    """``versions["checkpoint"]`` of decisions whose energies are comparable with the run's. Default: any."""
    where: Filter
    by: tuple[str, ...] | None = None
    """Reporters that count. Default: all."""
    audited: float | None = None
    """Share of all decisions that these reporters judged at random, including abstentions. Default: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSample:
    """One labelled decision per problem, and facts about the unlabelled ones."""

    origin: Origin
    decisions: tuple[LabelledDecision, ...]
    """Newest decision of each problem; accepted ones alone unless the sample is audited."""
    abstained: tuple[Recorded, ...]
    """Abstentions that a guarantee must not answer, with or without an outcome; none if the sample is audited."""
    reported: int
    """Number of decisions with an outcome."""
    contradictory: int
    """Decisions left out because their reports contradict each other."""
    other_ensemble: int
    """Decisions left out because another ensemble scored them."""
    repeated: int
    """Decisions left out because a newer one is about the same problem."""
    reviewed: int
    """Abstentions with an outcome, left out unless the sample is audited."""

    @property
    def times(self) -> tuple[datetime, datetime]:
        """Times of the oldest and the newest decision."""
        times = [decision.record.time for decision in self.decisions]
        return min(times), max(times)


def outcome_sample(reader: DecisionReader, origin: Origin) -> OutcomeSample:
    """Read the decisions.

    Raises:
        ConfigError: the stated share of audited decisions is not in (0, 1], or contradicts the reports.
        PoolError: no decision can be used; the message has the reason.
    """
    where = origin.where.model_copy(update={"task": origin.task.name})
    labelled = list(labelled_decisions(reader, lambda _: origin.task, where=where, by=origin.by))
    if not labelled:
        raise PoolError(_nothing_reported(reader, origin))
    if origin.audited is not None:
        _check_audit(reader, replace(origin, where=where), labelled, origin.audited)
    usable = [decision for decision in labelled if decision.fault is None]
    own = [decision for decision in usable if _is_own(decision.record, origin)]
    accepted = [decision for decision in own if decision.record.outcome.decision is Decision.ACCEPT]
    counted = own if origin.audited is not None else accepted
    newest = {
        (decision.problem.problem_id, decision.problem.prompt): decision for decision in sorted(counted, key=_time)
    }
    sample = OutcomeSample(
        origin=origin,
        decisions=tuple(newest.values()),
        abstained=() if origin.audited is not None else _abstained(reader, replace(origin, where=where)),
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


def _check_audit(reader: DecisionReader, origin: Origin, labelled: Sequence[LabelledDecision], share: float) -> None:
    """Refuse a share that the reports contradict, among answers or among abstentions."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share of audited decisions must be above 0 and at most 1, got {share}")
    for decision, word in ((Decision.ACCEPT, "answered"), (Decision.ABSTAIN, "refused")):
        total = reader.count(origin.where.model_copy(update={"decision": str(decision)}))
        judged = sum(labelled_decision.record.outcome.decision is decision for labelled_decision in labelled)
        if total and binomtest(judged, total, share).pvalue < AUDIT_LEVEL:
            raise ConfigError(
                f"{judged} of {total} {word} requests have an outcome, which is no random share of {share:g}; name the "
                "auditors alone (--by), choose a time in which they judged (--since, --until), or leave --audited out"
            )


def _nothing_reported(reader: DecisionReader, origin: Origin) -> str:
    stored = reader.table(["task"], origin.where.model_copy(update={"task": None}))["task"].to_pylist()
    if not stored:
        return f"no stored decision in {reader.root!r} passes; check the folder and the filters"
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
        "are about abstentions, which count only where a random share of all decisions was judged (--audited)": (
            sample.reviewed
        ),
    }
    why = "; ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"of {sample.reported} decisions with an outcome none can be used: {why}"
