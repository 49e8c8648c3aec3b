"""What abstaining by each certainty signal brings, over several trainings of one run.

In:   each training's signals about its own selections, and what became of them.
Out:  one row a signal, with an interval over problems and the values of each training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.intervals import Bootstrap, Estimate, Floats
from raydebm.evaluation.signals import SIGMA
from raydebm.evaluation.table_cells import Table, number, points, with_interval
from raydebm.evaluation.trust import LEARNED, Certainty
from raydebm.evaluation.uncertainty import LEFT_OUT, NUM_RESAMPLES, Ranking, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSignal:
    """One signal; "right" is correct (1 or 0), or 1 - violation where the task has one."""

    name: str
    right_at_80: Estimate
    """Mean over trainings of the mean of "right" among the 80 % most certain."""
    gain_at_80: Estimate
    """The same minus that of all; an interval above 0: abstaining by this signal helps."""
    by_seed: tuple[float | None, ...]
    """gain_at_80 of each training."""


def seed_signals(
    certainties: Sequence[Certainty | None],
    problem_ids: Sequence[Sequence[str]],
    *,
    bootstrap: Bootstrap,
    places: Mapping[str, int],
    continuous: bool,
) -> tuple[SeedSignal, ...]:
    """One row for each signal that every training has; none where a training has no energies.

    Args:
        problem_ids: of each training, in the order of its signals' values.
        places: of each problem among the columns of the bootstrap's resamples.
        continuous: judge by violation.
    """
    known = [found for found in certainties if found is not None]
    if not known or len(known) < len(certainties):
        return ()
    names = [
        signal.name
        for signal in known[0].signals
        if all(any(other.name == signal.name for other in found.signals) for found in known)
    ]
    counts = bootstrap.counts[:NUM_RESAMPLES]
    columns = [[places[problem_id] for problem_id in ids] for ids in problem_ids]
    return tuple(
        _row(
            name,
            [_of_training(name, found, counts[:, own], continuous) for found, own in zip(known, columns, strict=True)],
            bootstrap,
            continuous,
        )
        for name in names
    )


@dataclass(frozen=True, slots=True, eq=False)
class _OneTraining:
    n: int
    at_80: Floats
    """The value first, then its resamples; NaN where undefined."""
    gain: Floats


def _of_training(name: str, found: Certainty, counts: Floats, continuous: bool) -> _OneTraining:
    values = next(signal.values for signal in found.signals if signal.name == name)
    right = 1 - found.violation if continuous else found.correct
    known = ~(np.isnan(values) | np.isnan(right))
    n = int(known.sum())
    if n == 0:
        nothing = np.full(len(counts) + 1, math.nan)
        return _OneTraining(0, nothing, nothing)
    weights = np.vstack([np.ones((1, n)), counts[:, known]])
    curves = Ranking.of(values[known], right[known])
    at_80 = curves.accuracy_without(LEFT_OUT, weights)
    return _OneTraining(n, at_80, at_80 - (1 - curves.risk(weights)))


def _row(name: str, trainings: Sequence[_OneTraining], bootstrap: Bootstrap, continuous: bool) -> SeedSignal:
    at_80 = np.mean([training.at_80 for training in trainings], axis=0)
    gain = np.mean([training.gain for training in trainings], axis=0)
    n = max(training.n for training in trainings)
    of_right = bootstrap.interval if continuous else bootstrap.share
    return SeedSignal(
        name=name,
        right_at_80=of_right(float(at_80[0]), at_80[1:], kept(LEFT_OUT, n)),
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
    # Sigma is the paper's signal and the learned one was fitted on validation: these two were not chosen here.
    fixed = [row for row in rows if row.name in (SIGMA, LEARNED)]
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
    best = best_signal(rows)
    scale, digits = (1.0, 3) if continuous else (100.0, 1)
    what = "1 - violation" if continuous else "accuracy %"
    return Table(
        title="Leaving the least certain fifth unanswered",
        caption=(
            f"By each certainty signal, means over {len(seeds)} trainings: {what} among the 80 % most certain "
            "selections, and the gain over answering everything; a gain whose interval (over problems) is above 0 is "
            "what abstaining by this signal brings. Then the gain of each training. Set apart: the best one, found in "
            "hindsight."
        ),
        headers=("signal", f"{what} at 80 %", "gain", *(f"seed {seed}" for seed in seeds), "n"),
        rows=tuple(
            (
                row.name,
                number(row.right_at_80) if continuous else with_interval(row.right_at_80),
                _gain(row, continuous=continuous),
                *("-" if value is None else f"{scale * value:+.{digits}f}" for value in row.by_seed),
                str(row.gain_at_80.n),
            )
            for row in rows
        ),
        emphasised=tuple(index for index, row in enumerate(rows) if row is best),
    )
