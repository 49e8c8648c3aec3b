"""Stored decisions with outcomes, as problems for certifying a guarantee.

In:   the records folder of a service; the run's task and ensemble.
Out:  one labelled decision per problem, the abstentions, and numbers of decisions left out.
Does not know: policies, Ray, HTTP.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from raydebm.decision.redecide import Recorded
from raydebm.errors import PoolError
from raydebm.records import Decision
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
