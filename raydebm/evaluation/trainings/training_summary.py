"""Summary of several trainings of one recipe, by seeds and by folds.

In:   results of every selector and every signal of certainty of each training, on each of its test problems.
Out:  one row per selector and per signal. The interval is the variation over problems, the standard deviation over
      seeds that over trainings, and the standard deviation over folds includes both.

With folds every problem is tested once per seed, by a training that did not see it. Selectors and signals are joined by
name. A signal keeps the scale of its own training and is not standardised.

Shapes: S seeds, P problems.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import CONFIDENCE, LEARNED, Certainty, Reliability, reliability
from raydebm.evaluation.certainty.signals import (
    CORRECT,
    LEFT_OUT,
    NUM_RESAMPLES,
    Signal,
    SignalRow,
    event_of,
    is_graded,
    num_answered,
    risks,
    signal_rows,
    varies,
    worth_of,
)
from raydebm.evaluation.results.entries import VOTE, WEIGHTED_VOTE, SelectorEntry
from raydebm.evaluation.results.evaluation import TextsRead, joined_texts
from raydebm.evaluation.selectors import BEST_GENERATOR, PAPER_RULE
from raydebm.evaluation.stats.intervals import (
    Bootstrap,
    Estimate,
    Floats,
    fewest_of_a_class,
    mean_of_known,
    weighted_auroc,
)
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison, compare, distinct

CONFIDENCES = (CONFIDENCE, LEARNED)
"""Signals that are probabilities that the selection is correct."""


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
    certainty: Certainty | None = None
    """Signals about the selections by energy."""
    decision: Certainty | None = None
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
class TrainingSignal:
    """One signal over all trainings. "Right" is correct (1 or 0), or 1 - violation if the task has violation scores."""

    name: str
    auroc: Estimate
    """Mean over seeds of the AUROC for "the selection is correct", over all problems of a seed; 0.5 is chance."""
    right_at_80: Estimate
    """Mean over seeds of the mean of "right" among the 80 % most certain."""
    gain_at_80: Estimate
    """``right_at_80`` minus the mean of all. If the interval is above 0, abstaining by this signal helps."""


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
    signals: tuple[TrainingSignal, ...]
    decision: tuple[SignalRow, ...]
    """The posterior's confidence in the profile's selections, over all problems, one row per seed."""
    confidence: tuple[Reliability, ...]
    """Calibration in bins of equal mass over all problems, one per probability and seed."""
    absent: dict[str, tuple[int, ...]]
    """Folds without a selector or signal that others have, by its name."""
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
    return TrainingSummary(
        title=title,
        task=task,
        seeds=layout.seeds,
        folds=layout.folds,
        num_problems=len(layout.problem_ids),
        trainings=tuple(training.facts for training in layout.trainings),
        rows=tuple(rows),
        comparisons=tuple(compare(judged, compared_pairs(groups), bootstrap=bootstrap, seed=seed)),
        signals=tuple(_signals(layout, bootstrap, continuous=continuous)),
        decision=tuple(_decisions(layout, bootstrap)),
        confidence=tuple(_confidences(layout, bootstrap)),
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

    def of_every_seed(self, names_of: Callable[[Training], Sequence[str]]) -> list[str]:
        """Names that every seed has in some fold, in order of first occurrence."""
        merged: list[str] = []
        for names in map(names_of, self.trainings):
            place = 0
            for name in names:
                if name not in merged:
                    merged.insert(place, name)
                place = merged.index(name) + 1
        seeds_of = {name: {each.facts.seed for each in self.trainings if name in names_of(each)} for name in merged}
        return [name for name in merged if len(seeds_of[name]) == len(self.seeds)]

    def groups(self) -> dict[str, str]:
        """Group of each selector, in the order of the report."""
        group_of = {entry.name: entry.group for training in self.trainings for entry in training.entries}
        names = self.of_every_seed(lambda training: [entry.name for entry in training.entries])
        return {name: group_of[name] for name in names}

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

Which = Callable[[Training], Certainty | None]


def _names(which: Which) -> Callable[[Training], Sequence[str]]:
    def names_of(training: Training) -> list[str]:
        certainty = which(training)
        return [] if certainty is None else [signal.name for signal in certainty.signals]

    return names_of


def _signal_table(layout: _Layout, which: Which, name: str) -> Floats:
    def values_of(training: Training) -> Floats | None:
        certainty = which(training)
        signals = () if certainty is None else certainty.signals
        return next((signal.values for signal in signals if signal.name == name), None)

    return layout.table(values_of)


def _outcomes(layout: _Layout, which: Which) -> tuple[Floats, Floats]:
    """Correctness and violation of the selections, shape (S, P) each."""
    correct = layout.table(lambda each: None if (one := which(each)) is None else one.correct)
    return correct, layout.table(lambda each: None if (one := which(each)) is None else one.violation)


def _by_energy(training: Training) -> Certainty | None:
    return training.certainty


def _by_posterior(training: Training) -> Certainty | None:
    return training.decision


def _signals(layout: _Layout, bootstrap: Bootstrap, *, continuous: bool) -> list[TrainingSignal]:
    """One row for each signal that every seed has and that varies in one. Empty if a seed has no energies."""
    correct, violation = _outcomes(layout, _by_energy)
    rows = []
    for name in layout.of_every_seed(_names(_by_energy)):
        values = _signal_table(layout, _by_energy, name)
        if not any(map(varies, values)):
            continue
        columns = zip(values, correct, violation, strict=True)
        seeds = [_OneSeed.of(own, right, worth_of(right, lost), bootstrap) for own, right, lost in columns]
        at_80, gain, auroc = (
            np.mean([getattr(each, field) for each in seeds], axis=0) for field in ("at_80", "gain", "auroc")
        )
        n = max(each.n for each in seeds)
        of_right = bootstrap.interval if continuous else bootstrap.share
        rows.append(
            TrainingSignal(
                name=name,
                auroc=bootstrap.auroc_interval(
                    float(auroc[0]), auroc[1:], n, fewest=min(each.fewest for each in seeds)
                ),
                right_at_80=of_right(float(at_80[0]), at_80[1:], num_answered(LEFT_OUT, n)),
                gain_at_80=bootstrap.interval(float(gain[0]), gain[1:], n),
            )
        )
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class _OneSeed:
    """One signal of one seed: each statistic's value first, then its resamples; NaN where undefined."""

    n: int
    fewest: int
    """Smaller of the numbers of correct and incorrect selections."""
    at_80: Floats
    gain: Floats
    auroc: Floats

    @classmethod
    def of(cls, values: Floats, correct: Floats, worth: Floats, bootstrap: Bootstrap) -> "_OneSeed":
        weights = np.vstack([np.ones((1, len(values))), bootstrap.counts[:NUM_RESAMPLES]])
        known = ~(np.isnan(values) | np.isnan(worth))
        if not known.any():
            nothing = np.full(len(weights), math.nan)
            return cls(0, 0, nothing, nothing, nothing)
        base, risk = risks(values[known], worth[known], weights[:, known], (0.0, LEFT_OUT)).T
        fewest = fewest_of_a_class(correct[~np.isnan(values)])
        auroc = weighted_auroc(values, correct, weights)
        return cls(int(known.sum()), fewest, 1 - risk, base - risk, auroc)


