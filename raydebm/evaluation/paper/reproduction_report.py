"""The report of a reproduction: the paper's tables next to ours, then every pool with its tables and figures.

In:   a ``Reproduction``.
Out:  report.html (self-contained), report.md with its figures in a folder, results.json with the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raydebm.evaluation.paper.paper_cells import Context
from raydebm.evaluation.paper.paper_figures import figure_table
from raydebm.evaluation.paper.published import paper
from raydebm.evaluation.paper.reproduction import Picks, Reproduction
from raydebm.evaluation.paper.reproduction_tables import PaperTable, headline, overview_of, paper_table
from raydebm.evaluation.report import study_figures
from raydebm.evaluation.report.document import (
    Plate,
    markdown_table,
    plate_of,
    template,
)
from raydebm.evaluation.report.evaluation_report import provenance, summary
from raydebm.evaluation.report.evaluation_tables import tables
from raydebm.evaluation.report.headline import unread_problems
from raydebm.evaluation.report.study_plates import study_plates
from raydebm.evaluation.report.study_tables import study_tables
from raydebm.evaluation.report.table_cells import Table
from raydebm.evaluation.report.transfer_tables import transfer_tables
from raydebm.evaluation.report.variant_tables import variant_tables
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.run.directory import RunDir

Training = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Study's name -> adapter -> contents of its training.json."""


def _transfer_plate(transfer: Transfer) -> Plate:
    return plate_of(
        study_figures.transfer_figure(transfer),
        transfer.title,
        "pass@1 in % by mu alone and, in brackets and as colour, the difference to random choice in points: green is "
        "better than chance, pink worse. Framed: the scorer trained on that task; empty: not scored.",
    )


def _picks_plate(picks: Picks) -> Plate:
    return plate_of(
        study_figures.pick_figure(picks.shares, share_of_correct=picks.share_of_correct),
        picks.title,
        "Share of the selections by generator, for each scorer, and its share of the correct candidates. A scorer "
        "that knows answers and not authors follows the latter.",
    )


def _markdown_paper_table(table: PaperTable) -> str:
    def cell(texts: tuple[str, str, str, str]) -> str:
        published, measured, _, reason = texts
        return f"{published} / {measured}" + (f" ({reason})" if reason else "")

    shown = Table(
        title=table.title,
        caption="",
        headers=("published / here", *table.headers),
        rows=tuple((name, *(cell(texts) for texts in cells)) for name, cells in table.rows),
    )
    reasons = "\n".join(f"{index}. {reason}" for index, reason in enumerate(table.reasons, start=1))
    return "\n\n".join(part for part in (markdown_table(shown), reasons) if part)


def _opening(reproduction: Reproduction) -> str:
    warnings = [
        f"{study.name}: {warning}"
        for study in reproduction.studies
        for warning in unread_problems(study.evaluation.texts_read)
    ]
    settings = ", ".join(paper().settings)
    cells = f"{reproduction.counts.in_words()} Tables that only state settings are recipes: {settings}."
    return " ".join([*warnings, cells])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A part of the report after the paper's tables; the page and the Markdown are made from the same ones."""

    title: str
    anchor: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...]
    plates: tuple[Plate, ...]
    details: tuple[tuple[str, str], ...] = ()


