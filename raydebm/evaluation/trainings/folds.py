"""Folds joined: every problem of a pool tested once, by a training that did not see it.

In:   the evaluation of each fold's training.
Out:  per selector and per signal of certainty one value on every problem, and what follows from them over all problems.
Does not know: how a fold was trained.

Selectors and signals are joined by name, whatever they are. A signal keeps the scale of its own fold: nothing is
standardised across folds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.confidence_calibration import confidence_calibration
from raydebm.evaluation.certainty.reliability import Reliability
from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.certainty.trust import CONFIDENCE, LEARNED, Certainty
from raydebm.evaluation.certainty.uncertainty import SignalRow
from raydebm.evaluation.certainty.worth import CORRECT
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, OURS, VOTE, SelectorEntry
from raydebm.evaluation.results.texts_read import TextsRead, joined_texts
from raydebm.evaluation.selectors.selector import BEST_GENERATOR
from raydebm.evaluation.stats.intervals import Bootstrap, Floats, mean_of_known
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison, compare, distinct
from raydebm.evaluation.trainings.seed_signals import SeedSignal, seed_signals, signal_auroc
from raydebm.evaluation.trainings.seeds import SeedRow, mean_or_none, sample_deviation, seed_rows, standard_pairs
from raydebm.evaluation.trainings.training_values import SelectorValues, Training

CONFIDENCES = (CONFIDENCE, LEARNED)
"""Signals that state a probability that the selection is correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFacts:
    """Sizes and settings of one training that tested one fold."""

    fold: int
    seed: int
    num_test: int
    num_train: int
    """Problems that the adapters may train on."""
    num_validation: int
    """Problems for early stopping and for whatever is chosen or fitted after training."""
    num_pairs: int
    """Pairs of training candidates."""
    lambda_: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldTraining:
    """One training on all folds but one, evaluated on that one."""

    facts: FoldFacts
    training: Training


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRow:
    """One selector over all folds."""

    overall: SeedRow
    """Over all problems; ``by_seed`` and ``sd`` where folds were trained with several seeds."""
    by_fold: tuple[float | None, ...]
    """pass@1 on each fold's problems, mean over seeds; mean violation where the task has one."""
    sd: float | None
    """Standard deviation of ``by_fold`` (ddof=1): other problems and another training at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSignal:
    """One signal of certainty over all folds."""

    overall: SeedSignal
    """Ranked over all problems, each with the value that its fold's training gave."""
    auroc_by_fold: tuple[float | None, ...]
    """Within each fold, mean over seeds; None where a fold's selections are all correct or all incorrect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSummary(JsonResults):
    title: str
    task: str
    num_folds: int
    seeds: tuple[int, ...]
    num_problems: int
    folds: tuple[FoldFacts, ...]
    rows: tuple[FoldRow, ...]
    comparisons: tuple[Comparison, ...]
    signals: tuple[FoldSignal, ...]
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
        return any(row.overall.mean_violation.value is not None for row in self.rows)

    def row(self, name: str) -> FoldRow | None:
        """The row of a selector; None where no fold has it."""
        return next((row for row in self.rows if row.overall.name == name), None)


def join_folds(parts: Sequence[FoldTraining]) -> Training:
    """One training over the problems of all folds, which must be of one seed.

    A selector or signal that a fold does not have is NaN on that fold's problems.

    Raises:
        PoolError: a problem is tested by two folds, or the parts differ in their seed.
    """
    seeds = sorted({part.training.seed for part in parts})
    if len(seeds) != 1:
        raise PoolError(f"folds to be joined must be of one seed, got seeds {seeds}")
    tested: dict[str, int] = {}
    for part in parts:
        for problem_id in part.training.problem_ids:
            other = tested.setdefault(problem_id, part.facts.fold)
            if other != part.facts.fold:
                raise PoolError(f"problem {problem_id!r} is tested by fold {other} and by fold {part.facts.fold}")
    trainings = [part.training for part in parts]
    return Training(
        seed=seeds[0],
        problem_ids=tuple(problem_id for training in trainings for problem_id in training.problem_ids),
        entries=_joined_entries(trainings),
        certainty=_joined_certainty(trainings, [training.certainty for training in trainings]),
        decision=_joined_certainty(trainings, [training.decision for training in trainings]),
    )


def _joined_entries(trainings: Sequence[Training]) -> list[SelectorEntry]:
    by_name = [{entry.name: entry for entry in training.entries} for training in trainings]
    joined = []
    for name in _merged([list(entries) for entries in by_name]):
        first = next(entries[name] for entries in by_name if name in entries)
        rows = [
            (entries[name].correct, entries[name].violation) if name in entries else _nothing(training)
            for training, entries in zip(trainings, by_name, strict=True)
        ]
        correct = np.concatenate([row[0] for row in rows])
        violation = np.concatenate([row[1] for row in rows])
        joined.append(replace(first, correct=correct, violation=violation, unlabeled=np.isnan(correct)))
    return joined


def _joined_certainty(trainings: Sequence[Training], parts: Sequence[Certainty | None]) -> Certainty | None:
    """None where no training has signals."""
    if all(part is None for part in parts):
        return None
    by_name = [{} if part is None else {signal.name: signal for signal in part.signals} for part in parts]
    signals = []
    for name in _merged([list(own_signals) for own_signals in by_name]):
        first = next(own_signals[name] for own_signals in by_name if name in own_signals)
        values = [
            own_signals[name].values if name in own_signals else _nothing(training)[0]
            for training, own_signals in zip(trainings, by_name, strict=True)
        ]
        signals.append(Signal(name, first.description, np.concatenate(values)))
    known = [
        _nothing(training) if part is None else (part.correct, part.violation)
        for training, part in zip(trainings, parts, strict=True)
    ]
    return Certainty(
        signals=tuple(signals),
        correct=np.concatenate([row[0] for row in known]),
        violation=np.concatenate([row[1] for row in known]),
        reliabilities=(),
    )


def _nothing(training: Training) -> tuple[Floats, Floats]:
    absent = np.full(len(training.problem_ids), math.nan)
    return absent, absent


def _merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """All names, each after the one that it follows where it first occurs."""
    merged: list[str] = []
    for names in lists:
        place = 0
        for name in names:
            if name not in merged:
                merged.insert(place, name)
            place = merged.index(name) + 1
    return merged


def summarise_folds(
    parts: Sequence[FoldTraining], *, title: str, task: str, num_bootstrap: int, seed: int = 0
) -> FoldSummary:
    """Join the folds of each seed, and compare selectors and signals over all problems.

    Args:
        parts: of every fold and seed.
        seed: of the resamples and permutations.

    Raises:
        PoolError: fewer than two folds, a seed that lacks a fold or has one twice, or a problem in two folds.
    """
    by_seed = _by_seed(parts)
    joined = [join_folds(of_seed) for of_seed in by_seed.values()]
    values = SelectorValues.of(joined)
    bootstrap = Bootstrap.of(len(values.problem_ids), num_bootstrap=num_bootstrap, seed=seed)
    fold_of = {problem_id: part.facts.fold for part in parts for problem_id in part.training.problem_ids}
    member = np.array([fold_of[problem_id] for problem_id in values.problem_ids])
    folds = sorted(set(fold_of.values()))
    return FoldSummary(
        title=title,
        task=task,
        num_folds=len(folds),
        seeds=tuple(by_seed),
        num_problems=len(values.problem_ids),
        folds=tuple(part.facts for of_seed in by_seed.values() for part in of_seed),
        rows=tuple(_rows(values, bootstrap, [member == fold for fold in folds])),
        comparisons=tuple(compare(values.judged, fold_pairs(values.groups), bootstrap=bootstrap, seed=seed)),
        signals=tuple(
            FoldSignal(overall=row, auroc_by_fold=tuple(_auroc(row.name, parts, fold) for fold in folds))
            for row in seed_signals(joined, values, bootstrap=bootstrap)
        ),
        decision=tuple(_decision(joined, values, bootstrap)),
        confidence=tuple(_confidence(joined, values, bootstrap)),
        absent=_absent(parts),
        texts_read=joined_texts(part.training.texts_read for part in parts),
    )


def _by_seed(parts: Sequence[FoldTraining]) -> dict[int, list[FoldTraining]]:
    by_seed: dict[int, list[FoldTraining]] = {}
    for part in sorted(parts, key=lambda part: (part.training.seed, part.facts.fold)):
        by_seed.setdefault(part.training.seed, []).append(part)
    folds = {seed: [part.facts.fold for part in of_seed] for seed, of_seed in by_seed.items()}
    wanted = sorted({part.facts.fold for part in parts})
    if len(wanted) < 2 or any(fold != wanted for fold in folds.values()):
        raise PoolError(f"a summary over folds needs two or more folds, each once for every seed, got {folds}")
    return by_seed


def _rows(values: SelectorValues, bootstrap: Bootstrap, members: Sequence[Floats]) -> list[FoldRow]:
    rows = []
    for row in seed_rows(values, bootstrap):
        worth = mean_of_known((values.violation if values.continuous else values.correct)[row.name])
        by_fold = tuple(mean_or_none(worth[member]) for member in members)
        rows.append(FoldRow(overall=row, by_fold=by_fold, sd=sample_deviation(by_fold)))
    return rows


def fold_pairs(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """The standard pairs, and each further selector of ours against the vote, the best author and the paper's rule.

    Args:
        groups: of each selector.
    """
    further = [
        name
        for name, group in groups.items()
        if group in ("ours", "decision") and name not in (OURS, ALL_PASSES, ANSWERED)
    ]
    pairs = [(name, other) for name in further for other in (VOTE, BEST_GENERATOR, OURS) if other in groups]
    return distinct([*standard_pairs(groups), *pairs])


def _auroc(name: str, parts: Sequence[FoldTraining], fold: int) -> float | None:
    known = [part.training.certainty for part in parts if part.facts.fold == fold]
    aurocs = [
        signal_auroc(signal.values, certainty.correct, np.ones((1, len(certainty.correct))))[0]
        for certainty in known
        if certainty is not None
        for signal in certainty.signals
        if signal.name == name
    ]
    return mean_or_none(np.array(aurocs))


def _resampled(training: Training, values: SelectorValues, bootstrap: Bootstrap) -> Bootstrap:
    """The resamples of the training's own problems, in its order."""
    places = {problem_id: index for index, problem_id in enumerate(values.problem_ids)}
    return Bootstrap(bootstrap.counts[:, [places[problem_id] for problem_id in training.problem_ids]])