def _decisions(layout: _Layout, bootstrap: Bootstrap) -> list[SignalRow]:
    if not any(training.decision for training in layout.trainings):
        return []
    confidence = _signal_table(layout, _by_posterior, CONFIDENCE)
    rows: list[SignalRow] = []
    for values, right, lost in zip(confidence, *_outcomes(layout, _by_posterior), strict=True):
        signal = Signal(CONFIDENCE, "probability that the selection is right, by the posterior", values)
        rows += signal_rows((signal,), worth_of(right, lost), bootstrap, correct=right)
    return rows


def _confidences(layout: _Layout, bootstrap: Bootstrap) -> list[Reliability]:
    reliabilities = []
    for which in (_by_posterior, _by_energy):
        correct, violation = _outcomes(layout, which)
        for name in (name for name in layout.of_every_seed(_names(which)) if name in CONFIDENCES):
            stated = _signal_table(layout, which, name)
            for seed, values, right, lost in zip(layout.seeds, stated, correct, violation, strict=True):
                # Learned certainty is fitted on right and wrong, not on violations.
                is_about_right = name == LEARNED or not is_graded(lost)
                event, outcome = (CORRECT, right) if is_about_right else (event_of(lost), worth_of(right, lost))
                called = name if len(layout.seeds) == 1 else f"{name}, seed {seed}"
                reliabilities.append(reliability(called, event, values, outcome, bootstrap))
    return reliabilities


def _absent(layout: _Layout) -> dict[str, tuple[int, ...]]:
    """Folds, by name, in which some training lacks a selector or signal that another has."""
    names = [
        (training.facts.fold, {entry.name for entry in training.entries} | {*_names(_by_energy)(training)})
        for training in layout.trainings
    ]
    everything = sorted(set[str]().union(*(own for _, own in names)))
    absent = {
        name: tuple(sorted({fold for fold, own in names if fold is not None and name not in own}))
        for name in everything
    }
    return {name: folds for name, folds in absent.items() if folds}
