"""What abstaining by each certainty signal brings, over several trainings of one run.

In:   each training's signals about its own selections, and what became of them.
Out:  one row per signal, with an interval over problems and the values of each training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.certainty.signals import SIGMA, varies
from raydebm.evaluation.certainty.trust import CONFIDENCE, LEARNED, Certainty
from raydebm.evaluation.certainty.uncertainty import LEFT_OUT, NUM_RESAMPLES, Ranking, num_answered
from raydebm.evaluation.report.table_cells import Table, number, points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats, fewest_of_a_class, weighted_auroc
from raydebm.evaluation.trainings.training_values import SelectorValues, Training


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSignal:
    """One signal; "right" is correct (1 or 0), or 1 - violation where the task has one."""

    name: str
    auroc: Estimate
    """Mean over trainings of the AUROC for "the selection is correct"; 0.5 is chance."""
    right_at_80: Estimate
    """Mean over trainings of the mean of "right" among the 80 % most certain."""
    gain_at_80: Estimate
    """The same minus that of all; an interval above 0: abstaining by this signal helps."""
    by_seed: tuple[float | None, ...]
    """gain_at_80 of each training."""


def seed_signals(
    trainings: Sequence[Training], values: SelectorValues, *, bootstrap: Bootstrap
) -> tuple[SeedSignal, ...]:
    """One row for each signal that every training has and that varies in one; none where a training has no energies.

    Args:
        values: of the same trainings; says in which order ``bootstrap`` resamples the problems.
    """
    known = [training.certainty for training in trainings if training.certainty is not None]
    if not known or len(known) < len(trainings):
        return ()
    by_name = [{signal.name: signal.values for signal in certainty.signals} for certainty in known]
    names = [
        name
        for name in by_name[0]
        if all(name in columns for columns in by_name) and any(varies(columns[name]) for columns in by_name)
    ]
    places = {problem_id: index for index, problem_id in enumerate(values.problem_ids)}
    counts = bootstrap.counts[:NUM_RESAMPLES]
    resamples = [counts[:, [places[problem_id] for problem_id in training.problem_ids]] for training in trainings]
    return tuple(
        _row(
            name,
            [_of_training(name, certainty, own) for certainty, own in zip(known, resamples, strict=True)],
            bootstrap,
            values.continuous,
        )
        for name in names
    )


@dataclass(frozen=True, slots=True, eq=False)
class _OneTraining:
    """Each statistic's value first, then its resamples; NaN where undefined."""

    n: int
    fewest: int
    """Correct or incorrect selections, whichever are fewer."""
    at_80: Floats
    gain: Floats
    auroc: Floats


def _of_training(name: str, certainty: Certainty, counts: Floats) -> _OneTraining:
    values = next(signal.values for signal in certainty.signals if signal.name == name)
    right = certainty.worth
    weights = np.vstack([np.ones((1, len(values))), counts])
    known = ~(np.isnan(values) | np.isnan(right))
    n = int(known.sum())
    if n == 0:
        nothing = np.full(len(weights), math.nan)
        return _OneTraining(0, 0, nothing, nothing, nothing)
    curves = Ranking.of(values[known], right[known]).curves(weights[:, known], (LEFT_OUT,))
    at_80 = curves.accuracy[:, 0]
    gain = at_80 - (1 - curves.risk)
    fewest = fewest_of_a_class(certainty.correct[~np.isnan(values)])
    return _OneTraining(n, fewest, at_80, gain, signal_auroc(values, certainty.correct, weights))


def signal_auroc(values: Floats, correct: Floats, weights: Floats) -> Floats:
    """AUROC of each weighting of the problems, shape (B,); problems with NaN are left out, NaN where one class lacks.

    Args:
        values: shape (P,); higher is more certain.
        correct: shape (P,); 1 or 0.
        weights: shape (B, P).
    """
    known = ~(np.isnan(values) | np.isnan(correct))
    if not known.any():
        return np.full(len(weights), math.nan)
    return weighted_auroc(values[known], correct[known], weights[:, known])


