"""What a certainty signal is worth: AUROC, risk and coverage, and accuracy when the least certain are left unanswered.

Definitions (n problems with a label and a signal, sorted from the most certain; equal signals share their errors):

- risk(c): share of wrong selections among the share c that is most certain; AURC: its mean over c = 1/n, 2/n, ..., 1.
- PRR (prediction rejection ratio): (risk(1) - AURC) / (risk(1) - AURC of a perfect signal); 0 for a signal that is no
  better than chance, 1 for a perfect one, over the whole range of rejection. The older definition, with errors counted
  over all problems instead of the retained ones, is 2 AUROC - 1 for right-or-wrong outcomes and adds nothing to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, Weights, over_blocks

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LEFT_OUT = 0.2
"""Share of the problems, the least certain, of ``accuracy_at_80``."""
NUM_RESAMPLES = 500
"""Resamples of the bootstrap that are used: rank statistics cost a sort per resample, and 500 give the interval to
about a tenth of its width."""
NUM_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """How well one signal predicts which of a selector's selections are right.

    Accuracy is mean worth, and an error is 1 - worth: share correct and share wrong, or 1 - violation and violation.
    """

    name: str
    description: str
    auroc: Estimate
    """For "the selection is correct"; 0.5 is chance."""
    aurc: Estimate
    """Lower is better."""
    prr: Estimate
    accuracy_at_80: Estimate
    """Mean worth of the 80 % most certain."""
    gain_at_80: Estimate
    """accuracy_at_80 minus the accuracy on all problems; an interval above 0: abstaining by this signal helps."""
    selective: tuple[Estimate, ...]
    """Accuracy with 0, 10, ..., 50 % left unanswered."""
    risk_coverage: tuple[tuple[float, float], ...]
    """(coverage, risk) points of the curve."""


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
    if n == 0:
        return SignalRow(
            name=signal.name, description=signal.description, auroc=NOTHING, aurc=NOTHING, prr=NOTHING,
            accuracy_at_80=NOTHING, gain_at_80=NOTHING, selective=(NOTHING,) * len(FRACTIONS),
            risk_coverage=(),
        )  # fmt: skip
    certainty, right = signal.values[known], worth[known]
    # The first row is the sample itself, the others are its resamples.
    weights = np.vstack([np.ones((1, n), dtype=np.uint8), bootstrap.counts[:, known]])
    curves = Ranking.of(certainty, right).curves(weights, (*FRACTIONS, LEFT_OUT))
    base, best = curves.risk, perfect_aurc(1 - right, weights)
    *selective, at_80 = curves.accuracy.T

    def interval(values: Floats) -> Estimate:
        return bootstrap.interval(float(values[0]), values[1:], n)

    return SignalRow(
        name=signal.name,
        description=signal.description,
        auroc=bootstrap.auroc(signal.values, correct),
        aurc=interval(curves.aurc),
        prr=interval(_ratio(base - curves.aurc, base - best)),
        accuracy_at_80=bootstrap.share(float(at_80[0]), at_80[1:], num_answered(LEFT_OUT, n)),
        gain_at_80=interval(at_80 + base - 1),
        selective=tuple(
            bootstrap.share(float(values[0]), values[1:], num_answered(fraction, n))
            for fraction, values in zip(FRACTIONS, selective, strict=True)
        ),
        risk_coverage=Ranking.of(certainty, right).points(),
    )


def _ratio(top: Floats, bottom: Floats) -> Floats:
    values: Floats = np.divide(top, bottom, where=bottom > 1e-12, out=np.full(len(top), math.nan))
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """What a ranking is worth in each of B weightings of its problems; a weight of w counts as w problems."""

    risk: Floats
    """(B,): share of errors among all."""
    aurc: Floats
    """(B,): mean risk over all coverages."""
    accuracy: Floats
    """(B, F): share right when each share, the least certain, is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Problems from the most certain to the least; equal certainties form a group G whose members share its errors."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    """First place of each group."""
    right: Floats
    """In [0, 1], in the original order."""

    @classmethod
    def of(cls, certainty: Floats, right: Floats) -> "Ranking":
        """Rank choices by certainty, the surest first; equal ones form one group."""
        order = np.argsort(-certainty, kind="stable")
        return cls(order, np.flatnonzero(np.r_[True, np.diff(certainty[order]) != 0]), right)

    def curves(self, weights_Bn: Weights, left_out: Sequence[float] = ()) -> Curves:  # noqa: N803
        """What the ranking is worth under each weighting.

        Args:
            weights_Bn: whole numbers >= 0.
            left_out: shares that are not answered, F; of a group that such a limit cuts through, its share counts.
        """

        def measured(block: Weights) -> Floats:
            weight, errors = self._groups(block)
            reached, lost = np.cumsum(weight, axis=1), np.cumsum(errors, axis=1)
            total = reached[:, -1]
            risk = _ratio(lost[:, -1], total)
            area = _ratio(_area(weight, errors, reached, lost), total)
            limits = [total - np.round(share * total) for share in left_out]
            wrong = [_lost_up_to(limit, weight, errors, reached, lost) for limit in limits]
            accuracy = [1 - _ratio(count, limit) for limit, count in zip(limits, wrong, strict=True)]
            return np.stack([risk, area, *accuracy], axis=1)

        columns = over_blocks(measured, weights_Bn)
        return Curves(columns[:, 0], columns[:, 1], columns[:, 2:])

    def _groups(self, weights_bn: Weights) -> tuple[Floats, Floats]:
        """Weight and weighted errors of each group, (b, G)."""
        ordered = np.take(weights_bn, self.order, axis=1).astype(np.float64)
        errors = ordered * (1 - self.right[self.order])
        if len(self.starts) == len(self.order):
            return ordered, errors
        return np.add.reduceat(ordered, self.starts, axis=1), np.add.reduceat(errors, self.starts, axis=1)

    def points(self) -> tuple[tuple[float, float], ...]:
        """At most ``NUM_POINTS`` points of the risk-coverage curve."""
        weight, errors = self._groups(np.ones((1, len(self.right))))
        total = float(weight.sum())
        coverage, risk = np.cumsum(weight[0]) / total, np.cumsum(errors[0]) / np.cumsum(weight[0])
        shown = np.unique(np.linspace(0, len(coverage) - 1, min(NUM_POINTS, len(coverage))).round().astype(int))
        return tuple((float(coverage[index]), float(risk[index])) for index in shown)


def num_answered(left_out: float, n: int) -> int:
    """Problems of n that are answered when this share is not."""
    return n - round(left_out * n)


def _area(weight: Floats, errors: Floats, reached: Floats, lost: Floats) -> Floats:
    """(b,): sum of the risks over all coverages, from (b, G) weights and errors of groups and their running sums.

    Within a group of weight w and error share r after cumulated weight W and errors E, the mean over its w steps of
    (E + r j) / (W + j), j = 1..w, is r + (E - r W) * (H(W + w) - H(W)) / w with harmonic numbers H.
    """
    before, wrong = reached - weight, lost - errors
    share = np.divide(errors, weight, where=weight > 0, out=np.zeros_like(errors))
    harmonic = _harmonic(int(reached.max(initial=0)))
    steps = harmonic[reached.astype(np.intp)] - harmonic[before.astype(np.intp)]
    area: Floats = (errors + (wrong - share * before) * steps).sum(axis=1)
    return area


def _lost_up_to(limit: Floats, weight: Floats, errors: Floats, reached: Floats, lost: Floats) -> Floats:
    """(b,): errors among the most certain that weigh ``limit``, (b,), together."""
    rows = np.arange(len(limit))
    cut = np.array([np.searchsorted(*pair, side="right") for pair in zip(reached, limit, strict=True)], dtype=np.intp)
    inside = np.minimum(cut, weight.shape[1] - 1)
    before, wrong = reached[rows, inside] - weight[rows, inside], lost[rows, inside] - errors[rows, inside]
    of_cut = errors[rows, inside] * (limit - before) / np.maximum(weight[rows, inside], 1)
    return np.where(cut < weight.shape[1], wrong + of_cut, lost[:, -1])


@lru_cache(maxsize=4)
def _harmonic(largest: int) -> Floats:
    """H(0), H(1), ..., H(largest), not to be changed. Cached: resamples have as many problems as the original."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, largest + 1))])


def perfect_aurc(wrong: Floats, weights_Bn: Weights) -> Floats:  # noqa: N803
    """(B,): AURC of a signal that puts every error last."""
    return Ranking.of(-wrong, 1 - wrong).curves(weights_Bn).aurc
