"""A cell of a reproduced table: the published value, the measured one, or the reason why it is missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from raydebm.evaluation.paper.published import paper
from raydebm.evaluation.report.table_cells import number, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, OURS, WEIGHTED_VOTE
from raydebm.evaluation.selectors.agreement import LEARNED, TEMPERED
from raydebm.evaluation.selectors.learned_vote import GENERATOR_VOTE, LEARNED_VOTE
from raydebm.evaluation.selectors.length_control import CONTROLLED
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.evaluation.studies.variants import VariantStudy

Status = Literal["measured", "not measurable", "needs a key or GPU", "not applicable"]
MIN_PROBLEMS = 30
"""A figure on fewer problems is counted apart, and none of a transfer is shown: its interval says little."""


REPAIRED_COLUMNS = ("TACO",)
"""Where the paper's figures are those of the repaired scorer (DFR), its sweeps over K and N excepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    published: str | None
    """As printed; None where the paper has none."""
    published_value: float | None
    """As a number, shares as fractions; None where it is none, such as "56/201"."""
    measured: str | None
    """With its interval where it has one."""
    estimate: Estimate | None
    status: Status
    reason: str = ""
    """Why it was not measured, or what differs from the paper's."""


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
    """What was measured. One study of a task stands in the paper's column: the first one whose scorer is repaired where
    the paper's is, else the first one. Others get columns of their own."""

    studies: Sequence[StudyResults]
    transfers: Sequence[Transfer] = ()
    variants: Sequence[VariantStudy] = ()

    def study(self, column: str) -> StudyResults | None:
        """The one that stands in the column."""
        named = next((study for study in self.studies if study.name == column), None)
        if named is not None:
            return named
        studies = self.studies_of(column, repaired=column in REPAIRED_COLUMNS) or self.studies_of(column)
        return studies[0] if studies else None

    def studies_of(self, column: str, *, repaired: bool | None = None) -> list[StudyResults]:
        """Studies of the column's task and data, with a repaired scorer, without one, or (None) both."""
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
        """As ``study``, with an unrepaired scorer where there is one: what the paper's sweeps show."""
        studies = self.studies_of(column, repaired=False)
        return studies[0] if studies else self.study(column)

    def on_one_generator(self, column: str) -> StudyResults | None:
        """A scorer of the column's task that was trained, and is tested, on one generator's candidates."""
        return next(iter(self.singles_of(column)), None)

    def singles_of(self, column: str) -> list[StudyResults]:
        """All of those, as they were trained."""
        return [study for study in self.studies_of(column, repaired=False) if len(study.overview.generators) == 1]

    def on_several_generators(self, column: str, *, size: int | None = None) -> StudyResults | None:
        """As ``study``, among those on several generators' candidates.

        Args:
            size: those with so many candidates per problem come first; None: whatever their size.
        """
        several = [study for study in self.studies if len(study.overview.generators) > 1]
        equal = [study for study in several if study.overview.most == size]
        return Context(equal).study(column) or Context(several).study(column)

    def study_with(self, column: str, backbone: str) -> StudyResults | None:
        """A study of the column's task whose scorer's backbone has this word in its name."""
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
        """Pools that stand in none of the paper's columns."""
        shown = {id(self.study(column)) for column in paper().benchmarks}
        return tuple(study.name for study in self.studies if id(study) not in shown)


Measure = Callable[[Context, str, str], Answer]
"""(context, row, column) -> what was measured there."""


def no_pool(column: str) -> Absent:
    """Why a cell is empty where no pool of the column was given."""
    return Absent(f"no scored pool of {column} was given")


_WITHOUT = {
    "greedy": "the pool has no separate sample at temperature 0",
    ALL_PASSES: "no second pass was drawn",
    "best generator": "the pool is of one generator",
    GENERATOR_VOTE: "needs several generators and labelled problems outside the test",
    **dict.fromkeys((OURS, "mu only", WEIGHTED_VOTE), "no candidate has energies"),
    **dict.fromkeys((CONTROLLED, TEMPERED, LEARNED_VOTE, LEARNED), "needs energies and labelled validation problems"),
}


def without(selector: str) -> str:
    """Why an evaluation has no row of a selector."""
    return _WITHOUT.get(selector, f"no {selector} selection in this pool")


def by_energy_and_mu(by_energy: Estimate | None, by_mu: Estimate | None, absent: str, *, remark: str = "") -> Answer:
    """A share by E, which the paper's tables show, and by mu alone, which no constraint changes."""
    answer = found_or(by_energy, absent, remark=remark)
    if isinstance(answer, Absent) or by_mu is None or by_mu.value is None:
        return answer
    other = "the same by mu alone" if by_mu == by_energy else f"by mu alone {with_interval(by_mu)}"
    return Measured(f"{answer.text}; {other}", answer.estimate, answer.remark)


def by_mu_and_energy(by_mu: Estimate, by_energy: Estimate | None, *, remark: str = "") -> Answer:
    """By mu alone, as the paper's cells can only be, and by E with the target's constraints."""
    answer = found_or(by_mu, "no label", remark="; ".join(filter(None, ("by mu alone", remark))))
    if isinstance(answer, Absent) or by_energy is None or by_energy.value is None:
        return answer
    other = "the same by E" if by_energy == by_mu else f"by E {with_interval(by_energy)}"
    return Measured(f"{answer.text}; {other}", answer.estimate, answer.remark)


def found_or(estimate: Estimate | None, absent: str, *, remark: str = "", plain: bool = False) -> Answer:
    """The estimate in words, or the reason why the cell is empty."""
    if estimate is None or estimate.value is None:
        return Absent(absent)
    text = number(estimate) if plain else with_interval(estimate)
    return Measured(f"{text}, n={estimate.n}", estimate, remark)
