"""Reports of confounding and of repairs as documents: Markdown, JSON, and one self-contained HTML page.

In:   a ``ConfoundingReport`` or a ``RepairReport``.
Out:  files below a run directory, all with the same numbers.
Does not know: how the numbers were made.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from raydebm.evaluation.confounding import Screen
from raydebm.evaluation.report import Plate, markdown_table, plate_of, template
from raydebm.evaluation.study_figures import energies_by_generator_figure, pick_figure
from raydebm.evaluation.table_cells import Table
from raydebm.run.directory import RunDir


class Report(Protocol):
    """What both reports offer."""

    @property
    def title(self) -> str: ...
    def summary(self) -> str: ...
    def tables(self) -> list[Table]: ...
    def screens(self) -> Mapping[str, Screen]: ...
    def to_json(self) -> dict[str, Any]: ...


def pick_plate(screens: Mapping[str, Screen]) -> Plate | None:
    """The picks of each scorer beside the share of correct answers; None where nothing was picked."""
    shares = {
        name: {row.generator: row.pick_share.value for row in found.generators if row.pick_share.value is not None}
        for name, found in screens.items()
    }
    correct = {
        row.generator: row.correct_share.value
        for found in screens.values()
        for row in found.generators
        if row.correct_share.value is not None
    }
    if not correct or not any(shares.values()):
        return None
    caption = (
        "Whose candidates are picked, beside each generator's share of the correct candidates (means over problems). "
        "Bars of one length: correctness explains the picks. A long bar of picks beside a short grey one: a favourite."
    )
    return plate_of(pick_figure(shares, share_of_correct=correct), "Picks by generator", caption)


def energies_plate(screens: Mapping[str, Screen]) -> Plate | None:
    """Mean energies of each generator's answers; None without any energy."""
    known = (row.energy_correct.value for found in screens.values() for row in found.generators)
    if all(value is None for value in known):
        return None
    caption = (
        "Mean energy of each generator's correct (circles) and incorrect answers (crosses); lines: 95 % intervals. A "
        "scorer that reads answers has all circles left of all crosses. Where circle and cross of one generator lie "
        "together and the generators apart, it reads authors."
    )
    titles = {name.removeprefix("picked "): found for name, found in screens.items()}
    return plate_of(energies_by_generator_figure(titles), "Energies by generator", caption)


def plates(report: Report) -> list[Plate]:
    """The figures that have something to show."""
    screens = report.screens()
    return [plate for plate in (pick_plate(screens), energies_plate(screens)) if plate is not None]


def render_markdown(report: Report) -> str:
    parts = [f"# {report.title}", report.summary()]
    for table in report.tables():
        parts += [f"## {table.title}", table.caption, markdown_table(table)]
    return "\n\n".join(parts) + "\n"


def render_html(report: Report, *, provenance: Mapping[str, str]) -> str:
    """One self-contained page: no script, nothing loaded from elsewhere."""
    return template("figures_and_tables.html.j2").render(
        title=report.title,
        summary=report.summary(),
        tables=report.tables(),
        plates=plates(report),
        provenance=list(provenance.items()),
    )


def write_report(
    report: Report, run: RunDir, stage: str = "confounding", *, provenance: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Write metrics.json, report.md and report.html below ``<run>/<stage>/``; returns their addresses.

    Args:
        provenance: how to make the numbers again: command, seeds, versions.
    """
    facts = dict(provenance or {})
    run.write_json(report.to_json() | {"provenance": facts}, stage, "metrics.json")
    run.write_bytes(render_markdown(report).encode(), stage, "report.md")
    run.write_bytes(render_html(report, provenance=facts).encode(), stage, "report.html")
    return tuple(run.uri(stage, name) for name in ("metrics.json", "report.md", "report.html"))
