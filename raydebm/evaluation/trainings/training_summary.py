"""Several trainings of one recipe, by seeds and by folds: what is left of a result when it is trained again.

In:   what every selector and every signal of certainty of each training says about each of its test problems.
Out:  one row per selector and per signal, with spreads that must not be mixed up: the interval says what other problems
      would change, the standard deviation over seeds what another training would, that over folds both at once.

With folds every problem is tested once per seed, by a training that did not see it. Selectors and signals are joined by
name, whatever they are. A signal keeps the scale of its own training: nothing is standardised.

Shapes: S seeds, P problems.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import Reliability, confidence_calibration
from raydebm.evaluation.certainty.signals import CORRECT, Signal, event_of, is_graded, varies, worth_of
from raydebm.evaluation.certainty.trust import CONFIDENCE, LEARNED, Certainty
from raydebm.evaluation.certainty.uncertainty import (
    LEFT_OUT,
    NUM_RESAMPLES,
    SignalRow,
    num_answered,
    risks,
    signal_rows,
)
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, OURS, VOTE, VOTES, SelectorEntry
from raydebm.evaluation.results.texts_read import TextsRead, joined_texts
from raydebm.evaluation.selectors.selector import BEST_GENERATOR
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
"""Signals that state a probability that the selection is correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """Sizes, settings and figures of one training that are shown one by one."""

    seed: int
    fold: int | None = None
    """The fold that it tested; None without folds."""
    num_test: int
    num_train: int
    """Problems that the adapters may train on."""
    num_validation: int
    """Problems for early stopping and for whatever is chosen or fitted after training."""
    num_pairs: int
    """Pairs of training candidates."""
    lambda_: float
    sigma_auroc: float | None = None
    within_generator: float | None = None
    """Mean over generators of the AUROC of -mu for correct among one generator's answers."""
    screen: str = ""
    """What the confounding screen says."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """One training's evaluation: all values stand in the order of ``problem_ids``."""

    facts: TrainingFacts
    problem_ids: tuple[str, ...]
    entries: Sequence[SelectorEntry]
    certainty: Certainty | None = None
    """About the selections by energy."""
    decision: Certainty | None = None
    """The posterior's confidence in the chosen profile's selections; None without a posterior."""
    texts_read: tuple[TextsRead, ...] = ()
    """What the scorer read of its texts, by split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One selector over all trainings."""

    name: str
    group: str
    pass_at_1: Estimate
    """Mean over problems of a problem's mean over the seeds that have a value for it."""
    mean_violation: Estimate
    by_seed: tuple[float | None, ...]
    """pass@1 of each seed; mean violation where the task has one."""
    by_fold: tuple[float | None, ...]
    """The same on each fold's problems, mean over seeds; empty without folds."""
    sd_of_seeds: float | None
    """Standard deviation of ``by_seed`` (ddof=1); None with fewer than two values."""
    sd_of_folds: float | None
    gap_closed: Estimate
    """(selector - random) / (oracle - random): in mean violation where the task has one, else in pass@1."""
    ours_minus: Estimate
    """Ours minus this selector in pass@1, paired by problem and seed; where the task has one, violation avoided by
    ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSignal:
    """One signal over all trainings; "right" is correct (1 or 0), or 1 - violation where the task has one."""

    name: str
    auroc: Estimate
    """Mean over seeds of the AUROC for "the selection is correct", over all problems of a seed; 0.5 is chance."""
    right_at_80: Estimate
    """Mean over seeds of the mean of "right" among the 80 % most certain."""
    gain_at_80: Estimate
    """The same minus that of all; an interval above 0: abstaining by this signal helps."""
    by_seed: tuple[float | None, ...]
    """gain_at_80 of each seed."""
    auroc_by_fold: tuple[float | None, ...]
    """Within each fold, mean over seeds; None where a fold's selections are all correct or all incorrect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary(JsonResults):
    title: str
    task: str
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    """Empty without folds."""
    num_problems: int
    """Distinct test problems."""
    trainings: tuple[TrainingFacts, ...]
    rows: tuple[TrainingRow, ...]
    comparisons: tuple[Comparison, ...]
    """Paired tests over problems of the means over seeds."""
    signals: tuple[TrainingSignal, ...]
    decision: tuple[SignalRow, ...]
    """The posterior's confidence in the chosen profile's selections, over all problems; one per seed."""
    confidence: tuple[Reliability, ...]
    """In bins of equal mass over all problems; one per probability and seed."""
    absent: dict[str, tuple[int, ...]]
    """Selectors and signals that some folds do not have, with these folds."""
    texts_read: tuple[TextsRead, ...] = ()
    """What the scorers read of their texts, by split, over all trainings."""

    @property
    def is_continuous(self) -> bool:
        """Whether labels have a violation score."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def row(self, name: str) -> TrainingRow | None:
        """The row of a selector; None where some seed lacks it."""
        return next((row for row in self.rows if row.name == name), None)


def summarise(
    trainings: Sequence[Training], *, title: str, task: str, num_bootstrap: int, seed: int = 0
) -> TrainingSummary:
    """Join the folds of each seed, and compare selectors and signals over all problems.

    Args:
        trainings: of different seeds; with folds, of every fold and seed.
        seed: of the resamples and permutations.

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
    """The trainings by seed and fold, and which place of a (S, P) table each of their values has."""

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
        """(S, P): each training's values in their places; NaN where a training has no value."""
        place = {problem_id: index for index, problem_id in enumerate(self.problem_ids)}
        table = np.full((len(self.seeds), len(place)), math.nan)
        for training in self.trainings:
            values = values_of(training)
            if values is not None:
                columns = [place[problem_id] for problem_id in training.problem_ids]
                table[self.seeds.index(training.facts.seed), columns] = values
        return table

    def of_every_seed(self, names_of: Callable[[Training], Sequence[str]]) -> list[str]:
        """The names that every seed has in some fold, each after the one that it follows where it first occurs."""
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
        """Each selector's group, in the order of the report."""
        group_of = {entry.name: entry.group for training in self.trainings for entry in training.entries}
        names = self.of_every_seed(lambda training: [entry.name for entry in training.entries])
        return {name: group_of[name] for name in names}

    def members(self) -> list[Floats]:
        """For each fold the places of its problems, as a mask over P."""
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
    ours = judged.get(OURS, np.full((len(layout.seeds), len(layout.problem_ids)), math.nan))
    members, rows = layout.members(), []
    for name, group in groups.items():
        by_seed = tuple(map(mean_or_none, shown[name]))
        by_fold = tuple(mean_or_none(mean_of_known(shown[name])[member]) for member in members)
        # A gap is of the problems of each training on which all three have a value.
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
                ours_minus=bootstrap.mean(mean_of_known(ours - judged[name])),
            )
        )
    return rows


