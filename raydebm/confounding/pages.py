"""Reports of confounding and of repairs as documents: Markdown, JSON, and one self-contained HTML page.

In:   a ``ConfoundingReport`` or a ``RepairReport``.
Out:  files below a run directory, all with the same numbers.
Does not know: how the numbers were made.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from matplotlib.figure import Figure

from raydebm.confounding.screen import Screen
from raydebm.evaluation.report.document import Plate, ReportDocument, plate_of
from raydebm.evaluation.report.drawing import (
    BLUE,
    RED,
    percent_of,
    tidy,
)
from raydebm.evaluation.report.study_figures import pick_figure, short_name
from raydebm.evaluation.report.table_cells import Table
from raydebm.run.directory import RunDir


class ReportPage(Protocol):
    """What both reports offer."""

    @property
    def title(self) -> str:
        """Heading of the page."""
        ...

    def summary(self) -> str:
        """The finding in a few sentences."""
        ...

    def tables(self) -> list[Table]:
        """Tables in the order of the page."""
        ...

    def screens(self) -> Mapping[str, Screen]:
        """The screens whose energies are drawn, by name."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Everything that the page shows, as JSON values."""
        ...


def pick_plate(screens: Mapping[str, Screen]) -> Plate | None:
    """The picks of each scorer and the share of correct answers; None where nothing was picked."""
    shares = {
        name: {row.generator: row.pick_share.value for row in screen.generators if row.pick_share.value is not None}
        for name, screen in screens.items()
    }
    correct = {
        row.generator: row.correct_share.value
        for screen in screens.values()
        for row in screen.generators
        if row.correct_share.value is not None
    }
    if not correct or not any(shares.values()):
        return None
    caption = (
        "Whose candidates are picked, and each generator's share of the correct candidates (means over problems). "
        "Bars of one length: correctness explains the picks. A long bar of picks above a short grey one: a favourite."
    )
    return plate_of(pick_figure(shares, share_of_correct=correct), "Picks by generator", caption)


def _energies_plate(screens: Mapping[str, Screen]) -> Plate | None:
    """Mean energies of each generator's answers; None without any energy."""
    known = (row.energy_correct.value for screen in screens.values() for row in screen.generators)
    if all(value is None for value in known):
        return None
    caption = (
        "Mean energy of each generator's correct (circles) and incorrect answers (crosses); lines: 95 % intervals. A "
        "scorer that reads answers has all circles left of all crosses. Where circle and cross of one generator lie "
        "together and the generators apart, it reads authors."
    )
    titles = {name.removeprefix("picked "): screen for name, screen in screens.items()}
    return plate_of(_energies_by_generator_figure(titles), "Energies by generator", caption)


def plates(report: ReportPage) -> list[Plate]:
    """The figures that have something to show."""
    screens = report.screens()
    return [plate for plate in (pick_plate(screens), _energies_plate(screens)) if plate is not None]


def document(report: ReportPage, *, provenance: Mapping[str, str] | None = None) -> ReportDocument:
    """The report's summary, tables and figures.

    Args:
        provenance: how to make the numbers again: command, seeds, versions.
    """
    return ReportDocument(
        title=report.title,
        summary=report.summary(),
        tables=report.tables(),
        plates=plates(report),
        provenance=provenance or {},
    )


def write_report(
    report: ReportPage, run: RunDir, stage: str = "confounding", *, provenance: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Write metrics.json, report.md and report.html below ``<run>/<stage>/``; returns their addresses."""
    run.write_json(report.to_json() | {"provenance": dict(provenance or {})}, stage, "metrics.json")
    document(report, provenance=provenance).write(run, stage)
    return tuple(run.uri(stage, name) for name in ("metrics.json", "report.md", "report.html"))


def _energies_by_generator_figure(screens: Mapping[str, Screen]) -> Figure:
    """Mean mu of each generator's correct and incorrect answers with intervals; a panel per scorer."""
    names = [row.generator for row in next(iter(screens.values())).generators]
    figure = Figure(figsize=(1.6 + 3.9 * len(screens), 1.7 + 0.42 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(screens), squeeze=False, sharey=True).ravel()
    for axes, (title, screen) in zip(panels, screens.items(), strict=True):
        tidy(axes)
        rows = {row.generator: row for row in screen.generators}
        for offset, label, colour, mark in ((-0.14, "correct", BLUE, "o"), (0.14, "incorrect", RED, "x")):
            for place, name in enumerate(names):
                row = rows.get(name)
                energy = None if row is None else row.energy_correct if mark == "o" else row.energy_incorrect
                span = None if energy is None else percent_of(energy)
                if span is not None:
                    value, low, high = (part / 100 for part in span)
                    height = place + offset
                    axes.plot([low, high], [height, height], color=colour, linewidth=1.2)
                    axes.plot(value, height, color=colour, marker=mark, markersize=6, linestyle="none")
            axes.plot([], [], color=colour, marker=mark, linestyle="none", label=label)
        axes.set_title(title if len(screens) > 1 else "", fontsize=9)
        axes.set_xlabel("mean mu (lower is better)")
        axes.set_yticks(range(len(names)), [short_name(name) for name in names], fontsize=8)
        axes.set_ylim(len(names) - 0.5, -0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return figure
