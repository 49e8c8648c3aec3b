"""Labels of stored decisions from outcomes, a policy certified on them, and a run directory to train on.

An outcome is about the selected candidate. If all right answers of a task are equal (``base.gold_maker``), one correct
answer, given by the reporter or selected and reported as right, becomes gold and the task's judge labels all
candidates. Otherwise the verdict labels the candidates with the selected answer, and the others have no label.

``recertified`` makes every decision again under the policy, from its stored candidates:

- An answer that the policy would accept counts as wrong if it has no label or comes from a pass that was not sampled:
  the guarantee then holds whatever its label would be.
- Abstentions are reported more or less often than answers. So reports on them do not count, and no threshold is tested
  that would answer one of the stored abstentions after any of its passes (``Walk.floor``). This lowest threshold
  depends on confidences alone, so the test is valid.
- Several decisions on one problem are not independent, so only the newest counts.

The guarantee holds for decisions like the reported ones. The reports cannot show whether these represent all
decisions; they do if a random share is reported.

Independent of: Ray, torch, HTTP.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np

from raydebm.config import DecisionConfig, Recipe, apply_overrides, parse_recipe
from raydebm.decision.calibration.field_fit import FieldFit
from raydebm.decision.calibration.policy_fit import PolicyFit, fit_thresholds, with_fields
from raydebm.decision.calibration.walks import Walk
from raydebm.decision.fields import UNFITTED
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide
from raydebm.decision.table import correct_of
from raydebm.errors import ConfigError, PoolError
from raydebm.identity import content_id
from raydebm.pipeline.writing_lock import write_lock
from raydebm.records import Candidate, ConstraintReport, Decision, Gold, Label, Problem, ScoredCandidate, Verdict
from raydebm.run.directory import RECIPE, RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import IMPORTED, StageName
from raydebm.run.tables import SplitProblem
from raydebm.scorer.pairs import split_problems
from raydebm.service.store.outcomes import ReportedOutcome, reports_by_record
from raydebm.service.store.reader import DecisionReader, Filter
from raydebm.service.store.record import DecisionRecord
from raydebm.tasks.base import Task, gold_maker
from raydebm.tasks.fields import is_same_value, value_key
from raydebm.tasks.labels import label_candidate
from raydebm.user_files import writing

_VERDICTS = {True: Verdict.CORRECT, False: Verdict.INCORRECT}

# ---- labels ---------------------------------------------------------------------------------------------------------


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

    ``task_named`` gives a task by its name; a user's own task comes from the run's recipe.
    """
    reports, task_of = reports_by_record(reader.outcomes.reports(), by=by), cache(task_named)
    for record in reader.records(where):
        if (about := reports.get(record.record_id)) is not None:
            yield _label_decision(task_of(record.problem.task), record, about)


def _label_decision(task: Task, record: DecisionRecord, reports: Sequence[ReportedOutcome]) -> LabelledDecision:
    """Labels of one decision's candidates. Of its reports, in order of arrival, the last verdict and the last answer
    count."""
    problem, best, correct = record.problem, record.outcome.best, reports[-1].correct
    given = next((report.answer for report in reversed(reports) if report.answer is not None), None)
    gold, fault = _gold(task, problem, best, correct=correct, given=given)
    fields = {path: each for report in reports for path, each in report.fields.items()}
    labels = {}
    for scored in record.outcome.pool:
        label = _label(task, problem, gold, scored, best, correct)
        labels[label.candidate_id] = _with_fields(label, scored, best, fields)
    if fault is None and gold is not None and best is not None:
        verdict = labels[best.candidate.candidate_id].verdict
        if verdict not in (_VERDICTS[correct], Verdict.UNLABELED):
            said = "right" if correct else "wrong"
            fault = f"the selected answer was reported as {said}, but the reported answer makes it {verdict}"
    if fault is not None:
        labels = {
            name: Label(candidate_id=name, problem_id=problem.problem_id, verdict=Verdict.UNLABELED, reason=fault)
            for name in labels
        }
    return LabelledDecision(record=record, correct=correct, labels=labels, gold=gold, fault=fault)


