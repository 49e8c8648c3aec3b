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

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, weighted_auroc

FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LEFT_OUT = 0.2
"""Share of the problems, the least certain, of ``accuracy_at_80``."""
NUM_RESAMPLES = 500
"""Resamples of the bootstrap that are used: rank statistics cost a sort per resample, and 500 give the interval to
about a tenth of its width."""
NUM_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """How well one signal predicts which of a selector's selections are correct."""

    name: str
    description: str
    auroc: Estimate
    """For "the selection is correct"; 0.5 is chance."""
    aurc: Estimate
    """Lower is better."""
    prr: Estimate
    accuracy_at_80: Estimate
    """Share correct among the 80 % most certain."""
    gain_at_80: Estimate
    """accuracy_at_80 minus the accuracy on all problems; an interval above 0: abstaining by this signal helps."""
    selective: tuple[Estimate, ...]
    """Accuracy with 0, 10, ..., 50 % left unanswered."""
    risk_coverage: tuple[tuple[float, float], ...]
    """(coverage, risk) points of the curve."""


def signal_rows(signals: Sequence[Signal], correct: Floats, bootstrap: Bootstrap) -> tuple[SignalRow, ...]:
    """Evaluate each signal. ``correct``: (P,), 1, 0 or NaN, of the selection that the signals are about."""
    fewer = Bootstrap(bootstrap.counts[:NUM_RESAMPLES])
    return tuple(_row(signal, correct, fewer) for signal in signals)


def _row(signal: Signal, correct: Floats, bootstrap: Bootstrap) -> SignalRow:
    known = ~(np.isnan(signal.values) | np.isnan(correct))
    n = int(known.sum())
    if n == 0:
        return SignalRow(
            name=signal.name, description=signal.description, auroc=NOTHING, aurc=NOTHING, prr=NOTHING,
            accuracy_at_80=NOTHING, gain_at_80=NOTHING, selective=(NOTHING,) * len(FRACTIONS),
            risk_coverage=(),
        )  # fmt: skip
    certainty, right, counts = signal.values[known], correct[known], bootstrap.counts[:, known]
    curves = Ranking.of(certainty, right)
    one = np.ones((1, n))
    aurc, base, best = curves.aurc(one), curves.risk(one), perfect_aurc(1 - right, one)
    aurc_B, base_B, best_B = curves.aurc(counts), curves.risk(counts), perfect_aurc(1 - right, counts)  # noqa: N806
    auroc = weighted_auroc(certainty, right, one)[0]
    at_80 = curves.accuracy_without(LEFT_OUT, one)
    at_80_B = curves.accuracy_without(LEFT_OUT, counts)  # noqa: N806
    return SignalRow(
        name=signal.name,
        description=signal.description,
        auroc=bootstrap.interval(float(auroc), weighted_auroc(certainty, right, counts), n),
        aurc=bootstrap.interval(float(aurc[0]), aurc_B, n),
        prr=bootstrap.interval(float(_ratio(base - aurc, base - best)[0]), _ratio(base_B - aurc_B, base_B - best_B), n),
        accuracy_at_80=bootstrap.share(float(at_80[0]), at_80_B, kept(LEFT_OUT, n)),
        gain_at_80=bootstrap.interval(float((at_80 + base - 1)[0]), at_80_B + base_B - 1, n),
        selective=tuple(
            bootstrap.share(
                float(curves.accuracy_without(fraction, one)[0]),
                curves.accuracy_without(fraction, counts),
                kept(fraction, n),
            )
            for fraction in FRACTIONS
        ),
        risk_coverage=curves.points(),
    )


def _ratio(top: Floats, bottom: Floats) -> Floats:
    values: Floats = np.divide(top, bottom, where=bottom > 1e-12, out=np.full(len(top), math.nan))
    return values


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

    def _groups(self, weights_Bn: Floats) -> tuple[Floats, Floats]:  # noqa: N803
        """Weight and weighted errors of each group, (B, G)."""
        ordered = weights_Bn[:, self.order]
        errors = ordered * (1 - self.right[self.order])
        return np.add.reduceat(ordered, self.starts, axis=1), np.add.reduceat(errors, self.starts, axis=1)

    def risk(self, weights_Bn: Floats) -> Floats:  # noqa: N803
        """Share of errors among all, shape (B,)."""
        return _ratio(weights_Bn @ (1 - self.right), weights_Bn.sum(axis=1))

    def aurc(self, weights_Bn: Floats) -> Floats:  # noqa: N803
        """(B,): mean risk over all coverages; a weight of w counts as w problems that share their errors.

        Within a group of weight w and error share r after cumulated weight W and errors E, the mean over its w steps of
        (E + r j) / (W + j), j = 1..w, is r + (E - r W) * (H(W + w) - H(W)) / w with harmonic numbers H.
        """
        weight, errors = self._groups(weights_Bn)
        before, wrong = np.cumsum(weight, axis=1) - weight, np.cumsum(errors, axis=1) - errors
        share = np.divide(errors, weight, where=weight > 0, out=np.zeros_like(errors))
        steps = _harmonic(before + weight) - _harmonic(before)
        area = (share * weight + (wrong - share * before) * steps).sum(axis=1)
        return _ratio(area, weight.sum(axis=1))

    def accuracy_without(self, left_out: float, weights_Bn: Floats) -> Floats:  # noqa: N803
        """(B,): share right when this share, the least certain, is left out; of a group that the limit cuts through,
        its share counts."""
        weight, errors = self._groups(weights_Bn)
        total = weight.sum(axis=1, keepdims=True)
        limit = total - np.round(left_out * total)
        before = np.cumsum(weight, axis=1) - weight
        kept = np.clip(limit - before, 0, weight)
        lost = np.divide(errors * kept, weight, where=weight > 0, out=np.zeros_like(errors)).sum(axis=1)
        values: Floats = 1 - _ratio(lost, kept.sum(axis=1))
        return values

    def points(self) -> tuple[tuple[float, float], ...]:
        """At most ``NUM_POINTS`` points of the risk-coverage curve."""
        weight, errors = self._groups(np.ones((1, len(self.right))))
        total = float(weight.sum())
        coverage, risk = np.cumsum(weight[0]) / total, np.cumsum(errors[0]) / np.cumsum(weight[0])
        shown = np.unique(np.linspace(0, len(coverage) - 1, min(NUM_POINTS, len(coverage))).round().astype(int))
        return tuple((float(coverage[index]), float(risk[index])) for index in shown)


def kept(left_out: float, n: int) -> int:
    """Problems of n that are answered when this share is not."""
    return n - round(left_out * n)


def _harmonic(count: Floats) -> Floats:
    """H(0), H(1), ... by table; weights are whole numbers."""
    whole = count.astype(np.intp)
    table = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(whole.max(initial=0)) + 1))])
    values: Floats = table[whole]
    return values


def perfect_aurc(wrong: Floats, weights_Bn: Floats) -> Floats:  # noqa: N803
    """(B,): AURC of a signal that puts every error last."""
    return Ranking.of(-wrong, 1 - wrong).aurc(weights_Bn)
