"""Report of a reproduction: the paper's tables with measured values, then every pool with its tables and figures."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from raydebm.errors import PoolError
from raydebm.evaluation.paper.paper_cells import (
    MIN_PROBLEMS,
    Cell,
    Context,
    PublishedFigure,
    ReproducedTable,
    no_pool,
    paper,
)
from raydebm.evaluation.paper.paper_tables import reproduced_tables
from raydebm.evaluation.report.document import Chapter, ReportDocument, ReportFigure, Table, report_figure
from raydebm.evaluation.report.evaluation_report import figures_of, pool_summary, provenance
from raydebm.evaluation.report.evaluation_tables import lead, sentences, tables, unread_problems
from raydebm.evaluation.report.figures import study_figures, transfer_figure
from raydebm.evaluation.report.study_tables import study_tables, transfer_tables, variant_tables
from raydebm.evaluation.stats.json_results import JsonResults, command_line, versions
from raydebm.evaluation.studies.scorers import Transfer, VariantStudy
from raydebm.evaluation.studies.study import StudyResults
from raydebm.run.directory import RunDir

_NO_PANEL, _DRAWING = "-", "a drawing of the idea, without data"


def figure_table(context: Context, drawn: Mapping[str, Collection[str]]) -> Table:
    """One row per figure of the paper, one column per benchmark.

    Args:
        context: Measured results.
        drawn: Titles of the figures by title of the chapter (name of the study).
    """
    columns = paper().benchmarks
    return Table(
        title="Figures",
        caption="Chapter of this report with the same figure, or the reason for its absence; "
        f'"{_NO_PANEL}": the paper\'s figure does not show this task.',
        headers=("figure", "title here", *columns),
        rows=tuple(
            (
                f"{figure.title} ({figure.label})",
                figure.here or _DRAWING,
                *(_place(context, figure, column, drawn) for column in columns),
            )
            for figure in paper().figures
        ),
    )


def _place(context: Context, figure: PublishedFigure, column: str, drawn: Mapping[str, Collection[str]]) -> str:
    if column not in figure.tasks:
        return _NO_PANEL
    study = context.before_repair(column) if figure.before_repair else context.study(column)
    if study is None:
        return no_pool(column)
    if any(_is_scored(transfer, column) for transfer in context.transfers if transfer.title == figure.here):
        return "Across pools"
    return study.name if figure.here in drawn.get(study.name, ()) else figure.otherwise


def _is_scored(transfer: Transfer, column: str) -> bool:
    tasks = paper().tasks
    return any(tasks.get(target, target) == tasks[column] for target in transfer.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    """Counts of cells with a published value, and of cells that only this project has."""

    published: int
    measured: int
    on_few_problems: int
    not_measurable: int
    needs_key_or_gpu: int
    beyond_the_paper: int
    """Measured cells without a published value. Not included in the other counts."""

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "CellCounts":
        """Count the cells."""
        published = [cell for cell in cells if cell.published is not None]
        statuses = Counter(cell.status for cell in published)
        few = [cell for cell in published if cell.estimate is not None and cell.estimate.n < MIN_PROBLEMS]
        return cls(
            published=len(published),
            measured=statuses["measured"],
            on_few_problems=len(few),
            not_measurable=statuses["not measurable"],
            needs_key_or_gpu=statuses["needs a key or GPU"],
            beyond_the_paper=sum(cell.published is None and cell.status == "measured" for cell in cells),
        )

    def in_words(self) -> str:
        """Two sentences: the paper's cells, and the additional ones."""
        return (
            f"{self.measured} of the paper's {self.published} cells are measured here ({self.on_few_problems} of them "
            f"on fewer than {MIN_PROBLEMS} problems), {self.not_measurable} are not measurable with these runs, and "
            f"{self.needs_key_or_gpu} need a key or a GPU. Rows and columns that the paper does not have contain "
            f"{self.beyond_the_paper} more values."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(JsonResults):
    """Contents of the report, as data."""

    KIND: ClassVar[str] = "a reproduction"

    title: str
    tables: tuple[ReproducedTable, ...]
    studies: tuple[StudyResults, ...]
    transfers: tuple[Transfer, ...]
    variants: tuple[VariantStudy, ...]
    sections: tuple[Chapter, ...]
    command: str
    versions: dict[str, str]

    @property
    def counts(self) -> "CellCounts":
        """Number of cells of each kind."""
        return CellCounts.of([cell for table in self.tables for cell in table.cells])

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
        return {"pools": {study.name: study.evaluation.facts() for study in self.studies}, "cells": asdict(self.counts)}


def reproduction(
    studies: Sequence[StudyResults],
    *,
    transfers: Sequence[Transfer] = (),
    variants: Sequence[VariantStudy] = (),
    sections: Sequence[Chapter] = (),
    command: str | None = None,
) -> Reproduction:
    """Fill the paper's tables from the studies.

    Args:
        studies: Studies of pools. One per task is in the paper's column (``Context``), the others in their own columns.
        transfers: Transfer matrices, with sources named as in the paper's table (``MuSR (MB)``) and targets as its
            columns.
        variants: Comparisons of scorers that differ in one setting; each scorer has the name of its study.
        sections: Further findings, such as confounding reports.
        command: Command that reproduces the report. Default: this process's command line.

    Raises:
        PoolError: there is nothing to report, or two studies have the same name.
    """
    if not studies and not transfers:
        raise PoolError("a reproduction needs at least one scored pool or transfer matrix; run the evaluation first")
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise PoolError(f"two studies are named {twice[0]!r}; give every pool a name of its own")
    return Reproduction(
        title="Distributional energy-based models: reproduction",
        tables=tuple(reproduced_tables(studies, transfers, variants)),
        studies=tuple(studies),
        transfers=tuple(transfers),
        variants=tuple(variants),
        sections=tuple(sections),
        command=command_line() if command is None else command,
        versions=versions(),
    )


def write_reproduction(reproduction: Reproduction, run: RunDir) -> str:
    """Write results.json, report.md, report.html and figures/*.svg below ``<run>/reproduction/``. Returns the address
    of report.html."""
    run.write_json(reproduction.to_json(), "reproduction", "results.json")
    return document(reproduction).write(run, "reproduction")


def document(reproduction: Reproduction) -> ReportDocument:
    """Build the report: the paper's tables and figures, comparisons across pools, variants, one chapter per pool, and
    further sections."""
    parts = list[Chapter]()
    if reproduction.transfers:
        parts.append(
            Chapter(
                title="Across pools",
                anchor="across",
                tables=tuple(table for each in reproduction.transfers for table in transfer_tables(each)),
                figures=tuple(map(_transfer_figure, reproduction.transfers)),
            )
        )
    for index, variants in enumerate(reproduction.variants, start=1):
        parts.append(Chapter(title=variants.title, anchor=f"variants-{index}", tables=tuple(variant_tables(variants))))
    parts += [_pool_chapter(study, f"pool-{index}") for index, study in enumerate(reproduction.studies, start=1)]
    parts += [replace(part, anchor=f"section-{index}") for index, part in enumerate(reproduction.sections, start=1)]
    drawn = {part.title: [figure.title for figure in part.figures] for part in parts}
    context = Context(reproduction.studies, reproduction.transfers, reproduction.variants)
    tables_of_paper = Chapter(
        title="The paper's tables",
        anchor="paper",
        paragraphs=(
            "Each cell has the published value and, after the slash or below it, the value measured here, with its "
            "95 % interval over problems and their number n. Numbers in brackets are explained below the table.",
        ),
        tables=tuple(map(paper_table, reproduction.tables)),
    )
    first = Chapter(title="The paper's figures", anchor="figures", tables=(figure_table(context, drawn),))
    warnings = [
        f"{study.name}: {warning}"
        for study in reproduction.studies
        for warning in unread_problems(study.evaluation.texts_read)
    ]
    settings = f"The recipes contain the tables that only state settings: {', '.join(paper().settings)}."
    return ReportDocument(
        title=reproduction.title,
        summary=[*warnings, f"{reproduction.counts.in_words()} {settings}"],
        chapters=[tables_of_paper, first, *parts],
        provenance={
            "command": reproduction.command,
            "versions": ", ".join(f"{name} {version}" for name, version in reproduction.versions.items()),
        },
        has_figure_files=True,
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
    beyond = f", and {counts.beyond_the_paper} cells that the paper does not have" if counts.beyond_the_paper else ""
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
        paragraphs=(*study.notes, lead(study.evaluation), *sentences(study.evaluation), pool_summary(study.evaluation)),
        tables=(*tables(study.evaluation), *study_tables(study)),
        figures=(*figures_of(study.evaluation), *study_figures(study)),
        details=(
            *((row.name, row.description) for row in study.evaluation.rows),
            *provenance(study.evaluation).items(),
            *([("backbone", study.backbone)] if study.backbone else []),
        ),
    )


def _transfer_figure(transfer: Transfer) -> ReportFigure:
    return report_figure(
        transfer_figure(transfer),
        transfer.title,
        "pass@1 in % by mu alone and, in brackets and as colour, the difference from random choice in points: green is "
        "better than chance, pink worse. Framed: the scorer trained on that task; empty: not scored.",
    )
