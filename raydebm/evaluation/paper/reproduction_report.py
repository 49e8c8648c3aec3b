"""Report of a reproduction: the paper's tables next to ours, then every pool with its tables and figures.

In:   a ``Reproduction``.
Out:  report.html (self-contained), report.md with its figures in a folder, results.json with the same numbers.
"""

from collections.abc import Callable

from raydebm.evaluation.paper.paper_cells import Cell, Context, ReproducedTable
from raydebm.evaluation.paper.paper_figures import figure_table
from raydebm.evaluation.paper.published import paper
from raydebm.evaluation.paper.reproduction import CellCounts, Picks, Reproduction
from raydebm.evaluation.report.document import Chapter, Plate, ReportDocument, plate_of
from raydebm.evaluation.report.evaluation_report import plates, pool_summary, provenance
from raydebm.evaluation.report.evaluation_tables import tables
from raydebm.evaluation.report.headline import sentences, unread_problems
from raydebm.evaluation.report.study_figures import pick_figure, study_plates, transfer_figure
from raydebm.evaluation.report.study_tables import study_tables, transfer_tables, variant_tables
from raydebm.evaluation.report.table_cells import Cell as TableCell
from raydebm.evaluation.report.table_cells import Table, number, table_of, with_interval
from raydebm.evaluation.results.entries import OURS
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.run.directory import RunDir


def write_reproduction(reproduction: Reproduction, run: RunDir) -> str:
    """Write results.json, report.md, report.html and figures/*.svg below ``<run>/reproduction/``. Returns the page's
    address."""
    run.write_json(reproduction.to_json(), "reproduction", "results.json")
    return document(reproduction).write(run, "reproduction")


def document(reproduction: Reproduction) -> ReportDocument:
    """Report: the paper's tables and figures, comparisons across pools, variants, one chapter per pool, further
    sections."""
    parts = list[Chapter]()
    if reproduction.transfers:
        parts.append(
            Chapter(
                title="Across pools",
                anchor="across",
                tables=[table for each in reproduction.transfers for table in transfer_tables(each)],
                plates=[_transfer_plate(each) for each in reproduction.transfers],
            )
        )
    for index, variants in enumerate(reproduction.variants, start=1):
        parts.append(Chapter(title=variants.title, anchor=f"variants-{index}", tables=variant_tables(variants)))
    for index, study in enumerate(reproduction.studies, start=1):
        parts.append(_pool_chapter(study, f"pool-{index}"))
    for index, section in enumerate(reproduction.sections, start=1):
        parts.append(
            Chapter(
                title=section.title,
                anchor=f"section-{index}",
                paragraphs=(section.text,),
                tables=section.tables,
                plates=[_picks_plate(picks) for picks in section.picks],
            )
        )
    drawn = {part.title: [plate.title for plate in part.plates] for part in parts}
    context = Context(reproduction.studies, reproduction.transfers, reproduction.variants)
    first = Chapter(title="The paper's figures", anchor="figures", tables=(figure_table(context, drawn),))
    return ReportDocument(
        title=reproduction.title,
        summary=_opening(reproduction),
        chapters=[_paper_chapter(reproduction), first, *parts],
        provenance={
            "command": reproduction.command,
            "versions": ", ".join(f"{name} {version}" for name, version in reproduction.versions.items()),
        },
        has_figure_files=True,
    )


def _opening(reproduction: Reproduction) -> list[str]:
    warnings = [
        f"{study.name}: {warning}"
        for study in reproduction.studies
        for warning in unread_problems(study.evaluation.texts_read)
    ]
    settings = ", ".join(paper().settings)
    return [
        *warnings,
        f"{reproduction.counts.in_words()} Tables that only state settings are recipes: {settings}.",
    ]


