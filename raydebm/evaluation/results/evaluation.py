"""Evaluation of a run: numbers with intervals, computed from pools and outcomes. ``report`` formats them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from raydebm.evaluation.certainty.confidence import CHOSEN, POSTERIOR, DecisionStudy
from raydebm.evaluation.certainty.trust import Trust
from raydebm.evaluation.results.energy_metrics import (
    EnergyMeasureRow,
    PassAtN,
    PickPoint,
    Retained,
)
from raydebm.evaluation.results.entries import (
    ALL_PASSES,
    ANSWERED,
    OURS,
    DifficultyRow,
    DimensionTable,
    SelectorRow,
)
from raydebm.evaluation.results.outcomes import LoopSummary
from raydebm.evaluation.results.selector_costs import CostRow
from raydebm.evaluation.results.theory import EnsembleTheory
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison
from raydebm.generators.tally import SavedSamples
from raydebm.run.tables import EnergyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsRead:
    """Counts for the candidates of one split. None if truncation was not recorded."""

    split: str
    num_candidates: int
    without_problem: int | None
    """Candidates scored without any part of the problem."""
    problem_cut: int | None
    """Candidates scored with a part of the problem."""
    answer_cut: int | None
    """Candidates scored with a part of their own text."""


def texts_read(
    rows: Iterable[EnergyRow], *, problem_of: Mapping[str, str], splits: Mapping[str, Sequence[str]]
) -> tuple[TextsRead, ...]:
    """Count by split. Splits without energies are omitted.

    Args:
        rows: Energies of the first pass.
        problem_of: Problem ids by candidate id.
        splits: Problem ids by split.
    """
    split_of = {problem_id: split for split, problem_ids in splits.items() for problem_id in problem_ids}
    scored: dict[str, list[EnergyRow]] = {split: [] for split in splits}
    for row in rows:
        if row.members is not None and (split := split_of.get(problem_of.get(row.candidate_id, ""))) is not None:
            scored[split].append(row)
    return tuple(_counted(split, of_split) for split, of_split in scored.items() if of_split)


def _counted(split: str, rows: Sequence[EnergyRow]) -> TextsRead:
    problems = [row.problem_read for row in rows if row.problem_read is not None]
    answers = [row.answer_read for row in rows if row.answer_read is not None]
    is_known = len(problems) == len(answers) == len(rows)
    return TextsRead(
        split=split,
        num_candidates=len(rows),
        without_problem=sum(share == 0 for share in problems) if is_known else None,
        problem_cut=sum(0 < share < 1 for share in problems) if is_known else None,
        answer_cut=sum(share < 1 for share in answers) if is_known else None,
    )


def joined_texts(trainings: Iterable[Sequence[TextsRead]]) -> tuple[TextsRead, ...]:
    """Sums over several trainings, by split."""
    by_split: dict[str, list[TextsRead]] = {}
    for row in chain.from_iterable(trainings):
        by_split.setdefault(row.split, []).append(row)
    return tuple(
        TextsRead(
            split=split,
            num_candidates=sum(row.num_candidates for row in rows),
            without_problem=_sum(row.without_problem for row in rows),
            problem_cut=_sum(row.problem_cut for row in rows),
            answer_cut=_sum(row.answer_cut for row in rows),
        )
        for split, rows in by_split.items()
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


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
