"""Reproduction as data: studies of any tasks and pools, and the paper's tables filled from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from raydebm.errors import PoolError
from raydebm.evaluation.paper.paper_cells import MIN_PROBLEMS, Cell, ReproducedTable
from raydebm.evaluation.paper.paper_tables import reproduced_tables
from raydebm.evaluation.report.table_cells import Table
from raydebm.evaluation.stats.json_results import JsonResults, command_line, versions
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.evaluation.studies.variants import VariantStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """Authors of the selections by scorer, such as before and after a repair."""

    title: str
    shares: dict[str, dict[str, float]]
    """Share of the selections: scorer -> generator -> share."""
    share_of_correct: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionSection:
    """Further findings as text and tables, such as a confounding report."""

    title: str
    text: str
    tables: tuple[Table, ...] = ()
    picks: tuple[Picks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    """Counts of cells with a published value, and of cells that only this project has."""

    published: int
    measured: int
    """Cells with a published and a measured value."""
    on_few_problems: int
    """Measured cells on fewer than ``MIN_PROBLEMS`` problems."""
    not_measurable: int
    needs_key_or_gpu: int
    beyond_the_paper: int
    """Measured cells without a published value. Not included in the other counts."""

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "CellCounts":
        """Count the cells."""
        published = [cell for cell in cells if cell.published is not None]
        statuses = Counter(cell.status for cell in published)
        few = [cell for cell in published if cell.estimate is not None and cell.estimate.n < MIN_PROBLEMS]
        return cls(
            published=len(published),
            measured=statuses["measured"],
            on_few_problems=len(few),
            not_measurable=statuses["not measurable"],
            needs_key_or_gpu=statuses["needs a key or GPU"],
            beyond_the_paper=sum(cell.published is None and cell.status == "measured" for cell in cells),
        )

    def in_words(self) -> str:
        """Two sentences: the paper's cells, and the additional ones."""
        return (
            f"{self.measured} of the paper's {self.published} cells are measured here ({self.on_few_problems} of them "
            f"on fewer than {MIN_PROBLEMS} problems), {self.not_measurable} are not measurable with these runs, and "
            f"{self.needs_key_or_gpu} need a key or a GPU. Rows and columns that the paper does not have hold "
            f"{self.beyond_the_paper} more figures."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(JsonResults):
    """Contents of the report, as data."""

    KIND: ClassVar[str] = "a reproduction"

    title: str
    tables: tuple[ReproducedTable, ...]
    studies: tuple[StudyResults, ...]
    transfers: tuple[Transfer, ...]
    variants: tuple[VariantStudy, ...]
    sections: tuple[ReproductionSection, ...]
    command: str
    versions: dict[str, str]

    @property
    def counts(self) -> "CellCounts":
        """Number of cells of each kind."""
        return CellCounts.of([cell for table in self.tables for cell in table.cells])

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
        return {
            "pools": {study.name: study.evaluation.facts() for study in self.studies},
            "cells": asdict(self.counts),
        }


def reproduction(
    studies: Sequence[StudyResults],
    *,
    transfers: Sequence[Transfer] = (),
    variants: Sequence[VariantStudy] = (),
    sections: Sequence[ReproductionSection] = (),
    command: str | None = None,
) -> Reproduction:
    """Fill the paper's tables from the studies.

    Args:
        studies: Studies of pools. The first one of a task is in the paper's column, the others in columns of their own.
        transfers: Transfer matrices, with sources named as in the paper's table (``MuSR (MB)``) and targets as its
            columns.
        variants: Scorers that differ in one setting, named as the studies are.
        sections: Further findings, such as confounding reports with the picks before and after a repair.
        command: Command that reproduces the report. Default: this process's command line.

    Raises:
        PoolError: there is nothing to report, or two studies have the same name.
    """
    if not studies and not transfers:
        raise PoolError("a reproduction needs at least one scored pool or transfer matrix; run the evaluation first")
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise PoolError(f"two studies are named {twice[0]!r}; give every pool a name of its own")
    return Reproduction(
        title="Distributional energy-based models: reproduction",
        tables=tuple(reproduced_tables(studies, transfers, variants)),
        studies=tuple(studies),
        transfers=tuple(transfers),
        variants=tuple(variants),
        sections=tuple(sections),
        command=command_line() if command is None else command,
        versions=versions(),
    )