def _row(name: str, trainings: Sequence[_OneTraining], bootstrap: Bootstrap, continuous: bool) -> SeedSignal:
    at_80 = np.mean([training.at_80 for training in trainings], axis=0)
    gain = np.mean([training.gain for training in trainings], axis=0)
    auroc = np.mean([training.auroc for training in trainings], axis=0)
    n = max(training.n for training in trainings)
    of_right = bootstrap.interval if continuous else bootstrap.share
    return SeedSignal(
        name=name,
        auroc=bootstrap.auroc_interval(
            float(auroc[0]), auroc[1:], n, fewest=min(training.fewest for training in trainings)
        ),
        right_at_80=of_right(float(at_80[0]), at_80[1:], num_answered(LEFT_OUT, n)),
        gain_at_80=bootstrap.interval(float(gain[0]), gain[1:], n),
        by_seed=tuple(None if math.isnan(training.gain[0]) else float(training.gain[0]) for training in trainings),
    )


def best_signal(rows: Sequence[SeedSignal]) -> SeedSignal | None:
    """The one that gains most, in hindsight."""
    known = [row for row in rows if row.gain_at_80.value is not None]
    return max(known, key=lambda row: row.gain_at_80.value or 0.0, default=None)


def signal_sentence(rows: Sequence[SeedSignal], *, continuous: bool) -> str:
    """What abstention brings, by sigma, by the learned signal and by the best one; empty without signals."""
    best = best_signal(rows)
    if best is None:
        return ""
    what = "1 - violation changes" if continuous else "accuracy changes"
    unit = "" if continuous else " points"
    # Sigma is the paper's signal and the others were fitted on validation: these were not chosen here.
    fixed = [row for row in rows if row.name in (SIGMA, LEARNED, CONFIDENCE)]
    parts = [f"by {row.name} {_gain(row, continuous=continuous)}{unit} ({_verdict(row)})" for row in fixed]
    if best not in fixed:
        which = f"the best of {len(rows)} signals, in hindsight"
        parts.append(f"by {best.name} {_gain(best, continuous=continuous)}{unit} ({which})")
    return f"Where the least certain fifth is not answered, {what} {'; '.join(parts)}."


def _verdict(row: SeedSignal) -> str:
    low, high = row.gain_at_80.low, row.gain_at_80.high
    if low is None or high is None:
        return "interval unknown"
    return "helps" if low > 0 else "harms" if high < 0 else "not shown to help"


def _gain(row: SeedSignal, *, continuous: bool) -> str:
    return number(row.gain_at_80, signed=True) if continuous else points(row.gain_at_80)


def signal_table(rows: Sequence[SeedSignal], seeds: Sequence[int], *, continuous: bool) -> Table:
    """How well each signal tells right from wrong selections, by training."""
    best = best_signal(rows)
    scale, digits = (1.0, 3) if continuous else (100.0, 1)
    what = "1 - violation" if continuous else "accuracy %"
    return Table(
        title="Leaving the least certain fifth unanswered",
        caption=(
            f"By each certainty signal, means over {len(seeds)} trainings: AUROC for a correct selection in % (50 is "
            f"chance), {what} among the 80 % most certain "
            "selections, and the gain over answering everything; a gain whose interval (over problems) is above 0 is "
            "what abstaining by this signal brings. Then the gain of each training. Set apart: the best one, found in "
            "hindsight."
        ),
        headers=("signal", "AUROC %", f"{what} at 80 %", "gain", *(f"seed {seed}" for seed in seeds), "n"),
        rows=tuple(
            (
                row.name,
                with_interval(row.auroc),
                number(row.right_at_80) if continuous else with_interval(row.right_at_80),
                _gain(row, continuous=continuous),
                *("-" if value is None else f"{scale * value:+.{digits}f}" for value in row.by_seed),
                str(row.gain_at_80.n),
            )
            for row in rows
        ),
        emphasised=tuple(index for index, row in enumerate(rows) if row is best),
    )
