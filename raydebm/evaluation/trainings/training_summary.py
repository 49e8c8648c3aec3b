"""Summary of several trainings of one recipe, by seeds and by folds.

In:   results of every selector, and the posterior's confidence, of each training, on each of its test problems.
Out:  one row per selector. The interval is the variation over problems, the standard deviation over
      seeds that over trainings, and the standard deviation over folds includes both.

With folds every problem is tested once per seed, by a training that did not see it. Selectors are joined by
name. Confidences are those of each problem's own training.

Shapes: S seeds, P problems.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import CONFIDENCE, Reliability, Stated
from raydebm.evaluation.certainty.signals import (
    SignalRow,
)
from raydebm.evaluation.results.entries import VOTE, WEIGHTED_VOTE, SelectorEntry
from raydebm.evaluation.results.evaluation import TextsRead, joined_texts
from raydebm.evaluation.selectors import BEST_GENERATOR, PAPER_RULE
from raydebm.evaluation.stats.intervals import (
    Bootstrap,
    Estimate,
    Floats,
    mean_of_known,
)
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison, compare, distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """Sizes, settings and figures of one training."""

    seed: int
    fold: int | None = None
    """Test fold. None without folds."""
    num_test: int
    num_train: int
    """Number of training problems of the adapters."""
    num_validation: int
    """Number of problems for early stopping and for everything chosen or fitted after training."""
    num_pairs: int
    """Number of training pairs."""
    lambda_: float
    sigma_auroc: float | None = None
    within_generator: float | None = None
    """AUROC of -mu for correct among one generator's answers, mean over generators."""
    screen: str = ""
    """Result of the confounding screen."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """Evaluation of one training. All values are in the order of ``problem_ids``."""

    facts: TrainingFacts
    problem_ids: tuple[str, ...]
    entries: Sequence[SelectorEntry]
    decision: Stated | None = None
    """The posterior's confidence in the profile's selections. None without a posterior."""
    texts_read: tuple[TextsRead, ...] = ()
    """Truncation of the scorer's inputs, by split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One selector over all trainings."""

    name: str
    group: str
    pass_at_1: Estimate
    """Mean over problems of a problem's mean over the seeds with a value."""
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
    """The paper's rule minus this selector in pass@1, paired by problem and seed. If the task has violation scores,
    violation that it avoids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary(JsonResults):
    title: str
    task: str
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    """Folds. Empty without folds."""
    num_problems: int
    """Distinct test problems."""
    trainings: tuple[TrainingFacts, ...]
    rows: tuple[TrainingRow, ...]
    comparisons: tuple[Comparison, ...]
    """Paired tests over problems of the means over seeds."""
    decision: tuple[SignalRow, ...]
    """The posterior's confidence in the profile's selections, over all problems, one row per seed."""
    confidence: tuple[Reliability, ...]
    """Calibration in bins of equal mass over all problems, one per probability and seed."""
    absent: dict[str, tuple[int, ...]]
    """Folds without a selector that others have, by its name."""
    texts_read: tuple[TextsRead, ...] = ()
    """Truncation of the scorers' inputs, by split, over all trainings."""

    @property
    def is_continuous(self) -> bool:
        """Whether labels have a violation score."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def row(self, name: str) -> TrainingRow | None:
        """Row of a selector. None if some seed lacks it."""
        return next((row for row in self.rows if row.name == name), None)


def summarise(
    trainings: Sequence[Training], *, title: str, task: str, num_bootstrap: int, seed: int = 0
) -> TrainingSummary:
    """Join the folds of each seed, and compare selectors and signals over all problems.

    Args:
        trainings: Trainings of different seeds; with folds, of every fold and seed.
        seed: Seed of the resamples and permutations.

    Raises:
        PoolError: fewer than two trainings, a seed that lacks a fold or has one twice, or a problem in two folds.
    """
    layout = _Layout.of(trainings)
    bootstrap = Bootstrap.of(len(layout.problem_ids), num_bootstrap=num_bootstrap, seed=seed)
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
        absent=_absent(layout),
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
                f"seed; got the folds {by_seed}"
            )
        tested: dict[str, int | None] = {}
        for training in ordered:
            fold = training.facts.fold
            for problem_id in training.problem_ids:
                if (other := tested.setdefault(problem_id, fold)) != fold:
                    raise PoolError(f"problem {problem_id!r} is tested by fold {other} and by fold {fold}")
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
        """Group of each selector that every seed has in some fold, in the order of the report."""
        merged, seeds_of, group_of = list[str](), dict[str, set[int]](), dict[str, str]()
        for training in self.trainings:
            place = 0
            for entry in training.entries:
                if entry.name not in merged:
                    merged.insert(place, entry.name)
                place = merged.index(entry.name) + 1
                seeds_of.setdefault(entry.name, set()).add(training.facts.seed)
                group_of[entry.name] = entry.group
        return {name: group_of[name] for name in merged if len(seeds_of[name]) == len(self.seeds)}

    def members(self) -> list[Floats]:
        """Mask over P of each fold's problems."""
        of_fold = {fold: set[str]() for fold in self.folds}
        for training in self.trainings:
            if training.facts.fold is not None:
                of_fold[training.facts.fold].update(training.problem_ids)
        return [np.array([problem_id in ids for problem_id in self.problem_ids]) for ids in of_fold.values()]


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
        by_seed = tuple(map(mean_or_none, shown[name]))
        by_fold = tuple(mean_or_none(mean_of_known(shown[name])[member]) for member in members)
        # A gap is over the problems of each training on which all three have a value.
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


