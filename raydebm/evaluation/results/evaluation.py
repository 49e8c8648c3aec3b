"""Evaluation of a run: numbers with intervals, computed from pools and outcomes. ``report`` formats them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from raydebm.evaluation.certainty.confidence import CHOSEN, POSTERIOR, DecisionStudy
from raydebm.evaluation.certainty.trust import Trust
from raydebm.evaluation.results.energy_measures import EnergyMeasureRow, PassAtN, PickPoint
from raydebm.evaluation.results.entries import (
    ALL_PASSES,
    ANSWERED,
    OURS,
    DifficultyRow,
    SelectorRow,
)
from raydebm.evaluation.results.outcomes import LoopSummary
from raydebm.evaluation.results.selector_costs import CostRow
from raydebm.evaluation.results.selector_metrics import (
    Retained,
)
from raydebm.evaluation.results.texts_read import TextsRead
from raydebm.evaluation.results.theory import EnsembleTheory
from raydebm.evaluation.results.violation_parts import DimensionTable
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison
from raydebm.generators.tally import SavedSamples

BY_PART = ("random", "majority vote", "constraint only", "mu only", OURS, "oracle")
"""Selectors in the table of violation parts, with single-shot models and the best generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    problems: int
    candidates: int
    """Number of candidates in the pools, without greedy ones."""
    greedy: int
    failed: int
    """Number of requests without text."""
    unparsed: int
    """Number of candidates with text but without an answer."""
    unscored: int
    """Number of candidates with text but without energies."""
    unlabeled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(JsonResults):
    """Contents of a report, as data."""

    KIND: ClassVar[str] = "an evaluation"
    REMEDY: ClassVar[str] = "run the evaluation stage again"

    title: str
    task: str
    seed: int
    shuffle_seed: int
    num_bootstrap: int
    policy: dict[str, Any]
    generators: tuple[str, ...]
    adapters: tuple[str, ...]
    counts: Counts
    rows: tuple[SelectorRow, ...]
    energies: tuple[EnergyMeasureRow, ...]
    """Quality of the energies. Correct is the class preferred in training: for tasks with violation scores, the best
    share of each pool."""
    pass_at_n: tuple[PassAtN, ...]
    costs: tuple[CostRow, ...]
    """Cost and worth of every selector."""
    tolerance: float | None
    """Largest violation score of a correct candidate in ``pass_at_n``. None if the task has no violation scores."""
    sigma_auroc: Estimate
    """AUROC of -sigma for a correct selection. Above 0.5, a low sigma indicates a correct one."""
    selective: tuple[Retained, ...]
    mu_sigma_auroc: Estimate
    """Same as ``sigma_auroc`` for the selections by mu."""
    mu_selective: tuple[Retained, ...]
    theory: EnsembleTheory | None
    difficulties: tuple[DifficultyRow, ...]
    loop: LoopSummary | None
    picks: tuple[PickPoint, ...]
    comparisons: tuple[Comparison, ...]
    """Ours against every other selector, and every energy vote against the plain vote."""
    dimensions: DimensionTable | None
    """Parts of the violation by selector. None if no candidate violates anything."""
    violation_comparisons: tuple[Comparison, ...]
    """Comparisons in violation avoided (1 - violation score). Empty if the task has no violation scores."""
    trust: Trust | None
    """Signals of certainty and calibration. None without energies."""
    decision: DecisionStudy | None
    """The posterior's rule. None if no posterior was fitted."""
    command: str
    versions: dict[str, str]
    saved: SavedSamples | None = None
    """Samples saved by waves, over all splits. None if the first pass was sampled at once."""
    texts_read: tuple[TextsRead, ...] = ()
    """Truncation of the scorer's inputs, by split. Empty in evaluations of earlier versions and without energies."""

    def row(self, name: str) -> SelectorRow | None:
        """Row of a selector. None if the pools do not allow it."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def is_continuous(self) -> bool:
        """Whether the task has violation scores. Selectors are then compared by the mean violation."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
        shown = ("random", "majority vote", "greedy", POSTERIOR, CHOSEN, OURS, ALL_PASSES, ANSWERED, "oracle")
        rows = [row for name in shown if (row := self.row(name)) is not None]
        pass_at_1 = {row.name: row.pass_at_1.value for row in rows}
        violated = {row.name: row.mean_violation.value for row in rows} if self.is_continuous else None
        return {
            "num_problems": self.counts.problems,
            "num_candidates": self.counts.candidates,
            "num_unlabeled": self.counts.unlabeled,
            "pass_at_1": pass_at_1,
            **({"mean_violation": violated} if violated else {}),
            "coverage": None if self.loop is None else self.loop.coverage.value,
            **self._decision_facts(),
        }

    def _decision_facts(self) -> dict[str, Any]:
        if self.decision is None:
            return {}
        decision = self.decision
        return {
            "profile": decision.profile,
            "confidence_auroc": decision.confidence.auroc.value,
            "confidence_ece": decision.reliability.ece.value,
        }
