"""Cell of a reproduced table: the published value, and the measured one or the reason for its absence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from raydebm.evaluation.paper.published import paper
from raydebm.evaluation.report.table_cells import number, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, OURS, WEIGHTED_VOTE
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.evaluation.studies.variants import VariantStudy

Status = Literal["measured", "not measurable", "needs a key or GPU", "not applicable"]
MIN_PROBLEMS = 30
"""Minimum number of problems. Figures on fewer problems are counted separately, and transfer figures are not shown."""


REPAIRED_COLUMNS = ("TACO",)
"""Columns whose published figures are from the repaired scorer (DFR), except in the sweeps over K and N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    published: str | None
    """Published value as printed. None if the paper has none."""
    published_value: float | None
    """Published value as a number, shares as fractions. None if it is not a number, such as "56/201"."""
    measured: str | None
    """Measured value, with its interval if it has one."""
    estimate: Estimate | None
    status: Status
    reason: str = ""
    """Reason for a missing value, or difference from the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedTable:
    label: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    @property
    def cells(self) -> list[Cell]:
        """All cells, row by row."""
        return [cell for _, cells in self.rows for cell in cells]


@dataclass(frozen=True, slots=True)
class Measured:
    text: str
    estimate: Estimate | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    reason: str
    status: Status = "not measurable"


Answer = Measured | Absent


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Measured results, assigned to the paper's columns.

    Each column shows one study of its task: the first with a repaired scorer if the paper's is repaired, else the
    first. Other studies have columns of their own.
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

    def before_repair(self, column: str) -> StudyResults | None:
        """Same as ``study`` with an unrepaired scorer if there is one, as in the paper's sweeps."""
        studies = self.studies_of(column, repaired=False)
        return studies[0] if studies else self.study(column)

    def on_one_generator(self, column: str) -> StudyResults | None:
        """A scorer of the column's task that was trained and tested on one generator's candidates."""
        return next(iter(self.singles_of(column)), None)

    def singles_of(self, column: str) -> list[StudyResults]:
        """All scorers trained and tested on one generator's candidates, in order."""
        return [study for study in self.studies_of(column, repaired=False) if len(study.overview.generators) == 1]

    def on_several_generators(self, column: str, *, size: int | None = None) -> StudyResults | None:
        """Same as ``study`` among studies on several generators' candidates.

        Args:
            size: Preferred number of candidates per problem. Default: any.
        """
        several = [study for study in self.studies if len(study.overview.generators) > 1]
        equal = [study for study in several if study.overview.most == size]
        return Context(equal).study(column) or Context(several).study(column)

    def study_with(self, column: str, backbone: str) -> StudyResults | None:
        """A study of the column's task with this word in its backbone's name."""
        wanted = paper().tasks.get(column)
        return next(
            (
                study
                for study in self.studies
                if (study.task == wanted or study.name == column) and backbone in study.backbone.lower()
            ),
            None,
        )

    def extra_columns(self) -> tuple[str, ...]:
        """Names of pools that are in none of the paper's columns."""
        shown = {id(self.study(column)) for column in paper().benchmarks}
        return tuple(study.name for study in self.studies if id(study) not in shown)


Measure = Callable[[Context, str, str], Answer]
"""(context, row, column) -> measured value."""


def no_pool(column: str) -> Absent:
    """Reason for an empty cell if the column has no pool."""
    return Absent(f"no scored pool of {column} was given")


_WITHOUT = {
    "greedy": "the pool has no separate sample at temperature 0",
    ALL_PASSES: "no second pass was drawn",
    "best generator": "the pool is of one generator",
    **dict.fromkeys((OURS, "mu only", WEIGHTED_VOTE), "no candidate has energies"),
}


def without(selector: str) -> str:
    """Reason why an evaluation has no row of a selector."""
    return _WITHOUT.get(selector, f"no {selector} selection in this pool")


def by_energy_and_mu(by_energy: Estimate | None, by_mu: Estimate | None, absent: str, *, remark: str = "") -> Answer:
    """Share by E, as in the paper's tables, and by mu, which is independent of constraints."""
    answer = found_or(by_energy, absent, remark=remark)
    if isinstance(answer, Absent) or by_mu is None or by_mu.value is None:
        return answer
    other = "the same by mu alone" if by_mu == by_energy else f"by mu alone {with_interval(by_mu)}"
    return Measured(f"{answer.text}; {other}", answer.estimate, answer.remark)


def by_mu_and_energy(by_mu: Estimate, by_energy: Estimate | None, *, remark: str = "") -> Answer:
    """Share by mu, the only possible reading of the paper's cells, and by E with the target's constraints."""
    answer = found_or(by_mu, "no label", remark="; ".join(filter(None, ("by mu alone", remark))))
    if isinstance(answer, Absent) or by_energy is None or by_energy.value is None:
        return answer
    other = "the same by E" if by_energy == by_mu else f"by E {with_interval(by_energy)}"
    return Measured(f"{answer.text}; {other}", answer.estimate, answer.remark)


def found_or(estimate: Estimate | None, absent: str, *, remark: str = "", plain: bool = False) -> Answer:
    """Estimate in words, or the reason for an empty cell."""
    if estimate is None or estimate.value is None:
        return Absent(absent)
    text = number(estimate) if plain else with_interval(estimate)
    return Measured(f"{text}, n={estimate.n}", estimate, remark)
