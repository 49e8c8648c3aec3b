"""Cell of a reproduced table: the published value, and the measured one or the reason for its absence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, TypeVar

import yaml

from raydebm.evaluation.report.document import number, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, WEIGHTED_VOTE, SelectorRow
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.scorers import Transfer, VariantStudy
from raydebm.evaluation.studies.study import StudyResults

Item = TypeVar("Item")
Status = Literal["measured", "not measurable", "needs a key or GPU", "not applicable"]
MIN_PROBLEMS = 30
"""Minimum number of problems for a figure. Figures on fewer are counted separately, and omitted from the transfer
table."""
NEEDED: Status = "needs a key or GPU"
REPAIRED_COLUMNS = ("TACO",)
"""Columns whose published figures are from the repaired scorer (DFR), except in the sweeps over K and N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    published: str | None
    """Published value as printed. None if the paper has none."""
    measured: str | None
    estimate: Estimate | None
    status: Status
    reason: str = ""
    """Reason for a missing value, or difference between its measurement and the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedTable:
    label: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    @property
    def cells(self) -> list[Cell]:
        return [cell for _, cells in self.rows for cell in cells]


@dataclass(frozen=True, slots=True)
class Measured:
    text: str
    estimate: Estimate | None = None
    remark: str = ""


class NoValueError(Exception):
    """Raised if a cell has no measured value, with the reason."""

    def __init__(self, reason: str, status: Status = "not measurable") -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Measured results, assigned to the paper's columns.

    Each column shows the study of its name, else one study of its task and data: the first with a repaired scorer if
    the paper's is repaired, else the first. Other studies have columns of their own.
    """

    studies: Sequence[StudyResults]
    transfers: Sequence[Transfer] = ()
    variants: Sequence[VariantStudy] = ()

    def study(self, column: str) -> StudyResults | None:
        """The study shown in the column."""
        named = next((study for study in self.studies if study.name == column), None)
        if named is not None:
            return named
        studies = self.studies_of(column, repaired=column in REPAIRED_COLUMNS) or self.studies_of(column)
        return studies[0] if studies else None

    def studies_of(self, column: str, *, repaired: bool | None = None) -> list[StudyResults]:
        """Studies of the column's task and data.

        Args:
            repaired: True for repaired scorers only, False for unrepaired ones only. Default: both.
        """
        wanted = paper().tasks.get(column)
        of_task = [study for study in self.studies if wanted is not None and study.task == wanted]
        fits = [paper().fits(column, study.data) for study in of_task]
        best = min((fit for fit in fits if fit is not None), default=None)
        return [
            study
            for study, fit in zip(of_task, fits, strict=True)
            if fit is not None and fit == best and repaired in (None, study.repaired)
        ]

    def needed(self, column: str) -> StudyResults:
        """Same as ``study``. Raises NoValueError without one."""
        return needed(self.study(column), no_pool(column))

    def with_repair(self, column: str, *, repaired: bool) -> list[StudyResults]:
        """Same as ``studies_of``. Raises NoValueError without any."""
        if not self.studies_of(column):
            raise NoValueError(no_pool(column))
        if studies := self.studies_of(column, repaired=repaired):
            return studies
        raise NoValueError(
            "no run with a repaired scorer was given; `raydebm confounding --repair` makes one"
            if repaired
            else "only a repaired scorer was given"
        )

    def before_repair(self, column: str) -> StudyResults | None:
        """Same as ``study`` with an unrepaired scorer if there is one, as in the paper's sweeps."""
        return next(iter(self.studies_of(column, repaired=False)), None) or self.study(column)

    def singles_of(self, column: str) -> list[StudyResults]:
        """Studies of one generator's candidates with unrepaired scorers, in order."""
        return [study for study in self.studies_of(column, repaired=False) if len(study.overview.generators) == 1]

    def on_several_generators(self, column: str, *, size: int | None = None) -> StudyResults | None:
        """Same as ``study`` among studies on several generators' candidates.

        Args:
            size: Preferred number of candidates per problem. Default: any.
        """
        several = [study for study in self.studies if len(study.overview.generators) > 1]
        equal = [study for study in several if study.overview.most == size]
        return Context(equal).study(column) or Context(several).study(column)

    def on_deberta(self, column: str) -> StudyResults:
        """Study of the column's task with a DeBERTa backbone. Raises NoValueError without one."""
        wanted = paper().tasks.get(column)
        for study in self.studies:
            if (study.task == wanted or study.name == column) and "deberta" in study.backbone.lower():
                return study
        raise NoValueError("no scorer with a DeBERTa-v3 backbone was given; its training needs a GPU", NEEDED)

    def extra_columns(self) -> tuple[str, ...]:
        """Names of the studies that are in none of the paper's columns."""
        shown = {id(self.study(column)) for column in paper().benchmarks}
        return tuple(study.name for study in self.studies if id(study) not in shown)