def _gold(
    task: Task, problem: Problem, best: ScoredCandidate | None, *, correct: bool, given: str | None
) -> tuple[Gold | None, str | None]:
    """Gold from the correct answer, if one is known and determines the other labels; and the error if there is one."""
    maker = gold_maker(task)
    if maker is not None and given is not None:
        gold = maker.gold_from_answer(problem, given)
        return gold, None if gold is not None else f"task {task.name!r} finds no answer in the reported text"
    if maker is not None and correct and best is not None and best.candidate.text is not None:
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
    candidate = scored.candidate
    is_same = best is not None and (
        candidate.candidate_id == best.candidate.candidate_id
        or (scored.report.vote_key is not None and scored.report.vote_key == best.report.vote_key)
    )
    verdict = _VERDICTS[correct] if is_same else Verdict.UNLABELED
    reason = "" if is_same else "the outcome says nothing about this answer"
    return Label(candidate_id=candidate.candidate_id, problem_id=candidate.problem_id, verdict=verdict, reason=reason)


def _with_fields(
    label: Label, scored: ScoredCandidate, best: ScoredCandidate | None, reported: Mapping[str, Mapping[str, Any]]
) -> Label:
    """Add the verdicts on the candidate's fields that follow from the reports.

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
        elif each["correct"] or "value" in each:
            wanted = value_key(each["value"]) if "value" in each else selected
            tolerance = scored.report.field_tolerance
            fields[path] = own is not None and wanted is not None and is_same_value(own, wanted, tolerance)
    return replace(label, fields=fields)


# ---- a guarantee ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSample:
    """One labelled decision per problem, and facts about the unlabelled ones."""

    task: str
    by: tuple[str, ...] | None
    """Reporters that count. None for all."""
    decisions: tuple[LabelledDecision, ...]
    """Newest accepted decision of each problem."""
    abstained: tuple[DecisionRecord, ...]
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

    @property
    def source(self) -> dict[str, Any]:
        """Origin of the decisions behind a guarantee, for its ``outcomes``."""
        first, last = self.times
        return {
            "decisions": len(self.decisions),
            "since": first.isoformat(),
            "until": last.isoformat(),
            "by": None if self.by is None else list(self.by),
        }


def outcome_sample(
    reader: DecisionReader, task: Task, *, checkpoint: str, where: Filter, by: tuple[str, ...] | None = None
) -> OutcomeSample:
    """Read the decisions. Raises PoolError with the reason if none can be used.

    Args:
        checkpoint: ``versions["checkpoint"]`` of decisions whose energies are comparable with the run's.
        where: filter of the decisions, without a task.
        by: reporters that count. Default: all.
    """

    def is_own(record: DecisionRecord) -> bool:
        return record.versions.get("checkpoint") == checkpoint

    of_task = where.model_copy(update={"task": task.name})
    labelled = list(labelled_decisions(reader, lambda _: task, where=of_task, by=by))
    if not labelled:
        stored = reader.table(["task"], where)["task"].to_pylist()
        others = ", ".join(sorted(set(stored) - {task.name})) or "none"
        whose = "" if by is None else f" by {', '.join(by)}"
        raise PoolError(
            f"none of {stored.count(task.name)} stored decisions of {task.name!r} in {reader.root!r} has an "
            f"outcome{whose} (other tasks there: {others}); check the folder and the filters, or report some "
            "(POST /v1/decisions/{record_id}/outcome)"
        )
    usable = [decision for decision in labelled if decision.fault is None]
    own = [decision for decision in usable if is_own(decision.record)]
    counted = [decision for decision in own if decision.record.outcome.decision is Decision.ACCEPT]
    newest = {
        (decision.problem.problem_id, decision.problem.prompt): decision
        for decision in sorted(counted, key=lambda each: each.record.time)
    }
    refused = reader.records(of_task.model_copy(update={"decision": str(Decision.ABSTAIN)}))
    sample = OutcomeSample(
        task=task.name,
        by=by,
        decisions=tuple(newest.values()),
        abstained=tuple(record for record in refused if is_own(record)),
        reported=len(labelled),
        contradictory=len(labelled) - len(usable),
        other_ensemble=len(usable) - len(own),
        repeated=len(counted) - len(newest),
        reviewed=len(own) - len(counted),
    )
    if not sample.decisions:
        raise PoolError(
            f"of {sample.reported} decisions with an outcome none can be used: {sample.contradictory} contradict "
            f"themselves; {sample.other_ensemble} were scored by another ensemble than the run's (`raydebm replay "
            f"--checkpoint` scores texts again); {sample.reviewed} are about abstentions, which do not count"
        )
    return sample


def recertified(sample: OutcomeSample, policy: Policy, config: DecisionConfig) -> PolicyFit:
    """Choose thresholds and certify the guarantee on reported outcomes.

    The posterior is kept: it is independent of these decisions, so the guarantee is exact. Raises ConfigError for a
    policy with thresholds on sigma, PoolError for too few decisions.
    """
    if policy.rule != "posterior" or policy.posterior is None:
        raise ConfigError(
            "the run's policy decides by the paper's rule, which has no confidence to certify; run `raydebm calibrate` "
            "with decision.rule: posterior first"
        )
    if policy.posterior.task not in ("", sample.task):
        raise ConfigError(
            f"the policy was fitted for task {policy.posterior.task!r}, and these decisions are of task {sample.task!r}"
        )
    fit = fit_thresholds(policy, lambda current: _walked(sample, current), config=config)
    if config.max_field_error is not None:
        fit = with_fields(fit, _reported_fields(sample, fit.policy), config)
    guaranteed = {
        name: {**guarantee, "outcomes": sample.source}
        for name in ("guarantee", "field_guarantee")
        if (guarantee := getattr(fit.policy, name)) is not None
    }
    return replace(fit, policy=fit.policy.replaced(**guaranteed)) if guaranteed else fit


def _reported_fields(sample: OutcomeSample, policy: Policy) -> FieldFit | None:
    """Confidences and verdicts of the selected answers' fields, for decisions whose reports settle every field.

    Users report the fields that they found wrong, so a decision with an unsettled field says nothing about its others.
    """
    owner, paths, confidence, right = list[int](), list[str](), list[float](), list[bool]()
    settled = 0
    for decision in sample.decisions:
        again = redecide(decision.record.outcome, decision.record.policy, policy)
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
    """Replay every decision through the passes of one policy. The floor is the lowest confidence above those of all
    abstentions after each pass, because a policy may answer after any pass. Proven answers need no outcome, so
    abstentions that withheld one do not count."""
    shape = (len(sample.decisions), policy.max_passes)
    confidence, worth, is_unknown = np.full(shape, -math.inf), np.zeros(shape), np.zeros(shape, dtype=bool)
    withheld = [-math.inf]
    for last in range(policy.max_passes):
        until = policy.without_accepting().replaced(max_passes=last + 1)
        for place, decision in enumerate(sample.decisions):
            again = redecide(decision.record.outcome, decision.record.policy, until)
            if again.decision is Decision.REGENERATE:
                confidence[place, last], is_unknown[place, last] = 1.0, True
            elif again.best is not None and again.confidence is not None:
                label = decision.labels[again.best.candidate.candidate_id]
                violation, correct = label.violation_score, np.nan_to_num(correct_of(label))
                confidence[place, last] = again.confidence
                worth[place, last] = correct if violation is None else 1 - violation
        for record in sample.abstained:
            refused = redecide(record.outcome, record.policy, until).confidence
            if refused is not None and refused < 1:
                withheld.append(refused)
    floor = float(np.nextafter(max(withheld), math.inf)) if len(withheld) > 1 else -math.inf
    return Walk(confidence=confidence, worth=worth, floor=floor, is_unknown=is_unknown)


# ---- a run directory ------------------------------------------------------------------------------------------------

CONTRADICTION = "outcomes of several decisions contradict each other about this answer"


@dataclass(slots=True)
class ImportedTables:
    """Rows of a run's tables by id, to which decisions are added."""

    problems: dict[str, Problem] = field(default_factory=dict)
    golds: dict[str, Gold] = field(default_factory=dict)
    """Gold by problem id. The task's judge labels all candidates of these problems."""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    test: Set[str] = frozenset()
    """Ids of the problems of the test split."""
    decisions: int = 0
    """Decisions with an outcome."""
    contradictory: int = 0
    """Decisions left out because their reports contradict each other."""

    def add(self, decision: LabelledDecision) -> None:
        """Add one decision's problem, candidates, checks and labels."""
        self.decisions += 1
        if decision.fault is not None:
            self.contradictory += 1
            return
        problem = self._problem(decision)
        if decision.gold is not None:
            self.golds[problem.problem_id] = replace(decision.gold, problem_id=problem.problem_id)
        for scored in decision.pool:
            given = name = scored.candidate.candidate_id
            if problem.problem_id != decision.problem.problem_id:  # problems with the same id also share candidate ids
                name = content_id("imported", problem.problem_id, given)
            ids: dict[str, Any] = {"candidate_id": name, "problem_id": problem.problem_id}
            self.candidates[name] = replace(scored.candidate, **ids)
            self.reports[name] = replace(scored.report, candidate_id=name)
            self.labels[name] = merged(self.labels.get(name), replace(decision.labels[given], **ids))

    def _problem(self, decision: LabelledDecision) -> Problem:
        """Problem with the scored prompt, which may include the earlier turns of a chat."""
        prompt = decision.record.scored_prompt or decision.problem.prompt
        problem = replace(decision.problem, prompt=prompt)
        known = self.problems.get(problem.problem_id)
        if known is not None and (known.prompt, known.data) != (problem.prompt, problem.data):
            other = content_id("imported", problem.problem_id, problem.prompt, dict(problem.data))
            problem = replace(problem, problem_id=other)
        self.problems.setdefault(problem.problem_id, problem)
        return problem