def _decision(joined: Sequence[Training], values: SelectorValues, bootstrap: Bootstrap) -> list[SignalRow]:
    return [
        row
        for training in joined
        if (certainty := training.decision) is not None
        for row in certainty.rows(_resampled(training, values, bootstrap))
    ]


def _confidence(joined: Sequence[Training], values: SelectorValues, bootstrap: Bootstrap) -> list[Reliability]:
    reliabilities = []
    for training in joined:
        resampled = _resampled(training, values, bootstrap)
        for certainty in filter(None, (training.decision, training.certainty)):
            for signal in certainty.signals:
                if signal.name in CONFIDENCES:
                    name = signal.name if len(joined) == 1 else f"{signal.name}, seed {training.seed}"
                    event, outcome = _stated(certainty, signal.name)
                    reliabilities.append(confidence_calibration(name, event, signal.values, outcome, resampled))
    return reliabilities


def _stated(certainty: Certainty, name: str) -> tuple[str, Floats]:
    """What a probability is about, in words and as values: learned certainty is fitted on right and wrong alone."""
    return (CORRECT, certainty.correct) if name == LEARNED else (certainty.event, certainty.worth)


def _absent(parts: Sequence[FoldTraining]) -> dict[str, tuple[int, ...]]:
    """By name, the folds in which some training lacks a selector or signal that another has."""
    names = {
        (part.facts.fold, part.facts.seed): {
            *(entry.name for entry in part.training.entries),
            *(() if part.training.certainty is None else (s.name for s in part.training.certainty.signals)),
        }
        for part in parts
    }
    everything = sorted(set().union(*names.values()))
    absent = {name: sorted({fold for (fold, _), own in names.items() if name not in own}) for name in everything}
    return {name: tuple(folds) for name, folds in absent.items() if folds}
