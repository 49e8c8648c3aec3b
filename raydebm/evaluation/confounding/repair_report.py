"""Repair of a checkpoint, with measurements before and after it.

In:   a checkpoint; labelled texts of training and validation problems; evaluated pools of test problems.
Out:  a repaired checkpoint, and the screens of both scorers side by side.
Does not know: Ray, the source of the data.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydebm.config.pairs import POSITIVE_FRAC
from raydebm.decision.table import PoolTable
from raydebm.errors import PoolError
from raydebm.evaluation.confounding.experiments import rescored
from raydebm.evaluation.confounding.report import ConfoundingSettings, document, generator_table, spread_table
from raydebm.evaluation.confounding.screen import Screen, screen
from raydebm.evaluation.report.document import ReportDocument, Table
from raydebm.evaluation.selectors import best_generator_of
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.records import Candidate, Label, Problem, Reasoning, Verdict

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
        """Contents of the page, as JSON values."""
        facts = dataclasses.asdict(self.result) | {"folder": str(self.result.folder)}
        del facts["record"]
        screens = {
            name: dataclasses.asdict(screened) | {"warnings": list(screened.warnings())}
            for name, screened in (("before", self.before), ("after", self.after))
        }
        return {"task": self.task, **screens, "repair": facts}

    def summary(self) -> str:
        """Results in sentences, generated from the numbers."""
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
        """The report as a page."""
        title = f"Repair: {self.task}" if self.task else "Repair"
        return document(title, self.summary(), self.tables(), {"before": self.before, "after": self.after}, provenance)


def repair_texts(
    problems: Mapping[str, Problem],
    candidates: Iterable[Candidate],
    labels: Mapping[str, Label],
    *,
    reasoning: Reasoning = "answer",
) -> list["RepairText"]:
    """Labelled candidates of some problems, in the form that the repair needs. Greedy and unlabelled ones are excluded.

    If labels have violation scores, the lowest ``POSITIVE_FRAC`` of a problem's candidates are the correct ones, as in
    training; scores equal to the limit are included.

    Args:
        problems: Problems by id. Candidates of other problems are excluded.
        labels: Labels by candidate id.
        reasoning: Part of a candidate that the scorer reads (``scorer.reasoning``).
    """
    from raydebm.evaluation.confounding.refit import RepairText

    labelled = [
        (candidate.as_scored(reasoning), label)
        for candidate in candidates
        if candidate.problem_id in problems and candidate.text is not None and not candidate.is_greedy
        if (label := labels.get(candidate.candidate_id)) is not None
    ]
    limits = _limits([label for _, label in labelled])
    texts = []
    for candidate, label in labelled:
        if label.verdict is Verdict.UNLABELED:
            continue
        limit, score = limits.get(candidate.problem_id), label.violation_score
        correct = label.verdict is Verdict.CORRECT if limit is None or score is None else score <= limit
        texts.append(
            RepairText(
                candidate_id=candidate.candidate_id,
                problem_id=candidate.problem_id,
                prompt=problems[candidate.problem_id].prompt,
                text=candidate.text or "",
                generator=candidate.generator,
                correct=correct,
            )
        )
    return texts


def _limits(labels: Iterable[Label]) -> dict[str, float]:
    """Highest violation score within the best share of candidates, by problem."""
    scores: dict[str, list[float]] = {}
    for label in labels:
        if label.violation_score is not None:
            scores.setdefault(label.problem_id, []).append(label.violation_score)
    return {name: sorted(own)[max(round(POSITIVE_FRAC * len(own)), 1) - 1] for name, own in scores.items()}


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
    """Pools that choose the "best generator". Without any, it is chosen in hindsight."""

    def __post_init__(self) -> None:
        tested = {problem.problem_id for problem in self.test.problems}
        shared = {text.problem_id for text in (*self.train, *self.validation)} & tested
        if shared:
            raise PoolError(
                f"{len(shared)} test problems are among those of the repair, such as {min(shared)!r}; "
                "figures on them would say nothing"
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
    bootstrap = Bootstrap.of(data.test.num_pools, num_bootstrap=settings.num_bootstrap, seed=settings.seed)
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