def merged(known: Label | None, label: Label) -> Label:
    """Label of a candidate from two decisions; unlabeled if they contradict each other."""
    if known is None or known.verdict is label.verdict or label.verdict is Verdict.UNLABELED:
        return label if known is None else known
    if known.verdict is Verdict.UNLABELED and known.reason != CONTRADICTION:
        return label
    return replace(label, verdict=Verdict.UNLABELED, reason=CONTRADICTION)


def write_run(
    decisions: Iterable[LabelledDecision], *, recipe: Recipe, out: str, test_frac: float, seed: int
) -> ImportedTables:
    """Write the run directory to a folder or filesystem URL; ``test_frac`` is the share of problems of the test split.

    Raises:
        ConfigError: ``out`` has a run, is being written by another process, or cannot be written; or ``test_frac`` is
            not between 0 and 1.
        PoolError: fewer than three usable problems.
    """
    if not 0 < test_frac < 1:
        raise ConfigError(f"the share of test problems must be between 0 and 1, got {test_frac}")
    run = RunDir(out)
    _check_holds_no_run(run)
    tables = ImportedTables()
    for each in decisions:
        tables.add(each)
    if len(tables.problems) < 3:
        raise PoolError(
            f"{tables.decisions} decisions with an outcome make {len(tables.problems)} problems; training needs at "
            "least 3 (to train, to validate, to test): report more outcomes"
        )
    prompts = {problem_id: problem.prompt for problem_id, problem in tables.problems.items()}
    tables.test = frozenset(split_problems(prompts, validation_frac=test_frac, seed=seed)[1])
    # The candidates are imported and no generator is asked, so there is one pass and no greedy candidate.
    changes = [f"name={recipe.name}-decisions", f"run_dir={out}", "decision.max_passes=1", "generation.greedy=false"]
    own = parse_recipe(apply_overrides(recipe.model_dump(mode="json", by_alias=True), changes))
    with write_lock(run, option="--out"), writing(out):
        _check_holds_no_run(run)  # another process may have made one meanwhile
        _write_tables(tables, run, own)
    return tables


def _check_holds_no_run(run: RunDir) -> None:
    if run.exists(RECIPE) or run.exists("problems"):
        raise ConfigError(f"{run.root} contains a run already; give another folder")


def _write_tables(tables: ImportedTables, run: RunDir, recipe: Recipe) -> None:
    """Write each stage's tables, then its manifest, in the order of the stages."""

    def finish(stage: StageName, facts: dict[str, int]) -> None:
        run.finish(stage, new_manifest(stage, recipe, run, facts=facts))

    run.write_json({"decisions": tables.decisions}, IMPORTED.marker)
    run.write_recipe(recipe)
    rows = [
        SplitProblem(problem=problem, split="test" if name in tables.test else "train")
        for name, problem in tables.problems.items()
    ]
    run.write_golds(tables.golds.values())
    run.write_problems(rows)
    finish("problems", Counter(row.split for row in rows))
    run.write_candidates(tables.candidates.values())
    finish("candidates", {"candidates": len(tables.candidates)})
    run.write_labels(tables.labels.values())
    run.write_reports(tables.reports.values())
    finish("labels", {"labels": len(tables.labels)})