def _paper_chapter(reproduction: Reproduction) -> Chapter:
    return Chapter(
        title="The paper's tables",
        anchor="paper",
        paragraphs=(
            "In each cell the published value, and behind the slash or below it what was measured here, with its 95 % "
            "interval over problems and their number n. Numbers in round brackets are explained below the table.",
        ),
        tables=[
            *([overview_of(reproduction)] if reproduction.studies else []),
            *(paper_table(table) for table in reproduction.tables),
        ],
    )


def overview_of(reproduction: Reproduction) -> Table:
    """Main numbers, one row per pool."""

    def value_of(name: str) -> Callable[[StudyResults], TableCell]:
        def value(study: StudyResults) -> str:
            row = study.evaluation.row(name)
            if row is None:
                return "-"
            return with_interval(row.pass_at_1) if row.mean_violation.value is None else number(row.mean_violation)

        return value

    def gap(study: StudyResults) -> str:
        row = study.evaluation.row(OURS)
        if row is None:
            return "-"
        return with_interval(row.gap_closed if row.mean_violation.value is None else row.violation_gap_closed)

    names = ("random", "shortest", "majority vote", "energy-weighted vote", OURS, "oracle")
    return table_of(
        "All pools",
        "pass@1 in % with its 95 % interval, or mean violation (lower is better) where the task has one; gap "
        "closed by ours: 0 is random choice, 100 the oracle.",
        reproduction.studies,
        {
            "pool": lambda study: study.name,
            "problems": lambda study: study.evaluation.counts.problems,
            "candidates": lambda study: study.evaluation.counts.candidates,
            **{name: value_of(name) for name in names},
            "gap closed %": gap,
            "unlabeled": lambda study: study.evaluation.counts.unlabeled,
        },
    )


def paper_table(table: ReproducedTable) -> Table:
    """The paper's table with measured figures next to its own, and reasons as numbered notes."""
    reasons: dict[str, int] = {}
    counts = CellCounts.of(table.cells)

    def text(cell: Cell) -> str:
        if cell.status == "not applicable":
            return "- / -"
        reason = cell.reason if cell.status == "measured" else f"{cell.status}: {cell.reason}"
        note = f" ({reasons.setdefault(reason, len(reasons) + 1)})" if cell.reason else ""
        return f"{cell.published or '-'} / {cell.measured or '-'}{note}"

    rows = tuple((name, *map(text, cells)) for name, cells in table.rows)
    beyond = f", {counts.beyond_the_paper} figures beyond" if counts.beyond_the_paper else ""
    return Table(
        title=f"{table.title} ({table.label})",
        caption=f"{table.note} {counts.measured} of {counts.published} of the paper's cells measured{beyond}.".strip(),
        headers=("published / here", *table.columns),
        rows=rows,
        notes=tuple(reasons),
        is_folded=counts.measured + counts.beyond_the_paper == 0,
    )


def _pool_chapter(study: StudyResults, anchor: str) -> Chapter:
    return Chapter(
        title=study.name,
        anchor=anchor,
        paragraphs=(*study.notes, *sentences(study.evaluation), pool_summary(study.evaluation)),
        tables=[*tables(study.evaluation), *study_tables(study)],
        plates=[*plates(study.evaluation), *study_plates(study)],
        details=[
            *((row.name, row.description) for row in study.evaluation.rows),
            *provenance(study.evaluation).items(),
            *([("backbone", study.backbone)] if study.backbone else []),
        ],
    )


def _transfer_plate(transfer: Transfer) -> Plate:
    return plate_of(
        transfer_figure(transfer),
        transfer.title,
        "pass@1 in % by mu alone and, in brackets and as colour, the difference to random choice in points: green is "
        "better than chance, pink worse. Framed: the scorer trained on that task; empty: not scored.",
    )


def _picks_plate(picks: Picks) -> Plate:
    return plate_of(
        pick_figure(picks.shares, share_of_correct=picks.share_of_correct),
        picks.title,
        "Share of the selections by generator, for each scorer, and its share of the correct candidates. A scorer "
        "that knows answers and not authors follows the latter.",
    )
