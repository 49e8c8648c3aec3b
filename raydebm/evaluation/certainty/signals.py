"""Signals of certainty about a selection, including sigma. Higher is more certain.

A signal is a number per problem about the energy minimiser ("the pick"), NaN if there is no pick.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.table import Bools, Floats, Ints, PoolTable, ratio
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, Weights, over_blocks


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    name: str
    description: str
    values: Floats
    """Shape (P,). Higher is more certain."""


SIGMA = "sigma"
CORRECT = "the selection is correct"


def worth_of(correct: Floats, violation: Floats) -> Floats:
    """Worth of selections in [0, 1], shape (P,), higher is better.

    1 - violation if the task has violation scores, else correctness. NaN if unknown.

    Args:
        correct: Correctness, 1, 0 or NaN, shape (P,).
        violation: Violation scores in [0, 1], shape (P,). All NaN if the task has none.
    """
    return 1 - violation if is_graded(violation) else correct


def is_graded(violation: Floats) -> bool:
    return not np.isnan(violation).all()


def event_of(violation: Floats) -> str:
    return "1 - violation of the selection" if is_graded(violation) else CORRECT


def signals(pools: PoolTable, lambda_: float) -> list[Signal]:
    """All signals that vary over these pools. Empty without energies."""
    if pools.num_members == 0:
        return []
    picked = pools.select(lambda_)
    same = _same_answer(pools, picked)

    def of_picked(values: Floats) -> Floats:
        return np.where(picked >= 0, values, math.nan)

    votes, weights = pools.cluster_of_row >= 0, pools.energy_votes(lambda_)
    agreed: Floats = np.minimum(pools.total(same) / np.maximum(pools.count(votes), 1), 1.0)
    shares = pools.by_cluster(votes) / np.maximum(pools.count(votes), 1)[pools.pool_of_cluster]
    surprise = np.where(shares > 0, shares, 1.0)
    entropy = np.bincount(pools.pool_of_cluster, shares * np.log(surprise), pools.num_pools).astype(np.float64)
    all_signals = [
        Signal("mu of the pick", "-mu", -pools.at(pools.mu, picked)),
        Signal("E_constraint of the pick", "-E_constraint", -pools.at(pools.penalty, picked)),
        Signal(
            "energy margin",
            "m / (1 + m) of the lowest E among other answers minus E of the pick, m; 1 without another answer",
            _margin(pools, pools.energy(lambda_), picked, same),
        ),
        Signal("vote share", "share of the answers that agree with the pick's", of_picked(agreed)),
        # Sums of the same shares in another order differ in the last digits; equal entropies must tie.
        Signal("vote entropy", "minus the entropy of the answers", of_picked(entropy.round(12))),
        Signal(
            "energy-weighted share",
            "share of exp(-E) that the pick's answer holds",
            of_picked(np.nan_to_num(ratio(pools.total(weights * same), pools.total(weights)))),
        ),
    ]
    if pools.num_members > 1:
        all_signals[:0] = [
            Signal(
                SIGMA,
                "-sigma of the pick (population standard deviation over adapters)",
                -pools.at(pools.sigma, picked),
            ),
            Signal("pool sigma", "minus the mean sigma of the pool", of_picked(-pools.mean_of(pools.sigma))),
        ]
        own = [pools.of_adapters([index]).select(lambda_) for index in range(pools.num_members)]
        agreeing = np.mean([pools.at(same, pick) == 1 for pick in own], axis=0)
        how = "share of adapters whose own selection gives the pick's answer"
        all_signals.append(Signal("adapter agreement", how, of_picked(agreeing)))
    return [signal for signal in all_signals if varies(signal.values)]


def varies(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool(len(known)) and bool((known != known[0]).any())


def _same_answer(pools: PoolTable, picked: Ints) -> Bools:
    """Rows with the pick's answer, including the pick, shape (R,)."""
    of_pick = np.append(pools.cluster_of_row, -2)[picked]
    same: Bools = (pools.cluster_of_row >= 0) & (pools.cluster_of_row == of_pick[pools.pool_of_row])
    same[picked[picked >= 0]] = True
    return same


