"""What a certainty signal is worth: AUROC, and accuracy when the least certain are left unanswered."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, Weights, over_blocks

LEFT_OUT = 0.2
"""Share of the problems, the least certain, of ``accuracy_at_80``."""
NUM_RESAMPLES = 500
"""Resamples of the bootstrap that are used: rank statistics cost a sort per resample, and 500 give the interval to
about a tenth of its width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """How well one signal predicts which of a selector's selections are right.

    Accuracy is mean worth, and an error is 1 - worth: share correct and share wrong, or 1 - violation and violation.
    """

    name: str
    description: str
    auroc: Estimate
    """For "the selection is correct"; 0.5 is chance."""
    accuracy_at_80: Estimate
    """Mean worth of the 80 % most certain."""
    gain_at_80: Estimate
    """accuracy_at_80 minus the accuracy on all problems; an interval above 0: abstaining by this signal helps."""


def signal_rows(
    signals: Sequence[Signal], worth: Floats, bootstrap: Bootstrap, *, correct: Floats | None = None
) -> tuple[SignalRow, ...]:
    """Evaluate each signal.

    Args:
        worth: (P,), in [0, 1] or NaN, of the selection that the signals are about.
        correct: (P,), 1, 0 or NaN, whether it is correct, for the AUROC; None: the worth says so.
    """
    fewer = Bootstrap(bootstrap.counts[:NUM_RESAMPLES])
    return tuple(_row(signal, worth, worth if correct is None else correct, fewer) for signal in signals)


def _row(signal: Signal, worth: Floats, correct: Floats, bootstrap: Bootstrap) -> SignalRow:
    known = ~(np.isnan(signal.values) | np.isnan(worth))
    n = int(known.sum())
    at_80 = gain = NOTHING
    if n:
        # The first row is the sample itself, the others are its resamples.
        weights = np.vstack([np.ones((1, n), dtype=np.uint8), bootstrap.counts[:, known]])
        base, risk = risks(signal.values[known], worth[known], weights, (0.0, LEFT_OUT)).T
        accuracy = 1 - risk
        gains = accuracy + base - 1
        at_80 = bootstrap.share(float(accuracy[0]), accuracy[1:], num_answered(LEFT_OUT, n))
        gain = bootstrap.interval(float(gains[0]), gains[1:], n)
    return SignalRow(
        name=signal.name,
        description=signal.description,
        auroc=bootstrap.auroc(signal.values, correct) if n else NOTHING,
        accuracy_at_80=at_80,
        gain_at_80=gain,
    )


def num_answered(left_out: float, n: int) -> int:
    """Problems of n that are answered when this share is not."""
    return n - round(left_out * n)


def risks(certainty: Floats, right: Floats, weights_Bn: Weights, left_out: Sequence[float]) -> Floats:  # noqa: N803
    """(B, F): share of errors among the most certain problems, in each of B weightings; equal certainties share theirs.

    Args:
        certainty: (n,).
        right: (n,), in [0, 1].
        weights_Bn: whole numbers >= 0; a weight of w counts as w problems.
        left_out: F shares that are not answered; of equal certainties that such a limit cuts through, its share counts.
    """
    order = np.argsort(-certainty, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(certainty[order]) != 0])
    wrong = 1 - right[order]

    def measured(block: Weights) -> Floats:
        weight = np.take(block, order, axis=1).astype(np.float64)
        errors = weight * wrong
        if len(starts) < len(order):
            weight, errors = (np.add.reduceat(values, starts, axis=1) for values in (weight, errors))
        reached, lost = np.cumsum(weight, axis=1), np.cumsum(errors, axis=1)
        limits = [reached[:, -1] - np.round(share * reached[:, -1]) for share in left_out]
        return np.stack([_risk(limit, weight, errors, reached, lost) for limit in limits], axis=1)

    return over_blocks(measured, weights_Bn)


def _risk(limit: Floats, weight: Floats, errors: Floats, reached: Floats, lost: Floats) -> Floats:
    """(b,): share of errors among the most certain that weigh ``limit``, (b,), together; NaN where that is 0.

    Args:
        weight: (b, G), of each group of equals; ``errors`` likewise, ``reached`` and ``lost`` are their running sums.
    """
    rows = np.arange(len(limit))
    cut = np.array([np.searchsorted(*pair, side="right") for pair in zip(reached, limit, strict=True)], dtype=np.intp)
    inside = np.minimum(cut, weight.shape[1] - 1)
    before, wrong = reached[rows, inside] - weight[rows, inside], lost[rows, inside] - errors[rows, inside]
    of_cut = errors[rows, inside] * (limit - before) / np.maximum(weight[rows, inside], 1)
    total = np.where(cut < weight.shape[1], wrong + of_cut, lost[:, -1])
    risk: Floats = np.divide(total, limit, where=limit > 1e-12, out=np.full(len(total), math.nan))
    return risk
