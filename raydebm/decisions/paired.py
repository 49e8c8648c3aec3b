"""Stored decisions that two policies decided, as pairs: what each chose, what it cost, and whether it was right.

In:   decisions with a shadow, and what users reported about them.
Out:  a ``PairedDecision`` each.
Does not know: gold, statistics, Ray, HTTP.

A report is about the answer that was selected. It also judges the other policy's choice where that selects the same
answer, and where every right answer of the task says the same (``tasks.base.gold_maker``): then another answer than a
right one is wrong, and a correct answer that came with a report judges any other. Reports that contradict each other
about it judge nothing but the answer that was selected.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from raydebm.decision.shadow import PolicyRole, Shadow
from raydebm.decisions.outcomes.log import ReportedOutcome, reports_by_record
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import shadow_from
from raydebm.records import Decision
from raydebm.run.codec import Row
from raydebm.tasks.base import Task, gold_maker

_COLUMNS = (
    "record_id", "time", "task", "problem_id", "decision", "selected", "num_candidates", "cost_usd", "versions_json",
    "policy_role", "shadow",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """What one policy decided."""

    version: str
    """Id of its file."""
    answered: bool
    right: bool | None
    """Whether it gave out a right answer; None: it gave one out that no one judged."""
    num_candidates: int
    cost_usd: float | None

    @property
    def wrong(self) -> bool | None:
        """Whether it gave out a wrong answer; None: it gave one out that no one judged."""
        return None if self.right is None else self.answered and not self.right


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDecision:
    """One decision of two policies."""

    record_id: str
    time: datetime
    problem: tuple[str, str]
    """Task and problem id."""
    role: PolicyRole
    """Which of them answered."""
    first: PolicyChoice
    second: PolicyChoice
    agrees: bool | None
    """Whether both decided the same and chose the same answer; None: the one that did not answer would have sampled
    more, so its choice is not known."""
    exact: bool
    has_outcome: bool

    @property
    def versions(self) -> tuple[str, str]:
        """Ids of the files of the first and the second policy."""
        return self.first.version, self.second.version

    @property
    def is_judged(self) -> bool:
        """Whether there is an outcome that judges both choices."""
        known = self.first.right is not None and self.second.right is not None
        return self.has_outcome and self.agrees is not None and known


def paired_decisions(
    reader: DecisionReader, task_named: Callable[[str], Task], *, where: Filter | None = None
) -> Iterator[PairedDecision]:
    """Every stored decision that passes and that two policies decided, oldest file first.

    Args:
        reader: the records folder.
        task_named: the task of that name; a user's own task comes from the recipe of the run.
        where: which decisions; None: all.

    Raises:
        UnknownNameError: ``task_named`` does not know a decision's task.
    """
    reports = reports_by_record(reader.outcomes.reports())
    task = cache(task_named)
    for batch in reader.batches(_COLUMNS, where):
        if "shadow" not in batch.schema.names:
            continue  # a file of a version without shadows
        for row in batch.to_pylist():
            shadow = shadow_from(row)
            if shadow is not None:
                about = reports.get(row["record_id"], ())
                yield _paired(row, shadow, about, reader, task)


def _paired(
    row: Row,
    shadow: Shadow,
    reports: Sequence[ReportedOutcome],
    reader: DecisionReader,
    task_named: Callable[[str], Task],
) -> PairedDecision:
    own_right = None if not reports else reports[-1].correct
    answered = row["decision"] == Decision.ACCEPT
    own = PolicyChoice(
        version=json.loads(row["versions_json"]).get("policy", ""),
        answered=answered,
        right=own_right if answered else False,
        num_candidates=row["num_candidates"],
        cost_usd=row["cost_usd"],
    )
    would_answer = shadow.decision == Decision.ACCEPT
    other = PolicyChoice(
        version=shadow.version,
        answered=would_answer,
        right=_verdict(row, shadow, reports, reader, task_named) if would_answer else False,
        num_candidates=shadow.num_candidates,
        cost_usd=shadow.cost_usd,
    )
    first, second = (own, other) if row["policy_role"] == "first" else (other, own)
    return PairedDecision(
        record_id=row["record_id"],
        time=row["time"],
        problem=(row["task"], row["problem_id"]),
        role=row["policy_role"],
        first=first,
        second=second,
        agrees=shadow.agrees,
        exact=shadow.exact,
        has_outcome=bool(reports),
    )


def _verdict(
    row: Mapping[str, Any],
    shadow: Shadow,
    reports: Sequence[ReportedOutcome],
    reader: DecisionReader,
    task_named: Callable[[str], Task],
) -> bool | None:
    """Whether the answer of the policy that did not answer is right; None where no report says so."""
    if not reports:
        return None
    if shadow.same_answer:
        return reports[-1].correct
    task = task_named(row["task"])
    if gold_maker(task) is None or shadow.vote_key is None:
        return None
    given = next((report.answer for report in reversed(reports) if report.answer is not None), None)
    if given is None:
        return False if reports[-1].correct else None
    record = reader.get(row["record_id"])
    if record is None:
        return None
    answer = task.parse(record.problem, given)
    if answer is None:
        return None
    key = task.vote_key(record.problem, answer)
    correct, best = reports[-1].correct, record.outcome.best
    own_key = None if best is None else best.report.vote_key
    if key == (shadow.vote_key if correct else own_key):
        return None  # two answers cannot both be right, nor one right and wrong: the reports contradict each other
    return not correct and key == shadow.vote_key
