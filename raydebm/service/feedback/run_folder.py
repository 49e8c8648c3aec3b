"""Run directory from labelled decisions: problems, candidates and labels are complete, so nothing is sampled.

`raydebm run` and `calibrate` continue from there under the folder's own recipe. If a client gave two problems the same
id, the later one gets a new id.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from raydebm.config import Recipe, apply_overrides, parse_recipe
from raydebm.errors import ConfigError, PoolError
from raydebm.identity import content_id
from raydebm.pipeline.writing_lock import write_lock
from raydebm.records import Candidate, ConstraintReport, Gold, Label, Problem, Verdict
from raydebm.run.directory import RECIPE, RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import IMPORTED, StageName
from raydebm.run.tables import SplitProblem
from raydebm.scorer.pairs import split_problems
from raydebm.service.feedback.labelled import LabelledDecision
from raydebm.user_files import writing

CONTRADICTION = "outcomes of several decisions contradict each other about this answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """Numbers of imported and skipped decisions."""

    decisions: int
    """Decisions with an outcome."""
    contradictory: int
    """Decisions left out because their reports contradict each other."""
    problems: int
    test_problems: int
    with_gold: int
    """Problems with a correct answer, whose candidates are all labelled."""
    candidates: int
    verdicts: dict[str, int]


@dataclass(slots=True)
class ImportedTables:
    """Tables of a run that grow by decision."""

    problems: dict[str, Problem] = field(default_factory=dict)
    golds: dict[str, Gold] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    reports: dict[str, ConstraintReport] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    decisions: int = 0
    contradictory: int = 0

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
            # Problems with the same id also share candidate ids.
            own = problem.problem_id != decision.problem.problem_id
            name = scored.candidate.candidate_id
            name = content_id("imported", problem.problem_id, name) if own else name
            label = replace(
                decision.labels[scored.candidate.candidate_id], candidate_id=name, problem_id=problem.problem_id
            )
            self.candidates[name] = replace(scored.candidate, candidate_id=name, problem_id=problem.problem_id)
            self.reports[name] = replace(scored.report, candidate_id=name)
            self.labels[name] = merged(self.labels.get(name), label)

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
) -> ImportSummary:
    """Write the run directory.

    Args:
        out: folder or filesystem URL without a run.
        test_frac: share of problems for the test split.

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
    train, test = split_problems(prompts, validation_frac=test_frac, seed=seed)
    with write_lock(run, option="--out"), writing(out):
        _check_holds_no_run(run)  # another process may have made one meanwhile
        write_tables(tables, run, _recipe_of_import(recipe, out), test=frozenset(test))
    verdicts = Counter(str(label.verdict) for label in tables.labels.values())
    return ImportSummary(
        decisions=tables.decisions,
        contradictory=tables.contradictory,
        problems=len(train) + len(test),
        test_problems=len(test),
        with_gold=len(tables.golds),
        candidates=len(tables.candidates),
        verdicts={str(verdict): verdicts[str(verdict)] for verdict in Verdict},
    )


def _check_holds_no_run(run: RunDir) -> None:
    if run.exists(RECIPE) or run.exists("problems"):
        raise ConfigError(f"{run.root} contains a run already; give another folder")


def _recipe_of_import(recipe: Recipe, out: str) -> Recipe:
    """The recipe with its own run directory and a single pass, because no generator knows users' problems."""
    changes = [
        f"name={recipe.name}-decisions",
        f"run_dir={out}",
        "triage.max_passes=1",
        "generation.greedy=false",
    ]
    return parse_recipe(apply_overrides(recipe.model_dump(mode="json", by_alias=True), changes))


def write_tables(tables: ImportedTables, run: RunDir, recipe: Recipe, *, test: frozenset[str]) -> None:
    """Write each stage's tables, then its manifest, in the order of the stages."""
    run.write_json({"decisions": tables.decisions}, IMPORTED.marker)
    run.write_recipe(recipe)
    splits = Counter("test" if name in test else "train" for name in tables.problems)
    run.write_golds(tables.golds.values())
    run.write_problems(
        SplitProblem(problem=problem, split="test" if name in test else "train")
        for name, problem in tables.problems.items()
    )
    _finish(run, "problems", recipe, dict(splits))
    run.write_candidates(tables.candidates.values())
    _finish(run, "candidates", recipe, {"candidates": len(tables.candidates)})
    run.write_labels(tables.labels.values())
    run.write_reports(tables.reports.values())
    _finish(run, "labels", recipe, {"labels": len(tables.labels)})


def _finish(run: RunDir, stage: StageName, recipe: Recipe, facts: dict[str, Any]) -> None:
    run.finish(stage, new_manifest(stage, recipe, run, facts=facts))
