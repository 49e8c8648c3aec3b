"""What outcomes say about the candidates of stored decisions.

An outcome is about the selected candidate. Where every right answer of a task says the same (``base.gold_maker``), one
correct answer, given by the reporter or selected and reported as right, becomes gold and the task's judge labels all
candidates. Elsewhere the verdict holds for the candidates that gave the selected answer, and the others have no label.

Does not know: Ray, torch, HTTP.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raydebm.decisions.outcomes.log import ReportedOutcome, reports_by_record
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import DecisionRecord
from raydebm.labels import label_candidate
from raydebm.records import Gold, Label, Problem, ScoredCandidate, Verdict
from raydebm.tasks.base import Task, gold_maker


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledDecision:
    """One decision with the labels of its candidates."""

    record: DecisionRecord
    """Problem, and candidates with reports and energies (``record.outcome.pool``)."""
    correct: bool
    """What was reported last about the selected candidate."""
    labels: Mapping[str, Label]
    """By candidate id, one for each candidate of the pool; unlabeled where the outcome says nothing about it."""
    gold: Gold | None
    """Made of a correct answer; None where only the verdict is known."""
    fault: str | None = None
    """Why the reports about it cannot all be true. Such a decision has no labels."""

    @property
    def problem(self) -> Problem:
        """The problem that was asked."""
        return self.record.problem

    @property
    def pool(self) -> Sequence[ScoredCandidate]:
        """Every candidate that the decision was about."""
        return self.record.outcome.pool


def labelled_decisions(
    reader: DecisionReader,
    task_named: Callable[[str], Task],
    *,
    where: Filter | None = None,
    by: Sequence[str] | None = None,
) -> Iterator[LabelledDecision]:
    """Every stored decision that passes and has an outcome, oldest file first, a few at a time in memory.

    Args:
        reader: the records folder.
        task_named: the task of that name; a user's own task comes from the recipe of the run.
        where: which decisions; None: all.
        by: whose reports count; None: everybody's.

    Raises:
        UnknownNameError: ``task_named`` knows a decision's task not.
    """
    reports = reports_by_record(reader.outcomes.reports(), by=by)
    tasks: dict[str, Task] = {}
    for record in reader.records(where):
        about = reports.get(record.record_id)
        if about is None:
            continue
        name = record.problem.task
        if name not in tasks:
            tasks[name] = task_named(name)
        yield _label_decision(tasks[name], record, about)


def _label_decision(task: Task, record: DecisionRecord, reports: Sequence[ReportedOutcome]) -> LabelledDecision:
    """Labels of one decision's candidates.

    Args:
        task: the decision's.
        record: as stored.
        reports: the current ones, at least one, in the order of arrival. The last verdict and the last answer count.
    """
    problem, best, correct = record.problem, record.outcome.best, reports[-1].correct
    given = next((report.answer for report in reversed(reports) if report.answer is not None), None)
    gold, fault = _gold(task, problem, best, correct=correct, given=given)
    labels = {
        scored.candidate.candidate_id: _label(task, problem, gold, scored, best, correct)
        for scored in record.outcome.pool
    }
    if fault is None and gold is not None and best is not None:
        fault = _contradiction(labels[best.candidate.candidate_id], correct=correct)
    if fault is not None:
        labels = {name: _unlabelled(label, fault) for name, label in labels.items()}
    return LabelledDecision(record=record, correct=correct, labels=labels, gold=gold, fault=fault)


def _gold(
    task: Task, problem: Problem, best: ScoredCandidate | None, *, correct: bool, given: str | None
) -> tuple[Gold | None, str | None]:
    """Gold of the correct answer, where one is known and says which others are right; and why it could not be made."""
    maker = gold_maker(task)
    if maker is None:
        return None, None
    if given is not None:
        gold = maker.gold_from_answer(problem, given)
        return gold, None if gold is not None else f"task {task.name!r} finds no answer in the reported one"
    if correct and best is not None and best.candidate.text is not None:
        return maker.gold_from_answer(problem, best.candidate.text), None
    return None, None


def _label(
    task: Task,
    problem: Problem,
    gold: Gold | None,
    scored: ScoredCandidate,
    best: ScoredCandidate | None,
    correct: bool,
) -> Label:
    if gold is not None:
        return label_candidate(task, problem, gold, scored.candidate)
    candidate, verdict = scored.candidate, Verdict.UNLABELED
    is_same = best is not None and (
        candidate.candidate_id == best.candidate.candidate_id
        or (scored.report.vote_key is not None and scored.report.vote_key == best.report.vote_key)
    )
    if is_same:
        verdict = Verdict.CORRECT if correct else Verdict.INCORRECT
    reason = "" if is_same else "the outcome says nothing about this answer"
    return Label(candidate_id=candidate.candidate_id, problem_id=candidate.problem_id, verdict=verdict, reason=reason)


def _contradiction(label: Label, *, correct: bool) -> str | None:
    wanted = Verdict.CORRECT if correct else Verdict.INCORRECT
    if label.verdict in (wanted, Verdict.UNLABELED):
        return None
    said = "right" if correct else "wrong"
    return f"the selected answer was reported as {said}, and is {label.verdict} by the given one"


def _unlabelled(label: Label, reason: str) -> Label:
    return Label(candidate_id=label.candidate_id, problem_id=label.problem_id, verdict=Verdict.UNLABELED, reason=reason)
