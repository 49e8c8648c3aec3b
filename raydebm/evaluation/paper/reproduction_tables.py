"""Tables of a reproduction: all pools, what is shown, and the paper's tables as text."""

from dataclasses import dataclass

from raydebm.evaluation.certainty.signals import SIGMA
from raydebm.evaluation.certainty.trust import LEARNED
from raydebm.evaluation.paper.paper_cells import Cell, ReproducedTable
from raydebm.evaluation.paper.reproduction import CellCounts, Reproduction
from raydebm.evaluation.report.table_cells import Table, number, points, with_interval
from raydebm.evaluation.results.entries import OURS, SelectorRow
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.stats.significance import ALPHA, Comparison
from raydebm.evaluation.studies.study import StudyResults

MIN_PROBLEMS = 10
"""With fewer, a bootstrap interval says little: of one problem it has no width."""


def headline(results: StudyResults) -> Table:
    """The claims of interest, as paired differences with an answer in words."""
    evaluation = results.evaluation
    rows = []
    wanted = {"random", "shortest", "majority vote"}
    # Where the task has a violation score, that is its main metric.
    for comparison in evaluation.violation_comparisons or evaluation.comparisons:
        alone = comparison.other in wanted or comparison.other.startswith(("adapter ", "best generator"))
        if (comparison.one == OURS and alone) or comparison.other == "majority vote":
            claim = f"{comparison.one} beats {comparison.other}"
            rows.append((claim, points(comparison.difference), str(comparison.difference.n), _tested(comparison)))
    signals = () if evaluation.trust is None else evaluation.trust.signals
    best = None if evaluation.trust is None else evaluation.trust.best
    raised = "1 - violation" if evaluation.is_continuous else "accuracy"
    for signal in signals:
        # Sigma is the paper's signal and the learned one was fitted on validation: these two were not chosen here.
        named_before = signal.name in (SIGMA, LEARNED)
        if named_before or (best is not None and signal.name == best.name):
            claim = f"leaving the least certain fifth unanswered by {signal.name} raises {raised}"
            verdict = _shown(signal.gain_at_80)
            if not named_before:
                claim += f" (the best of {len(signals)} signals)"
                verdict = "in hindsight"
            rows.append((claim, points(signal.gain_at_80), str(signal.gain_at_80.n), verdict))
    return Table(
        title="What is shown",
        caption=f"Selectors: yes where the paired test's p is below {ALPHA:g} after Holm's correction for all "
        "comparisons of its table. Signals: yes where the 95 % interval of the difference is above 0. Not shown: "
        f"otherwise, or with fewer than {MIN_PROBLEMS} problems. In hindsight: chosen on these very problems. In "
        "points of " + ("violation avoided." if evaluation.violation_comparisons else "pass@1."),
        headers=("claim", "difference", "n", "shown"),
        rows=tuple(rows),
    )


def _tested(comparison: Comparison) -> str:
    """In words, which is better by the paired test."""
    if comparison.p_holm is None:
        return "no value"
    if comparison.difference.n < MIN_PROBLEMS:
        return "not shown"
    return {"better": "yes", "worse": "no, worse", "not shown": "not shown"}[comparison.verdict]


def _shown(difference: Estimate) -> str:
    if difference.low is None or difference.high is None:
        return "no value"
    if difference.n < MIN_PROBLEMS:
        return "not shown"
    return "yes" if difference.low > 0 else "no, worse" if difference.high < 0 else "not shown"


def overview_of(reproduction: Reproduction) -> Table:
    """One row per pool: the main numbers."""
    names = ("random", "shortest", "majority vote", "energy-weighted vote", OURS, "oracle")

    def value(row: SelectorRow | None) -> str:
        if row is None:
            return "-"
        return with_interval(row.pass_at_1) if row.mean_violation.value is None else number(row.mean_violation)

    rows = []
    for study in reproduction.studies:
        evaluation = study.evaluation
        ours = evaluation.row(OURS)
        rows.append(
            (
                study.name,
                str(evaluation.counts.problems),
                f"{evaluation.counts.candidates:,}",
                *(value(evaluation.row(name)) for name in names),
                "-" if ours is None else with_interval(_main_gap(ours)),
                str(evaluation.counts.unlabeled),
            )
        )
    return Table(
        title="All pools",
        caption=(
            "pass@1 in % with its 95 % interval, or mean violation (lower is better) where the task has one; gap "
            "closed by ours: 0 is random choice, 100 the oracle."
        ),
        headers=("pool", "problems", "candidates", *names, "gap closed %", "unlabeled"),
        rows=tuple(rows),
    )


def _main_gap(row: SelectorRow) -> Estimate:
    return row.gap_closed if row.mean_violation.value is None else row.violation_gap_closed


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A reproduced table as text, with numbered reasons."""

    label: str
    title: str
    note: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...]
    """(row, cells of (published, measured, status, number of the reason or ""))."""
    reasons: tuple[str, ...]
    counts: CellCounts


def paper_table(table: ReproducedTable) -> PaperTable:
    """The paper's table with our figures next to its own, and reasons as numbered notes."""
    reasons: dict[str, int] = {}

    def text(cell: Cell) -> tuple[str, str, str, str]:
        if cell.status == "not applicable":
            return ("-", "-", cell.status, "")
        reason = cell.reason if cell.status == "measured" else f"{cell.status}: {cell.reason}"
        number = "" if not cell.reason else str(reasons.setdefault(reason, len(reasons) + 1))
        return (cell.published or "-", cell.measured or "-", cell.status, number)

    rows = tuple((name, tuple(text(cell) for cell in cells)) for name, cells in table.rows)
    counts = CellCounts.of(table.cells)
    return PaperTable(
        label=table.label,
        title=table.title,
        note=table.note,
        headers=table.columns,
        rows=rows,
        reasons=tuple(reasons),
        counts=counts,
    )
