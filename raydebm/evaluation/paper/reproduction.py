"""A reproduction as data: studies of any tasks and pools, and the paper's tables filled from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from raydebm.errors import PoolError
from raydebm.evaluation.paper.paper_cells import STATUSES, ReproducedTable
from raydebm.evaluation.paper.paper_tables import reproduced_tables
from raydebm.evaluation.provenance import command_line, versions
from raydebm.evaluation.report.table_cells import Table
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import Transfer
from raydebm.evaluation.studies.variants import VariantStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """Who wrote the selections, by scorer, such as before and after a repair."""

    title: str
    shares: dict[str, dict[str, float]]
    """scorer -> generator -> share of the selections."""
    share_of_correct: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionSection:
    """Further findings as text and tables, such as a confounding report; shown as it is."""

    title: str
    text: str
    tables: tuple[Table, ...] = ()
    picks: tuple[Picks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(JsonResults):
    """Everything the report says, as data."""

    KIND: ClassVar[str] = "a reproduction"

    title: str
    tables: tuple[ReproducedTable, ...]
    studies: tuple[StudyResults, ...]
    transfers: tuple[Transfer, ...]
    variants: tuple[VariantStudy, ...]
    sections: tuple[ReproductionSection, ...]
    command: str
    versions: dict[str, str]

    def count(self, status: str) -> int:
        """Cells of all tables with this status."""
        return sum(cell.status == status for table in self.tables for _, cells in table.rows for cell in cells)

    def facts(self) -> dict[str, Any]:
        """The few numbers to show and to keep in a manifest."""
        return {
            "pools": {study.name: study.evaluation.facts() for study in self.studies},
            "cells": {status: self.count(status) for status in STATUSES},
        }


def reproduction(
    studies: Sequence[StudyResults],
    *,
    transfers: Sequence[Transfer] = (),
    variants: Sequence[VariantStudy] = (),
    sections: Sequence[ReproductionSection] = (),
    title: str = "Distributional energy-based models: reproduction",
    command: str | None = None,
) -> Reproduction:
    """Put the studies into the paper's tables.

    Args:
        studies: the first one of a task stands in the paper's column, the others in columns of their own.
        transfers: matrices; sources named as in the paper's table (``MuSR (MB)``), targets as its columns.
        variants: scorers that differ in one thing; named as the studies are.
        sections: further findings, such as confounding reports with the picks before and after a repair.
        title: of the report.
        command: how to repeat this; this process's command line by default.

    Raises:
        PoolError: there is nothing to report, or two studies have the same name.
    """
    if not studies and not transfers:
        raise PoolError("a reproduction needs at least one scored pool or transfer matrix; run the evaluation first")
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise PoolError(f"two studies are named {twice[0]!r}; give every pool a name of its own")
    return Reproduction(
        title=title,
        tables=tuple(reproduced_tables(studies, transfers, variants)),
        studies=tuple(studies),
        transfers=tuple(transfers),
        variants=tuple(variants),
        sections=tuple(sections),
        command=command_line() if command is None else command,
        versions=versions(),
    )
