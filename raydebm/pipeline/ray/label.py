"""Labels of and gold-free reports on all candidates, by Ray tasks.

In:   problems, golds, candidates.
Out:  ``<run>/<stage>/labels.parquet`` and ``reports.parquet``, one row per candidate, in the order of the candidates. A
      checker that crashes or hangs gives an unlabeled row.

The driver reads candidates as tasks become free, and holds only a few tables.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa
import ray

from raydebm.config import Recipe, TaskConfig
from raydebm.errors import PoolError
from raydebm.generators.tally import CommonTexts
from raydebm.pipeline.checker import DeadlineChecker
from raydebm.pipeline.ray.placement import WorkerShare, workers_for
from raydebm.pipeline.ray.pooled import in_tables, map_in_tasks
from raydebm.records import Candidate, ConstraintReport, Gold, Problem, Verdict
from raydebm.run.codec import Row
from raydebm.run.directory import RunDir
from raydebm.run.folder import StoredTable
from raydebm.run.tables import CANDIDATES, LABELS, REPORTS
from raydebm.tasks import task_of

MAX_TASK_ROWS = 16_384
"""Maximum number of candidates per task, whose table is in memory as a whole."""
PARTS = 4
"""Tasks per worker if there are enough candidates. A task has at most ``PARTS * labels_per_worker`` candidates."""
BATCH_ROWS = 256
WORKER = WorkerShare(cpus=1.0, gpus=0.0)
REPORT = "report_"

_OUTPUT = pa.schema([*LABELS.schema, *(field.with_name(REPORT + field.name) for field in REPORTS.schema)])
_NUM_REASONS = 3


def label(
    problems: Mapping[str, Problem],
    golds: Mapping[str, Gold],
    candidates: StoredTable[Candidate],
    *,
    recipe: Recipe,
    run: RunDir,
    stage: str = "labels",
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Check every candidate against gold and the gold-free constraints; returns facts for the manifest. Ray must be
    initialised.

    Args:
        problems: problems by problem id.
        golds: golds by problem id. A candidate without gold is unlabeled.
        candidates: a whole table. Candidates that exceed the task's time limit are unlabeled and unselectable.
        on_progress: called with (candidates done, candidates).

    Raises:
        PoolError: a candidate names an unknown problem.
        ResourceError: no node has a CPU, and ``ray.max_workers`` is not set.
    """
    require_problems(problems, set(candidates.column("problem_id")))
    total = len(candidates)
    verdicts: Counter[str] = Counter()
    reasons, num_parsed = CommonTexts(), 0
    with (
        run.open_table(LABELS, stage, "labels.parquet") as labels,
        run.open_table(REPORTS, stage, "reports.parquet") as reports,
    ):
        for table in _checked(problems, golds, candidates.tables, total=total, recipe=recipe):
            labels.write(table)
            reports.write(_reports_of(table))
            judged = list(zip(table["verdict"].to_pylist(), table["reason"].to_pylist(), strict=True))
            verdicts.update(verdict for verdict, _ in judged)
            reasons.update(reason for verdict, reason in judged if verdict == Verdict.UNLABELED)
            num_parsed += table.num_rows - table[f"{REPORT}answer"].null_count
            if on_progress is not None:
                on_progress(labels.num_rows, total)
    return {
        "candidates": total,
        **{str(verdict): verdicts[verdict] for verdict in Verdict},
        "parsed": num_parsed,
        "reasons": dict(reasons.most_common(_NUM_REASONS)),
    }


def gold_free_reports(
    problems: Mapping[str, Problem], candidates: Sequence[Candidate], *, recipe: Recipe
) -> dict[str, ConstraintReport]:
    """Gold-free reports by candidate id, without reading gold. Ray must be initialised.

    Raises:
        PoolError, ResourceError: see ``label``.
    """
    require_problems(problems, {candidate.problem_id for candidate in candidates})
    rows = list(map(CANDIDATES.row, candidates))

    def tables(size: int) -> Iterator[pa.Table]:
        return in_tables(rows, schema=CANDIDATES.schema, size=size)

    checked = _checked(problems, {}, tables, total=len(rows), recipe=recipe)
    reports = [REPORTS.record(row) for table in checked for row in _reports_of(table).to_pylist()]
    return {report.candidate_id: report for report in reports}


def require_problems(problems: Mapping[str, Problem], problem_ids: Set[str]) -> None:
    """Raise PoolError if candidates name a problem that is not there."""
    missing = problem_ids - set(problems)
    if missing:
        raise PoolError(
            f"candidates name {len(missing)} problem(s) that are not among the {len(problems)} given, such as "
            f"{min(missing)!r}; make problems and candidates in one run directory"
        )


def _reports_of(table: pa.Table) -> pa.Table:
    names = REPORTS.schema.names
    return table.select([REPORT + name for name in names]).rename_columns(names)


def _checked(
    problems: Mapping[str, Problem],
    golds: Mapping[str, Gold],
    tables: Callable[[int], Iterable[pa.Table]],
    *,
    total: int,
    recipe: Recipe,
) -> Iterator[pa.Table]:
    """Check the candidates. Yields tables with the columns of ``_OUTPUT``, in the order of the candidates.

    Args:
        tables: function from a maximum number of rows to tables of the candidates, in order.
        total: number of candidates.
    """
    if not total:
        return
    task = recipe.task
    defaults = task_of(task).defaults
    num_workers = workers_for(total, per_worker=defaults.labels_per_worker, share=WORKER, config=recipe.ray)
    reference = ray.put((dict(problems), dict(golds)))
    setup = {"task": task, "deadline_s": defaults.label_deadline_s, "reference": [reference]}
    size = rows_per_task(total, per_worker=defaults.labels_per_worker, num_workers=num_workers)
    yield from map_in_tasks(CheckBatch, setup, tables(size), num_cpus=WORKER.cpus, num_at_once=num_workers)


def rows_per_task(total: int, *, per_worker: int, num_workers: int) -> int:
    """Candidates per task: enough to be worth a process, with equal shares so that workers end together.

    Args:
        per_worker: smallest number of candidates that is worth a process.
    """
    share = math.ceil(total / num_workers)
    size = min(max(per_worker, math.ceil(share / PARTS)), PARTS * per_worker, MAX_TASK_ROWS, share)
    return math.ceil(share / math.ceil(share / size))


class CheckBatch:
    """Checker of tables of candidates.

    Input columns: ``CANDIDATES``. Output columns: those of ``LABELS``, and those of ``REPORTS`` prefixed with
    ``report_``.
    """

    def __init__(self, *, task: TaskConfig, deadline_s: float, reference: list[Any]) -> None:
        self._problems, self._golds = ray.get(reference[0])
        self._checker = DeadlineChecker(task, deadline_s=deadline_s)

    def __call__(self, table: pa.Table) -> pa.Table:
        parts = (
            pa.Table.from_pylist([self._check(row) for row in batch.to_pylist()], schema=_OUTPUT)
            for batch in table.to_batches(max_chunksize=BATCH_ROWS)
        )
        return pa.concat_tables(parts)

    def close(self) -> None:
        self._checker.close()

    def _check(self, row: Row) -> Row:
        candidate = CANDIDATES.record(row)
        problem = self._problems[candidate.problem_id]
        label, report = self._checker.check(problem, self._golds.get(candidate.problem_id), candidate)
        report_part = {REPORT + name: value for name, value in REPORTS.row(report).items()}
        return LABELS.row(label) | report_part
