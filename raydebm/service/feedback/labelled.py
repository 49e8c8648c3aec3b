"""Labels of stored decisions' candidates from outcomes.

An outcome is about the selected candidate. If all right answers of a task are equal (``base.gold_maker``), one correct
answer, given by the reporter or selected and reported as right, becomes gold and the task's judge labels all
candidates. Otherwise the verdict labels the candidates with the selected answer, and the others have no label.

Does not know: Ray, torch, HTTP.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raydebm.records import Gold, Label, Problem, ScoredCandidate, Verdict
from raydebm.service.store.outcomes import ReportedOutcome, reports_by_record
from raydebm.service.store.reader import DecisionReader, Filter
from raydebm.service.store.record import DecisionRecord
from raydebm.tasks.base import Task, gold_maker
from raydebm.tasks.fields import value_key
from raydebm.tasks.labels import label_candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledDecision:
    """One decision with its candidates' labels."""

    record: DecisionRecord
    """Problem, and candidates with reports and energies (``record.outcome.pool``)."""
    correct: bool
    """Latest report on the selected candidate."""
    labels: Mapping[str, Label]
    """Label of every candidate of the pool by id; unlabeled if the outcome does not cover it."""
    gold: Gold | None
    """Gold from a correct answer. None if only the verdict is known."""
    fault: str | None = None
    """Contradiction between the reports. Such a decision has no labels."""

    @property
    def problem(self) -> Problem:
        """Problem of the request."""
        return self.record.problem

    @property
    def pool(self) -> Sequence[ScoredCandidate]:
        """All candidates of the decision."""
        return self.record.outcome.pool


def labelled_decisions(
    reader: DecisionReader,
    task_named: Callable[[str], Task],
    *,
    where: Filter | None = None,
    by: Sequence[str] | None = None,
) -> Iterator[LabelledDecision]:
    """Stored decisions that pass the filter and have an outcome, oldest file first, a few at a time in memory.

    Args:
        task_named: task by name; a user's own task comes from the run's recipe.

    Raises:
        UnknownNameError: ``task_named`` does not know a decision's task.
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
        reports: current reports, at least one, in order of arrival. The last verdict and the last answer count.
    """
    problem, best, correct = record.problem, record.outcome.best, reports[-1].correct
    given = next((report.answer for report in reversed(reports) if report.answer is not None), None)
    gold, fault = _gold(task, problem, best, correct=correct, given=given)
    fields = {path: each for report in reports for path, each in report.fields.items()}
    labels = {
        scored.candidate.candidate_id: _with_fields(
            _label(task, problem, gold, scored, best, correct), scored, best, fields
        )
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
    """Gold from the correct answer, if one is known and determines the other labels; and the error if there is one."""
    maker = gold_maker(task)
    if maker is None:
        return None, None
    if given is not None:
        gold = maker.gold_from_answer(problem, given)
        return gold, None if gold is not None else f"task {task.name!r} finds no answer in the reported text"
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


def _with_fields(
    label: Label, scored: ScoredCandidate, best: ScoredCandidate | None, reported: Mapping[str, Mapping[str, Any]]
) -> Label:
    """The label with the verdicts that follow for its fields.

    A candidate with the selected answer's value of a field has the reported verdict. Where the right value is known,
    the other candidates have one too. All fields of a right answer are right.
    """
    fields = dict(label.fields)
    if label.verdict is Verdict.CORRECT:
        fields |= dict.fromkeys(scored.report.fields, True)
    of_selected = {} if best is None else best.report.fields
    for path, each in reported.items():
        own, selected = scored.report.fields.get(path), of_selected.get(path)
        if own == selected:
            fields[path] = each["correct"]
        elif "value" in each:
            fields[path] = own == value_key(each["value"])
        elif each["correct"]:
            fields[path] = False
    return replace(label, fields=fields)


def _contradiction(label: Label, *, correct: bool) -> str | None:
    wanted = Verdict.CORRECT if correct else Verdict.INCORRECT
    if label.verdict in (wanted, Verdict.UNLABELED):
        return None
    said = "right" if correct else "wrong"
    return f"the selected answer was reported as {said}, but the reported answer makes it {label.verdict}"


def _unlabelled(label: Label, reason: str) -> Label:
    return Label(candidate_id=label.candidate_id, problem_id=label.problem_id, verdict=Verdict.UNLABELED, reason=reason)
