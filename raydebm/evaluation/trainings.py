"""Summary of several trainings of one recipe, by seeds and by folds.

In:   results of every selector and the posterior's confidence, for each training and each of its test problems.
Out:  one row per selector. The interval shows the variation over problems, the standard deviation over seeds that over
      trainings, and the standard deviation over folds both.

With folds every problem is tested once per seed, by a training that did not see it. Selectors are joined by name.
A problem's confidence is from the training that tested it.

Shapes: S seeds, P problems.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.confidence import CHOSEN
from raydebm.evaluation.certainty.reliability import CONFIDENCE, Reliability, Stated
from raydebm.evaluation.certainty.signals import SignalRow
from raydebm.evaluation.report.document import (
    Cell,
    Chapter,
    ReportDocument,
    Table,
    decimal,
    number,
    points,
    table_of,
)
from raydebm.evaluation.report.evaluation_tables import (
    comparison_table,
    reliability_table,
    texts_table,
    unread_problems,
)
from raydebm.evaluation.results.entries import SelectorEntry, compared_pairs
from raydebm.evaluation.results.evaluation import TextsRead, joined_texts
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats, known_mean, mean_of_known
from raydebm.evaluation.stats.json_results import JsonResults, versions
from raydebm.evaluation.stats.significance import Comparison, compare
from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    seed: int
    fold: int | None = None
    num_test: int
    num_train: int
    num_validation: int
    """Number of problems for early stopping and for everything chosen or fitted after training."""
    num_pairs: int
    lambda_: float
    sigma_auroc: float | None = None
    within_generator: float | None = None
    """AUROC of -mu for correctness among one generator's answers, mean over generators."""
    screen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """Evaluation of one training. All values are in the order of ``problem_ids``."""

    facts: TrainingFacts
    problem_ids: tuple[str, ...]
    entries: Sequence[SelectorEntry]
    decision: Stated | None = None
    """The posterior's confidence in the profile's selections. None without a posterior."""
    texts_read: tuple[TextsRead, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    name: str
    group: str
    pass_at_1: Estimate
    """Mean over problems, after averaging each problem over the seeds that have a value for it."""
    mean_violation: Estimate
    by_seed: tuple[float | None, ...]
    """pass@1 of each seed, or mean violation if the task has violation scores."""
    by_fold: tuple[float | None, ...]
    """pass@1 or mean violation on each fold's problems, mean over seeds. Empty without folds."""
    sd_of_seeds: float | None
    """Standard deviation of ``by_seed`` (ddof=1). None with fewer than two values."""
    sd_of_folds: float | None
    gap_closed: Estimate
    """(selector - random) / (oracle - random), in mean violation if the task has violation scores, else in pass@1."""
    paper_minus: Estimate
    """Difference in pass@1, the paper's rule minus this selector, paired by problem and seed. If the task has violation
    scores: the violation that the paper's rule avoids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary(JsonResults):
    title: str
    task: str
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    num_problems: int
    trainings: tuple[TrainingFacts, ...]
    rows: tuple[TrainingRow, ...]
    comparisons: tuple[Comparison, ...]
    """Paired tests over problems of the means over seeds."""
    decision: tuple[SignalRow, ...]
    """The posterior's confidence in the profile's selections, over all problems, one row per seed."""
    confidence: tuple[Reliability, ...]
    """Calibration of the posterior's confidence over all problems, in bins of equal mass, one per seed."""
    texts_read: tuple[TextsRead, ...] = ()
    """Truncation of the scorers' inputs, by split, over all trainings."""

    @property
    def is_continuous(self) -> bool:
        """Whether labels have a violation score."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def row(self, name: str) -> TrainingRow | None:
        """Row of a selector. None if some seed lacks it."""
        return next((row for row in self.rows if row.name == name), None)


def summarise(trainings: Sequence[Training], *, title: str, task: str, seed: int) -> TrainingSummary:
    """Join the folds of each seed, and compare selectors and signals over all problems.

    Args:
        trainings: Trainings of different seeds; with folds, of every fold and seed.
        seed: Seed of the resamples and permutations.

    Raises:
        PoolError: there are fewer than two trainings, a seed lacks a fold or has one twice, or two folds share a
            problem.
    """
    layout = _Layout.of(trainings)
    bootstrap = Bootstrap.of(len(layout.problem_ids), seed=seed)
    groups = layout.groups()
    correct = {name: layout.table(_entry_values(name, "correct")) for name in groups}
    violation = {name: layout.table(_entry_values(name, "violation")) for name in groups}
    continuous = any(not np.isnan(values).all() for values in violation.values())
    judged = {name: 1 - values for name, values in violation.items()} if continuous else correct
    rows = _rows(groups, correct, violation, judged, layout, bootstrap)
    decision, calibrations = _confidence(layout, bootstrap)
    return TrainingSummary(
        title=title,
        task=task,
        seeds=layout.seeds,
        folds=layout.folds,
        num_problems=len(layout.problem_ids),
        trainings=tuple(training.facts for training in layout.trainings),
        rows=tuple(rows),
        comparisons=tuple(compare(judged, compared_pairs(groups), bootstrap=bootstrap, seed=seed)),
        decision=tuple(decision),
        confidence=tuple(calibrations),
        texts_read=joined_texts(training.texts_read for training in trainings),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Trainings by seed and fold, with the position of each value in a (S, P) table."""

    trainings: Sequence[Training]
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    problem_ids: tuple[str, ...]

    @classmethod
    def of(cls, trainings: Sequence[Training]) -> "_Layout":
        ordered = sorted(trainings, key=lambda each: (each.facts.seed, each.facts.fold or 0))
        seeds = tuple(dict.fromkeys(training.facts.seed for training in ordered))
        by_seed = {seed: [each.facts.fold for each in ordered if each.facts.seed == seed] for seed in seeds}
        wanted = list(dict.fromkeys(training.facts.fold for training in ordered))
        if len(trainings) < 2 or wanted == [wanted[0]] != [None] or any(own != wanted for own in by_seed.values()):
            raise PoolError(
                "a summary needs two or more trainings of different seeds, or two or more folds, each once for every "
                f"seed; the folds by seed are {by_seed}"
            )
        tested: dict[str, int | None] = {}
        for training in ordered:
            fold = training.facts.fold
            for problem_id in training.problem_ids:
                if (other := tested.setdefault(problem_id, fold)) != fold:
                    raise PoolError(
                        f"problem {problem_id!r} is tested by folds {other} and {fold}; put it in one of them"
                    )
        folds = tuple(fold for fold in wanted if fold is not None)
        return cls(trainings=ordered, seeds=seeds, folds=folds, problem_ids=tuple(sorted(tested)))

    def table(self, values_of: Callable[[Training], Floats | None]) -> Floats:
        """Each training's values at their positions, shape (S, P). NaN if a training has no value."""
        place = {problem_id: index for index, problem_id in enumerate(self.problem_ids)}
        table = np.full((len(self.seeds), len(place)), math.nan)
        for training in self.trainings:
            values = values_of(training)
            if values is not None:
                columns = [place[problem_id] for problem_id in training.problem_ids]
                table[self.seeds.index(training.facts.seed), columns] = values
        return table

    def groups(self) -> dict[str, str]:
        """Group by selector, in report order, for selectors that every seed has in at least one fold."""
        merged, own = list[str](), {training.facts.seed: dict[str, str]() for training in self.trainings}
        for training in self.trainings:
            place = 0
            for entry in training.entries:
                if entry.name not in merged:
                    merged.insert(place, entry.name)
                place = merged.index(entry.name) + 1
                own[training.facts.seed][entry.name] = entry.group
        return {name: own[self.seeds[0]][name] for name in merged if all(name in groups for groups in own.values())}

    def members(self) -> list[Floats]:
        """Mask of each fold's problems, shape (P,) each."""
        tested = {training.facts.fold: set(training.problem_ids) for training in self.trainings}
        return [np.array([problem_id in tested[fold] for problem_id in self.problem_ids]) for fold in self.folds]


def _entry_values(name: str, field: str) -> Callable[[Training], Floats | None]:
    return lambda training: next((getattr(entry, field) for entry in training.entries if entry.name == name), None)


def _rows(
    groups: Mapping[str, str],
    correct: Mapping[str, Floats],
    violation: Mapping[str, Floats],
    judged: Mapping[str, Floats],
    layout: _Layout,
    bootstrap: Bootstrap,
) -> list[TrainingRow]:
    shown = correct if judged is correct else violation
    rule = judged.get(PAPER_RULE, np.full((len(layout.seeds), len(layout.problem_ids)), math.nan))
    members, rows = layout.members(), []
    for name, group in groups.items():
        by_seed = tuple(map(known_mean, shown[name]))
        by_fold = tuple(known_mean(mean_of_known(shown[name])[member]) for member in members)
        # The gap uses problems on which the selector, random and the oracle all have a value.
        unknown = np.isnan(judged[name] + judged["random"] + judged["oracle"])
        gained, possible = (
            mean_of_known(np.where(unknown, math.nan, values - judged["random"]))
            for values in (judged[name], judged["oracle"])
        )
        rows.append(
            TrainingRow(
                name=name,
                group=group,
                pass_at_1=bootstrap.proportion(mean_of_known(correct[name])),
                mean_violation=bootstrap.mean(mean_of_known(violation[name])),
                by_seed=by_seed,
                by_fold=by_fold,
                sd_of_seeds=sample_deviation(by_seed),
                sd_of_folds=sample_deviation(by_fold),
                gap_closed=bootstrap.ratio(gained, possible),
                paper_minus=bootstrap.mean(mean_of_known(rule - judged[name])),
            )
        )
    return rows


def sample_deviation(values: Sequence[float | None]) -> float | None:
    """Standard deviation (ddof=1) of the known values. None with fewer than two."""
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


# ---- certainty -------------------------------------------------------------------------------------------------------


def _confidence(layout: _Layout, bootstrap: Bootstrap) -> tuple[list[SignalRow], list[Reliability]]:
    """Quality and calibration of the posterior's confidence over all problems, per seed. Empty without a posterior."""
    if not any(training.decision for training in layout.trainings):
        return [], []

    def table(field: str) -> Floats:
        return layout.table(lambda training: getattr(training.decision, field, None))

    columns = map(table, ("confidence", "correct", "violation"))
    rows, calibrations = list[SignalRow](), list[Reliability]()
    for seed, confidence, correct, violation in zip(layout.seeds, *columns, strict=True):
        stated = Stated(confidence=confidence, correct=correct, violation=violation)
        rows.append(stated.row(bootstrap))
        called = CONFIDENCE if len(layout.seeds) == 1 else f"{CONFIDENCE}, seed {seed}"
        calibrations.append(stated.reliability(bootstrap, name=called))
    return rows, calibrations


def write_summary(summary: TrainingSummary, run: RunDir, *, command: str) -> str:
    """Write report.md, report.html and folds.json to ``<run>/folds/``; without folds, ``seeds`` replaces ``folds``.

    Returns:
        Address of report.html.
    """
    stage = "folds" if summary.folds else "seeds"
    run.write_json(summary.to_json(), stage, f"{stage}.json")
    return document(summary, command=command).write(run, stage)


def document(summary: TrainingSummary, *, command: str) -> ReportDocument:
    """Summary and tables, and the information that reproduces the numbers."""
    count = f"{len(summary.folds)} folds" if summary.folds else f"{len(summary.seeds)} seeds"
    return ReportDocument(
        title=f"{summary.title}: {count}",
        summary=(in_words(summary),),
        chapters=(Chapter(title="Tables", tables=tuple(training_tables(summary))),),
        provenance={
            "command": command,
            "intervals": "95 %, percentile bootstrap over problems of each problem's mean over trainings",
            "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        },
    )


def in_words(summary: TrainingSummary) -> str:
    """Opening of the report: numbers of trainings and problems, after a warning if the scorers read too little."""
    count = len(summary.seeds)
    trainings = "one training" if count == 1 else f"{count} trainings"
    opening = (
        f"{summary.num_problems} problems of task {summary.task}, each tested once in {len(summary.folds)} folds, by "
        f"{trainings} on the other folds."
        if summary.folds
        else f"{trainings} on {summary.num_problems} test problems of task {summary.task}."
    )
    return " ".join([*unread_problems(summary.texts_read), opening])


# ---- tables ----------------------------------------------------------------------------------------------------------


def training_tables(summary: TrainingSummary) -> list[Table]:
    tables = [
        selector_table(summary),
        _by_training(summary),
        _facts_table(summary),
        comparison_table(summary.comparisons, what="violation avoided" if summary.is_continuous else "pass@1"),
        _decision_table(summary),
        reliability_table("Calibration of confidence", summary.confidence),
        texts_table(summary.texts_read),
    ]
    return [table for table in tables if table.rows]


def selector_table(summary: TrainingSummary) -> Table:
    """One row per selector, the main result."""
    continuous, digits, scale = summary.is_continuous, *((3, 1) if summary.is_continuous else (1, 100))
    caption = (
        f"{summary.num_problems} problems, means over seeds {', '.join(map(str, summary.seeds))}"
        + (f", each tested once by a training on other folds ({len(summary.folds)} folds)" if summary.folds else "")
        + ". The interval resamples problems. The standard deviation over seeds is zero for rules that use no "
        "training; the one over folds includes the change of problems. Gap closed: 0 is random choice, 100 the oracle. "
        f"{PAPER_RULE} minus this: {'violation avoided' if continuous else 'percentage points'}, paired by problem."
    )
    spreads: dict[str, Callable[[TrainingRow], Cell]] = {}
    if len(summary.seeds) > 1:
        spreads["sd over seeds"] = lambda row: decimal(row.sd_of_seeds, digits, scale=scale)
    if summary.folds:
        spreads["sd over folds"] = lambda row: decimal(row.sd_of_folds, digits, scale=scale)
    worth: dict[str, Callable[[TrainingRow], Cell]] = {"pass@1 %": lambda row: row.pass_at_1}
    if continuous:
        worth = {"mean violation": lambda row: number(row.mean_violation), **worth}

    def minus(row: TrainingRow) -> str:
        shown = number(row.paper_minus, signed=True) if continuous else points(row.paper_minus)
        return "" if row.name == PAPER_RULE else shown

    return table_of(
        "Selectors",
        caption,
        sorted(summary.rows, key=lambda row: row.name != _used(summary)),
        {
            "selector": lambda row: row.name,
            **worth,
            **spreads,
            "gap closed %": lambda row: row.gap_closed,
            f"{PAPER_RULE} minus this": minus,
            "n": lambda row: (row.mean_violation if continuous else row.pass_at_1).n,
        },
        emphasised=lambda row: row.name == _used(summary),
    )


def _used(summary: TrainingSummary) -> str:
    """Name of the rule to use: the chosen profile, else the paper's rule."""
    return PAPER_RULE if summary.row(CHOSEN) is None else CHOSEN


def _by_training(summary: TrainingSummary) -> Table:
    what, scale, digits = ("mean violation", 1.0, 3) if summary.is_continuous else ("pass@1 %", 100.0, 1)

    def at(field: str, index: int) -> Callable[[TrainingRow], Cell]:
        return lambda row: decimal(getattr(row, field)[index], digits, scale=scale)

    by_fold = {f"fold {fold}": at("by_fold", index) for index, fold in enumerate(summary.folds)}
    by_seed = {f"seed {seed}": at("by_seed", index) for index, seed in enumerate(summary.seeds)}
    return table_of(
        "Fold by fold" if by_fold else "Training by training",
        f"{what} on each fold's test problems, mean over seeds, and on all problems by seed.",
        summary.rows,
        {"selector": lambda row: row.name, **by_fold, **(by_seed if len(by_seed) > 1 else {})},
        emphasised=lambda row: row.name == _used(summary),
    )


def _facts_table(summary: TrainingSummary) -> Table:
    return table_of(
        "Trainings",
        "Problems tested, problems for training, and problems for early stopping and for whatever is chosen or "
        "fitted afterwards; pairs of candidates that training compares; lambda as calibrated. AUROC of -sigma above "
        "0.5: a low sigma signals a correct selection. AUROC of -mu within one generator ranks answers of the same "
        "author only, so that knowing the author cannot help.",
        summary.trainings,
        {
            "fold": lambda row: row.fold,
            "seed": lambda row: str(row.seed),
            "tested": lambda row: row.num_test,
            "training": lambda row: row.num_train,
            "validation": lambda row: row.num_validation,
            "training pairs": lambda row: row.num_pairs,
            "lambda": lambda row: f"{row.lambda_:g}",
            "AUROC of -sigma": lambda row: decimal(row.sigma_auroc),
            "AUROC of -mu within one generator": lambda row: decimal(row.within_generator),
            "confounding screen": lambda row: row.screen or None,
        },
    )


def _decision_table(summary: TrainingSummary) -> Table:
    what = "1 - violation" if summary.is_continuous else "correct"
    return table_of(
        "Confidence in the chosen profile's selections",
        "Each problem's confidence is that of the training that tested it. One row per seed.",
        summary.decision,
        {
            "signal": lambda row: row.name,
            "AUROC": lambda row: number(row.auroc),
            f"80 % most certain, {what} %": lambda row: row.accuracy_at_80,
            "gain": lambda row: points(row.gain_at_80),
            "n": lambda row: row.auroc.n,
        },
    )
