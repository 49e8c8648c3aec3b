"""Labels and gold-free reports of all candidates: by Ray Data, or in one task where one worker is enough.

In:   problems, golds, candidates.
Out:  ``<run>/<stage>/labels.parquet`` and ``reports.parquet``, one row of each per candidate, in
      the order of the candidates. A checker that crashes or hangs gives an unlabeled row.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.data

from raydebm.checker import DeadlineChecker
from raydebm.config import Recipe, TaskConfig
from raydebm.distributed.placement import WorkerShare, cluster_nodes, places
from raydebm.distributed.pooled import in_tables, map_in_tasks
from raydebm.distributed.session import is_own_cluster
from raydebm.errors import PoolError
from raydebm.records import Candidate, ConstraintReport, Gold, Label, Problem, Verdict
from raydebm.run.codec import Row
from raydebm.run.directory import RunDir
from raydebm.run.tables import CANDIDATES, LABELS, REPORTS
from raydebm.tasks import task_of

BATCH_SIZE = 256
WORKER = WorkerShare(cpus=1.0, gpus=0.0)
POSITION, REPORT = "position", "report_"

_INPUT = CANDIDATES.schema.append(pa.field(POSITION, pa.int64()))
_PREFIXED = (field.with_name(REPORT + field.name) for field in REPORTS.schema)
_OUTPUT = pa.schema([(POSITION, pa.int64()), *LABELS.schema, *_PREFIXED])


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSummary:
    """Counts of verdicts, and of what could not be checked."""

    num_candidates: int
    verdicts: Mapping[str, int]
    num_parsed: int
    num_failed: int
    """Candidates without a label: failed completions, missing gold, checkers that crashed or hung."""
    reasons: Mapping[str, int]
    """The commonest reasons of unlabeled rows."""

    def facts(self) -> dict[str, Any]:
        """JSON values for a manifest."""
        return {
            "candidates": self.num_candidates,
            **{str(verdict): self.verdicts.get(verdict, 0) for verdict in Verdict},
            "parsed": self.num_parsed,
            "reasons": dict(self.reasons),
        }


def label(
    problems: Mapping[str, Problem],
    golds: Mapping[str, Gold],
    candidates: Sequence[Candidate],
    *,
    recipe: Recipe,
    run: RunDir,
    stage: str = "labels",
    on_progress: Callable[[int, int], None] | None = None,
) -> LabelSummary:
    """Check every candidate against gold and against the gold-free constraints. Ray is initialised.

    Args:
        problems: by problem id; likewise ``golds``. A candidate without gold is unlabeled. One that takes longer than
            the task allows is unlabeled and unselectable, with the reason.
        on_progress: (candidates done, candidates).

    Raises:
        PoolError: a candidate's problem is not among the problems.
        ResourceError: no node has a CPU.
    """
    require_problems(problems, candidates)
    rows: list[Row] = []
    for batch in _checked(problems, golds, candidates, task=recipe.task):
        rows += batch.to_pylist()
        if on_progress is not None:
            on_progress(len(rows), len(candidates))
    rows.sort(key=lambda row: row[POSITION])
    labels, reports = list(map(LABELS.record, rows)), list(map(_report, rows))
    run.write_reports(reports, stage)
    run.write_labels(labels, stage)
    return _summary(labels, reports)


def gold_free_reports(
    problems: Mapping[str, Problem], candidates: Sequence[Candidate], *, task: TaskConfig
) -> dict[str, ConstraintReport]:
    """The reports alone, by candidate id, where gold must not be looked at. Ray is initialised.

    Raises:
        PoolError, ResourceError: as ``label``.
    """
    require_problems(problems, candidates)
    batches = _checked(problems, {}, candidates, task=task)
    reports = [_report(row) for batch in batches for row in batch.to_pylist()]
    return {report.candidate_id: report for report in reports}


def _report(row: Row) -> ConstraintReport:
    return REPORTS.record({name: row[REPORT + name] for name in REPORTS.schema.names})


def require_problems(problems: Mapping[str, Problem], candidates: Iterable[Candidate]) -> None:
    """Raises PoolError when a candidate's problem is not among the problems."""
    missing = {candidate.problem_id for candidate in candidates} - set(problems)
    if missing:
        raise PoolError(
            f"candidates name {len(missing)} problem(s) that are not among the {len(problems)} given, such as "
            f"{min(missing)!r}; make problems and candidates in one run directory"
        )


def _summary(labels: Sequence[Label], reports: Sequence[ConstraintReport]) -> LabelSummary:
    verdicts = Counter(str(label.verdict) for label in labels)
    reasons = Counter(label.reason for label in labels if label.verdict is Verdict.UNLABELED)
    return LabelSummary(
        num_candidates=len(labels),
        verdicts=verdicts,
        num_parsed=sum(report.parsed for report in reports),
        num_failed=verdicts[Verdict.UNLABELED],
        reasons=dict(reasons.most_common(3)),
    )


def _checked(
    problems: Mapping[str, Problem],
    golds: Mapping[str, Gold],
    candidates: Sequence[Candidate],
    *,
    task: TaskConfig,
) -> Iterator[pa.Table]:
    if not candidates:
        return
    defaults = task_of(task).defaults
    per_worker = defaults.labels_per_worker
    num_workers = min(math.ceil(len(candidates) / per_worker), places(WORKER, cluster_nodes()))
    if is_own_cluster():
        # It may claim more logical CPUs than there are; checks compute, and some are timed.
        num_workers = min(num_workers, os.cpu_count() or 1)
    batch_size = min(BATCH_SIZE, per_worker)
    reference = ray.put((dict(problems), dict(golds)))
    setup = {"task": task, "deadline_s": defaults.label_deadline_s, "reference": [reference]}
    rows = [CANDIDATES.row(candidate) | {POSITION: position} for position, candidate in enumerate(candidates)]
    if num_workers == 1:
        whole = in_tables(rows, schema=_INPUT, size=len(rows))
        yield from map_in_tasks(CheckBatch, setup, whole, num_cpus=WORKER.cpus, num_at_once=1)
        return
    checked = ray.data.from_arrow(in_tables(rows, schema=_INPUT, size=batch_size)).map_batches(
        CheckBatch,
        fn_constructor_kwargs=setup,
        batch_size=batch_size,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=WORKER.cpus,
        # By default the first actor to be up takes four batches, which may be all there are.
        compute=ray.data.ActorPoolStrategy(size=num_workers, max_tasks_in_flight_per_actor=2),
    )
    yield from checked.iter_batches(batch_size=None, batch_format="pyarrow")


class CheckBatch:
    """Columns needed: ``CANDIDATES``, ``position``.

    Columns given: ``position``, those of ``LABELS``, and those of ``REPORTS`` with ``report_`` before them.
    """

    def __init__(self, *, task: TaskConfig, deadline_s: float, reference: list[Any]) -> None:
        self._problems, self._golds = ray.get(reference[0])
        self._checker = DeadlineChecker(task, deadline_s=deadline_s)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._check(row) for row in batch.to_pylist()], schema=_OUTPUT)

    def close(self) -> None:
        self._checker.close()

    def _check(self, row: Row) -> Row:
        candidate = CANDIDATES.record(row)
        problem = self._problems[candidate.problem_id]
        label, report = self._checker.check(problem, self._golds.get(candidate.problem_id), candidate)
        report_part = {REPORT + name: value for name, value in REPORTS.row(report).items()}
        return {POSITION: row[POSITION]} | LABELS.row(label) | report_part
