"""Repair of a checkpoint, with measurements before and after it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raydebm.decision.table import PoolTable
from raydebm.errors import PoolError
from raydebm.evaluation.confounding.experiments import rescored
from raydebm.evaluation.confounding.report import ConfoundingSettings, document, generator_table, spread_table
from raydebm.evaluation.confounding.screen import Screen, screen
from raydebm.evaluation.report.document import ReportDocument, Table
from raydebm.evaluation.selectors import best_generator_of
from raydebm.evaluation.stats.intervals import Bootstrap

if TYPE_CHECKING:
    from raydebm.evaluation.confounding.refit import FeatureExtractor, RepairResult, RepairSettings, RepairText


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """Screens of the scorer before and after its repair, on the same test pools."""

    task: str
    before: Screen
    after: Screen
    result: "RepairResult"

    def to_json(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self.result) | {"folder": str(self.result.folder)}
        screens = {
            name: dataclasses.asdict(screened) | {"warnings": list(screened.warnings())}
            for name, screened in (("before", self.before), ("after", self.after))
        }
        return {"task": self.task, **screens, "repair": facts}

    def summary(self) -> str:
        before, after = self.before.warnings(), self.after.warnings()
        left = f" Left after the repair: {'; '.join(after)}." if after else ""
        return (
            f"{self.before.num_problems} test problems. Warnings of the screen: {len(before)} before the repair, "
            f"{len(after)} after.{left}"
        )

    def tables(self) -> list[Table]:
        """Both screens, the generators by each scorer, and the training data of the heads."""
        used = [(name, *map(str, size), "yes") for name, size in self.result.cells.items()]
        unused = [(name, *map(str, size), "no: too small a cell") for name, size in self.result.left_out.items()]
        return [
            spread_table({"before": self.before, "after": self.after}),
            generator_table(self.before, title="Generators before the repair"),
            generator_table(self.after, title="Generators after the repair"),
            Table(
                title="Data of the repair",
                caption=f"Texts per generator and label, after capping. {100 * self.result.trainable_share:.2f} % of "
                "the parameters were trained: the energy heads.",
                headers=("generator", "correct", "incorrect", "used"),
                rows=(*used, *unused),
            ),
        ]

    def document(self, provenance: Mapping[str, str] | None = None) -> ReportDocument:
        title = f"Repair: {self.task}" if self.task else "Repair"
        return document(title, self.summary(), self.tables(), provenance)


def repair_texts(pools: PoolTable) -> list["RepairText"]:
    """Labelled candidates with the labels used in training, in the form that the repair needs."""
    from raydebm.evaluation.confounding.refit import RepairText

    correct, texts = pools.with_trained_labels().correct, list(pools.texts.items())
    return [
        RepairText(
            candidate_id=texts[row][0],
            problem_id=pools.problems[pools.pool_of_row[row]].problem_id,
            prompt=texts[row][1][0],
            text=texts[row][1][1],
            generator=pools.authors[pools.author_of_row[row]],
            correct=bool(correct[row] == 1),
        )
        for row in np.flatnonzero(~np.isnan(correct))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairData:
    """Training and test data of a repair.

    Raises:
        PoolError: problems of the test split are among those of the repair.
    """

    train: Sequence["RepairText"]
    """See ``repair_texts``."""
    validation: Sequence["RepairText"]
    """Texts for early stopping, balanced in the same way."""
    test: PoolTable
    validation_pools: PoolTable | None = None
    """Pools on which the best generator is chosen. Default: the test pools, in hindsight."""

    def __post_init__(self) -> None:
        tested = {problem.problem_id for problem in self.test.problems}
        shared = {text.problem_id for text in (*self.train, *self.validation)} & tested
        if shared:
            raise PoolError(
                f"{len(shared)} test problems are among those of the repair, such as {min(shared)!r}; "
                "exclude them from the repair"
            )


def repair(
    extractor: "FeatureExtractor",
    out: Path,
    data: RepairData,
    *,
    repair_settings: "RepairSettings",
    settings: ConfoundingSettings,
) -> RepairReport:
    """Refit the heads on group-balanced data, write ``out``, and screen both checkpoints on the test pools.

    Both are scored with the same settings; energies in the pools are ignored. Each text is encoded once, because the
    features are the same before and after.

    Args:
        extractor: Features of the checkpoint to repair.

    Raises:
        PoolError: too few generators have both labels.
    """
    from raydebm.evaluation.confounding.refit import repair_heads

    result = repair_heads(extractor, out, train=data.train, validation=data.validation, settings=repair_settings)
    best = None if data.validation_pools is None else best_generator_of(data.validation_pools, by_violation=False)
    bootstrap = Bootstrap.of(data.test.num_pools, seed=settings.seed)
    before, after = (
        screen(
            rescored(data.test, extractor.scorer(folder)),
            lambda_=settings.lambda_,
            bootstrap=bootstrap,
            best_generator=best,
        )
        for folder in (extractor.folder, out)
    )
    return RepairReport(task=settings.task, before=before, after=after, result=result)
