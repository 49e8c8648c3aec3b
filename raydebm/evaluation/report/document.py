"""A page of sentences, tables and figures, as Markdown and as HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.figure import Figure

from raydebm.evaluation.report import drawing
from raydebm.evaluation.report.table_cells import Table
from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """A figure of the page with its caption."""

    title: str
    caption: str
    svg: str


def plate_of(figure: Figure, title: str, caption: str) -> Plate:
    """A drawn figure with its title and caption."""
    return Plate(title=title, caption=caption, svg=drawing.svg_of(figure))


def markdown_table(table: Table) -> str:
    """The table in GitHub's Markdown, with its caption."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join(["---", *["---:"] * (len(table.headers) - 1)]) + "|"
    rows = [
        line([f"**{cell}**" if cell else cell for cell in row] if index in table.emphasised else row)
        for index, row in enumerate(table.rows)
    ]
    return "\n".join([line(table.headers), rule, *rows])


@cache
def template(name: str) -> Template:
    """A page of ``templates/``."""
    environment = Environment(
        loader=PackageLoader("raydebm.evaluation.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A report of one summary, its tables and its figures."""

    title: str
    summary: str
    tables: Sequence[Table]
    plates: Sequence[Plate] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    """How to make the numbers again: command, seeds, versions."""

    def markdown(self) -> str:
        """Headings, captions and tables, without the figures."""
        parts = [f"# {self.title}", self.summary]
        for table in self.tables:
            parts += [f"## {table.title}", table.caption, markdown_table(table)]
        if self.provenance:
            parts += ["## How these numbers were made"]
            parts.append("\n".join(f"- {name}: `{value}`" for name, value in self.provenance.items()))
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """One self-contained page: no script, nothing loaded from elsewhere."""
        return template("figures_and_tables.html.j2").render(
            title=self.title,
            summary=self.summary,
            plates=self.plates,
            tables=self.tables,
            provenance=list(self.provenance.items()),
        )

    def write(self, run: RunDir, stage: str) -> str:
        """Write report.md and report.html below ``<run>/<stage>/``; returns the page's address."""
        run.write_bytes(self.markdown().encode(), stage, "report.md")
        run.write_bytes(self.html().encode(), stage, "report.html")
        return run.uri(stage, "report.html")