def _margin(pools: PoolTable, energy: Floats, picked: Ints, same: Bools) -> Floats:
    """Margin in [0, 1]. A pool with a single answer has 1, independent of the other pools."""
    margin = pools.least(np.where(same, math.inf, energy)) - pools.at(energy, picked)
    bounded: Floats = np.where(np.isposinf(margin), 1.0, margin / (1 + np.where(np.isposinf(margin), 0.0, margin)))
    return bounded


LEFT_OUT = 0.2
"""Share of problems, the least certain, that ``accuracy_at_80`` excludes."""
NUM_RESAMPLES = 500
"""Number of bootstrap resamples used here. Rank statistics are slower than means, and 500 resamples determine the
interval to about a tenth of its width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """Quality of one signal as a predictor of correct selections.

    Accuracy is the mean worth (``worth_of``), and the error of a selection is 1 - worth.
    """

    name: str
    description: str
    auroc: Estimate
    """AUROC for "the selection is correct". 0.5 is chance."""
    accuracy_at_80: Estimate
    """Mean worth of the 80 % most certain."""
    gain_at_80: Estimate
    """accuracy_at_80 minus the accuracy on all problems. If the interval is above 0, abstaining by this signal
    helps."""


def signal_rows(
    signals: Sequence[Signal], worth: Floats, bootstrap: Bootstrap, *, correct: Floats | None = None
) -> tuple[SignalRow, ...]:
    """Evaluate each signal.

    Args:
        worth: Worth of the selections that the signals describe, in [0, 1] or NaN, shape (P,).
        correct: Correctness for the AUROC, 1, 0 or NaN, shape (P,). Default: ``worth``.
    """
    fewer = bootstrap.first(NUM_RESAMPLES)
    return tuple(_row(signal, worth, worth if correct is None else correct, fewer) for signal in signals)


def _row(signal: Signal, worth: Floats, correct: Floats, bootstrap: Bootstrap) -> SignalRow:
    known = ~(np.isnan(signal.values) | np.isnan(worth))
    n = int(known.sum())
    at_80 = gain = NOTHING
    if n:
        weights = bootstrap.weights[:, known]
        base, risk = risks(signal.values[known], worth[known], weights, (0.0, LEFT_OUT)).T
        accuracy = 1 - risk
        at_80 = bootstrap.share(accuracy, num_answered(LEFT_OUT, n))
        gain = bootstrap.interval(accuracy + base - 1, n)
    return SignalRow(
        name=signal.name,
        description=signal.description,
        auroc=bootstrap.auroc(signal.values, correct) if n else NOTHING,
        accuracy_at_80=at_80,
        gain_at_80=gain,
    )


def num_answered(left_out: float, n: int) -> int:
    """Number of problems left after this share of n is excluded."""
    return n - round(left_out * n)


def risks(certainty: Floats, right: Floats, weights_Bn: Weights, left_out: Sequence[float]) -> Floats:  # noqa: N803
    """Share of errors among the most certain problems, in each of B weightings, shape (B, F).

    Args:
        certainty: Certainty, shape (n,).
        right: Worth in [0, 1], shape (n,).
        weights_Bn: Whole numbers >= 0. A weight of w counts as w problems.
        left_out: Abstention rates, F values. Ties at the cut-off count fractionally.
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
    """Share of errors among the most certain problems of total weight ``limit``, shape (b,). NaN where it is 0.

    Args:
        limit: Total weight to keep, shape (b,).
        weight: Weight of each group of equal certainty, shape (b, G). ``errors`` has the same shape; ``reached`` and
            ``lost`` are the running sums.
    """
    rows = np.arange(len(limit))
    cut = np.array([np.searchsorted(*pair, side="right") for pair in zip(reached, limit, strict=True)], dtype=np.intp)
    inside = np.minimum(cut, weight.shape[1] - 1)
    before, wrong = reached[rows, inside] - weight[rows, inside], lost[rows, inside] - errors[rows, inside]
    of_cut = errors[rows, inside] * (limit - before) / np.maximum(weight[rows, inside], 1)
    total = np.where(cut < weight.shape[1], wrong + of_cut, lost[:, -1])
    risk: Floats = np.divide(total, limit, where=limit > 1e-12, out=np.full(len(total), math.nan))
    return risk