def compared_pairs(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names to compare: the paper's rule with the others, the energy vote with the plain vote, and each selector of
    the decision with the vote, the best author and the paper's rule.

    Args:
        groups: Group of each selector.
    """
    rule = [
        (PAPER_RULE, name)
        for name, group in groups.items()
        if PAPER_RULE in groups and group not in ("paper", "loop", "bound")
    ]
    votes = [(WEIGHTED_VOTE, VOTE)] if {WEIGHTED_VOTE, VOTE} <= {*groups} else []
    further = [name for name, group in groups.items() if group == "decision"]
    rivals = [(name, other) for name in further for other in (VOTE, BEST_GENERATOR, PAPER_RULE) if other in groups]
    return distinct([*rule, *votes, *rivals])


def mean_or_none(values: Floats) -> float | None:
    """Mean of the values that are not NaN. None without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def sample_deviation(values: Sequence[float | None]) -> float | None:
    """Standard deviation (ddof=1) of the known values. None with fewer than two."""
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


# ---- certainty -------------------------------------------------------------------------------------------------------


def _confidence(layout: _Layout, bootstrap: Bootstrap) -> tuple[list[SignalRow], list[Reliability]]:
    """Worth and calibration of the posterior's confidence over all problems, per seed. Empty without a posterior."""
    if not any(training.decision for training in layout.trainings):
        return [], []

    columns = map(layout.table, map(_of_decision, ("confidence", "correct", "violation")))
    rows, calibrations = list[SignalRow](), list[Reliability]()
    for seed, confidence, correct, violation in zip(layout.seeds, *columns, strict=True):
        stated = Stated(confidence=confidence, correct=correct, violation=violation)
        rows.append(stated.row(bootstrap))
        called = CONFIDENCE if len(layout.seeds) == 1 else f"{CONFIDENCE}, seed {seed}"
        calibrations.append(stated.reliability(bootstrap, name=called))
    return rows, calibrations


def _of_decision(field: str) -> Callable[[Training], Floats | None]:
    return lambda training: None if training.decision is None else getattr(training.decision, field)


def _absent(layout: _Layout) -> dict[str, tuple[int, ...]]:
    """Folds, by name, in which some training lacks a selector that another has."""
    names = [(training.facts.fold, {entry.name for entry in training.entries}) for training in layout.trainings]
    absent = {
        name: tuple(sorted({fold for fold, own in names if fold is not None and name not in own}))
        for name in sorted(set[str]().union(*(own for _, own in names)))
    }
    return {name: folds for name, folds in absent.items() if folds}