Measure = Callable[[Context, str, str], Measured]
"""Function from (context, row, column) to a measured value. It raises NoValueError without one."""


def needed(item: Item | None, reason: str, status: Status = "not measurable") -> Item:
    """Return the item. Raises NoValueError without one."""
    if item is None:
        raise NoValueError(reason, status)
    return item


def no_pool(column: str) -> str:
    """Reason for an empty cell if the column has no pool."""
    return f"no scored pool of {column} was given"


_WITHOUT = {
    "greedy": "the pool has no separate sample at temperature 0",
    ALL_PASSES: "no second pass was sampled",
    "best generator": "the pool is of one generator",
    **dict.fromkeys((PAPER_RULE, "mu only", WEIGHTED_VOTE), "no candidate has energies"),
}


def without(selector: str) -> str:
    """Reason why an evaluation has no row of a selector."""
    return _WITHOUT.get(selector, f"no {selector} selection in this pool")


def selected(study: StudyResults, selector: str) -> SelectorRow:
    """Row of a selector. Raises NoValueError without one."""
    return needed(study.evaluation.row(selector), without(selector))


def joined(*remarks: str) -> str:
    """Join the remarks that are not empty."""
    return "; ".join(filter(None, remarks))


def measured(estimate: Estimate | None, absent: str, *, remark: str = "", plain: bool = False) -> Measured:
    """Estimate in words.

    Args:
        absent: Reason in the NoValueError if the estimate has no value.
        remark: Difference from the paper's figure.
        plain: Whether the estimate is a plain number instead of a share.
    """
    if estimate is None or estimate.value is None:
        raise NoValueError(absent)
    text = number(estimate) if plain else with_interval(estimate)
    return Measured(f"{text}, n={estimate.n}", estimate, remark)


def by_energy_and_mu(by_energy: Estimate | None, by_mu: Estimate | None, absent: str, *, remark: str = "") -> Measured:
    """Share by E, as in the paper's tables, and by mu, which is independent of constraints."""
    return _both(measured(by_energy, absent, remark=remark), by_mu, "by mu alone {}", "the same by mu alone")


def by_mu_and_energy(by_mu: Estimate, by_energy: Estimate | None, *, remark: str = "") -> Measured:
    """Share by mu, the only possible reading of the paper's cells, and by E with the target's constraints."""
    main = measured(by_mu, "no label", remark=joined("by mu alone", remark))
    return _both(main, by_energy, "by E {}", "the same by E")


def _both(main: Measured, other: Estimate | None, words: str, same: str) -> Measured:
    if other is None or other.value is None:
        return main
    text = same if other == main.estimate else words.format(with_interval(other))
    return Measured(f"{main.text}; {text}", main.estimate, main.remark)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    label: str
    title: str
    tasks: tuple[str, ...] = ()
    """Columns of the benchmarks that its panels show. Empty for a diagram."""
    here: str = ""
    """Title of the same figure in a chapter of a report."""
    otherwise: str = ""
    """Reason to give if a pool does not have it."""
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