def chapters(reproduction: Reproduction, training: Training | None = None) -> list[Chapter]:
    """Where the paper's figures are, then across pools, variants, one chapter per pool, and the further sections."""
    parts = list[Chapter]()
    if reproduction.transfers:
        parts.append(
            Chapter(
                title="Across pools",
                anchor="across",
                paragraphs=(),
                tables=tuple(table for each in reproduction.transfers for table in transfer_tables(each)),
                plates=tuple(map(_transfer_plate, reproduction.transfers)),
            )
        )
    for index, variants in enumerate(reproduction.variants, start=1):
        parts.append(
            Chapter(
                title=variants.title,
                anchor=f"variants-{index}",
                paragraphs=(),
                tables=tuple(variant_tables(variants)),
                plates=(),
            )
        )
    for index, study in enumerate(reproduction.studies, start=1):
        named = [("backbone", study.backbone)] if study.backbone else []
        parts.append(
            Chapter(
                title=study.name,
                anchor=f"pool-{index}",
                paragraphs=(*study.notes, summary(study.evaluation)),
                tables=(headline(study), *tables(study.evaluation), *study_tables(study)),
                plates=tuple(study_plates(study, training=(training or {}).get(study.name))),
                details=(
                    *((row.name, row.description) for row in study.evaluation.rows),
                    *provenance(study.evaluation),
                    *named,
                ),
            )
        )
    for index, section in enumerate(reproduction.sections, start=1):
        parts.append(
            Chapter(
                title=section.title,
                anchor=f"section-{index}",
                paragraphs=(section.text,),
                tables=section.tables,
                plates=tuple(map(_picks_plate, section.picks)),
            )
        )
    drawn = {part.title: [plate.title for plate in part.plates] for part in parts}
    figures = figure_table(Context(reproduction.studies, reproduction.transfers, reproduction.variants), drawn)
    first = Chapter(title="The paper's figures", anchor="figures", paragraphs=(), tables=(figures,), plates=())
    return [first, *parts]


def render_markdown(reproduction: Reproduction, parts: Sequence[Chapter], *, figures: str | None = "figures") -> str:
    """The report as Markdown, with links to ``<figures>/<chapter>-<number>.svg``; None leaves them out."""
    text = [f"# {reproduction.title}", _opening(reproduction)]
    if reproduction.studies:
        overview = overview_of(reproduction)
        text += [overview.caption, markdown_table(overview)]
    text += ["## The paper's tables", "Published / measured here; numbers in brackets are explained below each table."]
    for table_of_paper in map(paper_table, reproduction.tables):
        text += [f"### {table_of_paper.title} ({table_of_paper.label})", table_of_paper.note]
        text.append(_markdown_paper_table(table_of_paper))
    for part in parts:
        text += [f"## {part.title}", *part.paragraphs]
        for table in part.tables:
            text += [f"### {table.title}", table.caption, markdown_table(table)]
        for index, plate in enumerate(part.plates, start=1):
            if figures is not None:
                address = f"{figures}/{part.anchor}-{index}.svg"
                text += [f"### Figure: {plate.title}", f"![{plate.title}]({address})", plate.caption]
        text.append("\n".join(f"- {name}: {value}" for name, value in part.details))
    text.append(f"Command: `{reproduction.command}`")
    return "\n\n".join(paragraph for paragraph in text if paragraph) + "\n"


def render_html(reproduction: Reproduction, parts: Sequence[Chapter]) -> str:
    """One self-contained page: no script, nothing loaded from elsewhere."""
    return template("reproduction.html.j2").render(
        reproduction=reproduction,
        opening=_opening(reproduction),
        overview=overview_of(reproduction) if reproduction.studies else None,
        paper_tables=[paper_table(table) for table in reproduction.tables],
        chapters=parts,
        versions=", ".join(f"{name} {version}" for name, version in reproduction.versions.items()),
    )


def write_reproduction(
    reproduction: Reproduction, run: RunDir, stage: str = "reproduction", *, training: Training | None = None
) -> tuple[str, ...]:
    """Write results.json, report.md, report.html and figures/*.svg below ``<run>/<stage>/``; returns the addresses.

    Args:
        reproduction: the numbers.
        run: where.
        stage: folder of the run.
        training: by the study's name, the contents of training.json by adapter, for training curves.
    """
    parts = chapters(reproduction, training)
    for part in parts:
        for index, plate in enumerate(part.plates, start=1):
            run.write_bytes(plate.svg.encode(), stage, "figures", f"{part.anchor}-{index}.svg")
    run.write_json(reproduction.to_json(), stage, "results.json")
    run.write_bytes(render_markdown(reproduction, parts).encode(), stage, "report.md")
    run.write_bytes(render_html(reproduction, parts).encode(), stage, "report.html")
    return tuple(run.uri(stage, name) for name in ("results.json", "report.md", "report.html"))
