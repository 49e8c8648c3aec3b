"""Report of chapters with sentences, tables and figures, as Markdown and as one self-contained HTML page."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.figure import Figure

from raydebm.evaluation.certainty.reliability import CalibrationError
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.run.directory import RunDir

Row = TypeVar("Row")
Cell = str | int | Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table of text cells. Every row has as many cells as ``headers``."""

    title: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    emphasised: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    is_folded: bool = False
    """Whether a page shows only the title until the reader opens it."""


def table_of(
    title: str,
    caption: str,
    rows: Iterable[Row],
    columns: Mapping[str, Callable[[Row], Cell]],
    *,
    emphasised: Callable[[Row], bool] = lambda row: False,
) -> Table:
    """Build a table with a row per item and a column per header.

    Args:
        columns: Function from an item to its cell, by header. An ``Estimate`` is shown as a share in per cent with its
            interval.
    """
    rows = list(rows)
    return Table(
        title=title,
        caption=caption,
        headers=tuple(columns),
        rows=tuple(tuple(text_of(cell(row)) for cell in columns.values()) for row in rows),
        emphasised=tuple(index for index, row in enumerate(rows) if emphasised(row)),
    )


def facts_table(title: str, caption: str, facts: Iterable[tuple[str, Cell]]) -> Table:
    """Table of names and values."""
    return table_of(title, caption, facts, {"what": lambda fact: fact[0], "value": lambda fact: fact[1]})


def text_of(cell: Cell) -> str:
    """Cell as text; ``-`` for None."""
    if isinstance(cell, Estimate):
        return with_interval(cell)
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:,}"


def decimal(value: float | None, digits: int = 3, *, scale: float = 1.0) -> str:
    """Number without an interval, or ``-``."""
    return "-" if value is None else f"{scale * value:,.{digits}f}"


def percent(estimate: Estimate) -> str:
    """Share in per cent, or ``-``."""
    return decimal(estimate.value, 1, scale=100)


def with_interval(estimate: Estimate, *, scale: float = 100, digits: int = 1, sign: str = "") -> str:
    """Share in per cent with its interval (``[n/a]`` without one), or ``-`` without a value."""
    if estimate.value is None:
        return "-"
    bounds = "n/a"
    if estimate.low is not None and estimate.high is not None:
        bounds = f"{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}"
    return f"{scale * estimate.value:{sign}.{digits}f} [{bounds}]"


def number(estimate: Estimate, *, digits: int = 3, signed: bool = False) -> str:
    """Plain number with its interval, and with its sign if ``signed``."""
    return with_interval(estimate, scale=1, digits=digits, sign="+" if signed else "")


def points(estimate: Estimate) -> str:
    """Difference of shares in percentage points, with its sign and interval."""
    return with_interval(estimate, sign="+")


def ece_cells(error: CalibrationError) -> tuple[str, str]:
    """Calibration error, and its value under perfect calibration."""
    if error.perfect is None or error.perfect_high is None:
        return decimal(error.value), "-"
    return decimal(error.value), f"{error.perfect:.3f}, at most {error.perfect_high:.3f}"


def ece_in_words(error: CalibrationError) -> str:
    """Calibration error with its n and, if known, its value under perfect calibration."""
    value, perfect = ece_cells(error)
    if perfect == "-":
        return f"{value} (n={error.n})"
    return f"{value} (a perfectly calibrated one: {perfect} with 95 % chance, n={error.n})"


OPENING_FILE = "main_selectors.svg"
"""Figure at the top of report.md, stored next to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    title: str
    caption: str
    svg: str


def svg_of(figure: Figure) -> str:
    """The figure as an ``<svg>`` element. Deterministic."""
    sink = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "raydebm", "svg.fonttype": "path"}):
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def report_figure(figure: Figure, title: str, caption: str) -> ReportFigure:
    return ReportFigure(title=title, caption=caption, svg=svg_of(figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Part of a report, used for both the page and the Markdown."""

    title: str
    anchor: str = ""
    """Link target in the page's table of contents. Empty if the chapter is not listed."""
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[ReportFigure, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    is_folded: bool = False
    """Whether a page shows only the title until the reader opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    title: str
    lead: str = ""
    """First sentence, in bold."""
    facts: Sequence[tuple[str, str]] = ()
    summary: Sequence[str]
    chapters: Sequence[Chapter]
    opening: ReportFigure | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Command, seeds and versions that reproduce the numbers."""
    has_figure_files: bool = False
    """Whether the Markdown shows the chapters' figures, stored as files next to it."""

    def markdown(self) -> str:
        """The report as GitHub Markdown."""
        parts = [f"# {self.title}", f"**{self.lead}**" if self.lead else "", _listed(self.facts), *self.summary]
        if self.opening is not None:
            parts += [f"![{OPENING_FILE}]({OPENING_FILE})", self.opening.caption]
        for chapter in self.chapters:
            part = list(chapter.paragraphs)
            for table in chapter.tables:
                part += ["" if chapter.is_folded else f"### {table.title}", table.caption, markdown_table(table)]
            if self.has_figure_files:
                for number, figure in enumerate(chapter.figures, start=1):
                    picture = f"![{figure.title}](figures/{chapter.anchor}-{number}.svg)"
                    part += [f"### Figure: {figure.title}", picture, figure.caption]
            part.append(_listed(chapter.details))
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
        """Write report.md, its figures and report.html below ``<run>/<stage>/``. Returns the address of report.html."""
        if self.opening is not None:
            run.write_bytes(self.opening.svg.encode(), stage, OPENING_FILE)
        for chapter in self.chapters if self.has_figure_files else ():
            for number, figure in enumerate(chapter.figures, start=1):
                run.write_bytes(figure.svg.encode(), stage, "figures", f"{chapter.anchor}-{number}.svg")
        run.write_bytes(self.markdown().encode(), stage, "report.md")
        run.write_bytes(self.html().encode(), stage, "report.html")
        return run.uri(stage, "report.html")


def _listed(facts: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- **{name}**: {value}" for name, value in facts)


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
