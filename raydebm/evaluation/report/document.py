"""Report of chapters with sentences, tables and figures, as Markdown and as one self-contained HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.figure import Figure

from raydebm.evaluation.report import drawing
from raydebm.evaluation.report.table_cells import Table
from raydebm.run.directory import RunDir

OPENING_FILE = "main_selectors.svg"
"""Figure at the top of report.md, stored next to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """Figure of the page with its caption."""

    title: str
    caption: str
    svg: str


def plate_of(figure: Figure, title: str, caption: str) -> Plate:
    """Convert a figure to a plate with title and caption."""
    return Plate(title=title, caption=caption, svg=drawing.svg_of(figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Part of a report, used for both the page and the Markdown."""

    title: str
    anchor: str = ""
    """Link target in the page's table of contents. Empty: not listed."""
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plates: Sequence[Plate] = ()
    details: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A whole report."""

    title: str
    summary: Sequence[str]
    chapters: Sequence[Chapter]
    opening: Plate | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Command, seeds and versions that reproduce the numbers."""
    has_figure_files: bool = False
    """Whether the Markdown shows the chapters' figures, stored as files next to it."""

    def markdown(self) -> str:
        """The report as GitHub Markdown."""
        parts = [f"# {self.title}"]
        if self.opening is not None:
            parts.append(f"![{OPENING_FILE}]({OPENING_FILE})")
        parts += self.summary
        for chapter in self.chapters:
            part = list(chapter.paragraphs)
            for table in chapter.tables:
                part += [f"### {table.title}", table.caption, markdown_table(table)]
            if self.has_figure_files:
                for number, plate in enumerate(chapter.plates, start=1):
                    picture = f"![{plate.title}](figures/{chapter.anchor}-{number}.svg)"
                    part += [f"### Figure: {plate.title}", picture, plate.caption]
            part.append("\n".join(f"- **{name}**: {value}" for name, value in chapter.details))
            if any(part):
                parts += [f"## {chapter.title}", *part]
        if self.provenance:
            facts = "\n".join(f"- {name}: `{value}`" for name, value in self.provenance.items())
            parts += ["## How these numbers were made", facts]
        return "\n\n".join(part for part in parts if part) + "\n"

    def html(self) -> str:
        """The report as one page without scripts or external resources."""
        return _template().render(document=self)

    def write(self, run: RunDir, stage: str) -> str:
        """Write report.md, its figures and report.html below ``<run>/<stage>/``. Returns the page's address."""
        if self.opening is not None:
            run.write_bytes(self.opening.svg.encode(), stage, OPENING_FILE)
        for chapter in self.chapters if self.has_figure_files else ():
            for number, plate in enumerate(chapter.plates, start=1):
                run.write_bytes(plate.svg.encode(), stage, "figures", f"{chapter.anchor}-{number}.svg")
        run.write_bytes(self.markdown().encode(), stage, "report.md")
        run.write_bytes(self.html().encode(), stage, "report.html")
        return run.uri(stage, "report.html")


def markdown_table(table: Table) -> str:
    """Markdown of the table with its notes, without title and caption."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join(["---", *["---:"] * (len(table.headers) - 1)]) + "|"
    rows = [
        line([f"**{cell}**" if cell else cell for cell in row] if index in table.emphasised else row)
        for index, row in enumerate(table.rows)
    ]
    notes = [f"{number}. {note}" for number, note in enumerate(table.notes, start=1)]
    return "\n".join([line(table.headers), rule, *rows, *([""] if notes else []), *notes])


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("raydebm.evaluation.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
