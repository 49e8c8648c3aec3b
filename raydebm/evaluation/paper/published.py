"""Published figures of the paper's tables, for comparison with measured ones.

``published.yaml`` has them as printed ("--" where the paper has none), and ``share_of`` converts them to numbers.
Labels are those of the paper's source. Tables with settings only (generators, backbones, training) are recipes here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    label: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, one cell per column)."""
    note: str = ""

    def cell(self, row: str, column: str) -> str | None:
        """Cell as printed. None if the paper has none."""
        cells = dict(self.rows).get(row)
        if cells is None or column not in self.columns:
            return None
        text = cells[self.columns.index(column)]
        return None if text == "--" else text


def share_of(cell: str | None) -> float | None:
    """ "97.0%" -> 0.97, "0.046" -> 0.046, "+6.0 pp" -> 0.06. None if it is not a number."""
    if cell is None:
        return None
    text = cell.replace(" pp", "%").strip()
    scale = 100.0 if text.endswith("%") else 1.0
    try:
        return float(text.rstrip("%")) / scale
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    label: str
    title: str
    tasks: tuple[str, ...] = ()
    """Tasks of its panels. Empty for a diagram."""
    here: str = ""
    """Title of the same figure in a chapter of a report."""
    otherwise: str = ""
    """Reason why a pool may not have it."""
    before_repair: bool = False
    """Whether it shows a scorer before its repair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    tables: dict[str, PublishedTable]
    """Tables by label, in order of the paper's sections."""
    tasks: dict[str, str]
    """Name of the task by column or row name."""
    benchmarks: tuple[str, ...]
    """Columns of a table of results over all benchmarks."""
    other_data: dict[str, tuple[str, ...]]
    """Words in the names of other benchmarks of the task, by column. If the column's own benchmark has no candidates,
    the first other one replaces it; the rest have columns of their own."""
    figures: tuple[PublishedFigure, ...]
    settings: dict[str, str]
    """Tables without results, by label, with the equivalent settings of a recipe."""

    def fits(self, column: str, data: str) -> int | None:
        """Fit of data to a column: 0 for its own benchmark, 1 for a replacement, None for no fit.

        Args:
            column: Key of ``tasks``.
            data: File or folder of a pool of the column's task. Empty for the task's default.
        """
        own_task = self.tasks.get(column)
        words = next((words for name, words in self.other_data.items() if self.tasks[name] == own_task), ())
        place = next((place for place, word in enumerate(words) if word in data.lower()), None)
        return 0 if place is None else 1 if place == 0 else None


@cache
def paper() -> Paper:
    """Read the paper's figures from ``published.yaml``."""
    published = yaml.safe_load(
        resources.files("raydebm.evaluation.paper").joinpath("published.yaml").read_text("utf-8")
    )
    tables = [_table(entry) for entry in published["tables"]]
    return Paper(
        tables={table.label: table for table in tables},
        tasks=published["tasks"],
        benchmarks=tuple(published["benchmarks"]),
        other_data={name: tuple(words) for name, words in published["other_data"].items()},
        figures=tuple(
            PublishedFigure(**{**entry, "tasks": tuple(entry.get("tasks", ()))}) for entry in published["figures"]
        ),
        settings=published["settings"],
    )


def _table(entry: Mapping[str, str]) -> PublishedTable:
    rows = [_cells(line) for line in entry["rows"].splitlines()]
    return PublishedTable(
        label=entry["label"],
        title=entry["title"],
        columns=tuple(_cells(entry["columns"])),
        rows=tuple((cells[0], tuple(cells[1:])) for cells in rows),
        note=entry.get("note", ""),
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]