def compared_pairs(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """Ours against the others, votes with energies against the plain one, and each further selector of ours against the
    vote, the best author and the paper's rule.

    Args:
        groups: of each selector.
    """
    ours = [(OURS, name) for name, group in groups.items() if OURS in groups and group not in ("ours", "bound")]
    votes = [(name, VOTE) for name in VOTES if {name, VOTE} <= {*groups}]
    further = [
        name
        for name, group in groups.items()
        if group in ("ours", "decision") and name not in (OURS, ALL_PASSES, ANSWERED)
    ]
    rivals = [(name, other) for name in further for other in (VOTE, BEST_GENERATOR, OURS) if other in groups]
    return distinct([*ours, *votes, *rivals])


def mean_or_none(values: Floats) -> float | None:
    """Mean of what is not NaN; None without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def sample_deviation(values: Sequence[float | None]) -> float | None:
    """Standard deviation (ddof=1) of the known values; None with fewer than two."""
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
    """(S, P) each: whether the selections are correct, and their violation."""
    correct = layout.table(lambda each: None if (one := which(each)) is None else one.correct)
    return correct, layout.table(lambda each: None if (one := which(each)) is None else one.violation)


def _by_energy(training: Training) -> Certainty | None:
    return training.certainty


def _by_posterior(training: Training) -> Certainty | None:
    return training.decision


def _signals(layout: _Layout, bootstrap: Bootstrap, *, continuous: bool) -> list[TrainingSignal]:
    """One row for each signal that every seed has and that varies in one; none where a seed has no energies."""
    correct, violation = _outcomes(layout, _by_energy)
    members, rows = layout.members(), []
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
                by_seed=tuple(mean_or_none(each.gain[:1]) for each in seeds),
                auroc_by_fold=tuple(_auroc_within(values[:, member], correct[:, member]) for member in members),
            )
        )
    return rows


def _auroc_within(values: Floats, correct: Floats) -> float | None:
    """Mean over the seeds, (S, p)."""
    rows = zip(values, correct, strict=True)
    return mean_or_none(np.array([weighted_auroc(*row, np.ones((1, len(row[0]))))[0] for row in rows]))


@dataclass(frozen=True, slots=True, eq=False)
class _OneSeed:
    """A signal of one seed: each statistic's value first, then its resamples; NaN where undefined."""

    n: int
    fewest: int
    """Correct or incorrect selections, whichever are fewer."""
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
                # Learned certainty is fitted on right and wrong alone.
                is_about_right = name == LEARNED or not is_graded(lost)
                event, outcome = (CORRECT, right) if is_about_right else (event_of(lost), worth_of(right, lost))
                called = name if len(layout.seeds) == 1 else f"{name}, seed {seed}"
                reliabilities.append(confidence_calibration(called, event, values, outcome, bootstrap))
    return reliabilities


def _absent(layout: _Layout) -> dict[str, tuple[int, ...]]:
    """By name, the folds in which some training lacks a selector or signal that another has."""
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
