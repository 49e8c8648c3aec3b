"""Signals of certainty about a selection, including sigma. Higher is more certain.

A signal is a number per problem about the energy minimiser ("the pick"), NaN if there is no pick.
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats, Ints
from raydebm.evaluation.pools.stack import Stack


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
    """Whether selections have a violation score."""
    return not np.isnan(violation).all()


def event_of(violation: Floats) -> str:
    """Readable name of the worth."""
    return "1 - violation of the selection" if is_graded(violation) else CORRECT


def signals(stack: Stack, lambda_: float, *, constant: bool = False) -> list[Signal]:
    """All signals of these pools. Empty without energies.

    Args:
        constant: Whether to include signals that are constant over these pools, for use with other pools.
    """
    if stack.num_members == 0:
        return []
    mu, sigma = stack.mu(), stack.sigma()
    energy = stack.energy(mu, lambda_)
    picked = stack.lowest(energy, mu)
    same = _same_answer(stack, picked)
    all_signals = [
        Signal("mu of the pick", "-mu", -stack.at(mu, picked)),
        Signal("E_constraint of the pick", "-E_constraint", -stack.at(stack.penalty, picked)),
        Signal(
            "energy margin",
            "m / (1 + m) of the lowest E among other answers minus E of the pick, m; 1 without another answer",
            _margin(stack, energy, picked, same),
        ),
        Signal("vote share", "share of the answers that agree with the pick's", _share(stack, same, picked)),
        Signal("vote entropy", "minus the entropy of the answers", _entropy(stack, picked)),
        Signal("energy-weighted share", "share of exp(-E) that the pick's answer holds", _mass(energy, same, picked)),
    ]
    if stack.num_members > 1:
        all_signals[:0] = [
            Signal(SIGMA, "-sigma of the pick (population standard deviation over adapters)", -stack.at(sigma, picked)),
            Signal("pool sigma", "minus the mean sigma of the pool", -_pool_mean(sigma, picked)),
        ]
        all_signals.append(
            Signal(
                "adapter agreement",
                "share of adapters whose own selection gives the pick's answer",
                _agreement(stack, lambda_, same, picked),
            )
        )
    return [signal for signal in all_signals if constant or varies(signal.values)]


def varies(values: Floats) -> bool:
    """Whether two known values differ."""
    known = values[~np.isnan(values)]
    return bool(len(known)) and bool((known != known[0]).any())


def _same_answer(stack: Stack, picked: Ints) -> Bools:
    """Candidates with the pick's answer, including the pick, shape (P, N)."""
    rows = np.arange(len(picked))
    of_pick = np.where(picked >= 0, stack.answer[rows, picked], -2)
    same: Bools = stack.present & (stack.answer == of_pick[:, None]) & (of_pick >= 0)[:, None]
    same[rows[picked >= 0], picked[picked >= 0]] = True
    return same


def _where_picked(values: Floats, picked: Ints) -> Floats:
    picked_values: Floats = np.where(picked >= 0, values, math.nan)
    return picked_values


def _margin(stack: Stack, energy: Floats, picked: Ints, same: Bools) -> Floats:
    """Margin in [0, 1]. A pool with a single answer has 1, independent of the other pools."""
    others = np.where(same | ~stack.present, math.inf, energy).min(axis=1)
    margin = np.where(picked >= 0, others, math.nan) - stack.at(energy, picked)
    bounded: Floats = np.where(np.isposinf(margin), 1.0, margin / (1 + np.where(np.isposinf(margin), 0.0, margin)))
    return bounded


def _share(stack: Stack, same: Bools, picked: Ints) -> Floats:
    voters = (stack.answer >= 0).sum(axis=1)
    share = np.divide(same.sum(axis=1), voters, where=voters > 0, out=np.zeros(len(picked)))
    return _where_picked(np.minimum(share, 1.0), picked)


def _entropy(stack: Stack, picked: Ints) -> Floats:
    """Negated Shannon entropy in nats of the answers' shares."""
    counts = stack.by_answer(stack.present)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return _where_picked((shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1), picked)


def _mass(energy: Floats, same: Bools, picked: Ints) -> Floats:
    lowest = np.where(picked >= 0, energy.min(axis=1), 0.0)
    weights = np.exp(-(energy - lowest[:, None]))
    total = weights.sum(axis=1)
    share = np.divide(np.where(same, weights, 0.0).sum(axis=1), total, where=total > 0, out=np.zeros(len(picked)))
    return _where_picked(share, picked)


def _pool_mean(sigma: Floats, picked: Ints) -> Floats:
    count = (~np.isnan(sigma)).sum(axis=1)
    mean = np.divide(np.nansum(sigma, axis=1), count, where=count > 0, out=np.full(len(picked), math.nan))
    return _where_picked(mean, picked)


def _agreement(stack: Stack, lambda_: float, same: Bools, picked: Ints) -> Floats:
    agreeing = np.zeros(len(picked))
    rows = np.arange(len(picked))
    for index in range(stack.num_members):
        own = stack.select(lambda_, [index])
        agreeing += (own >= 0) & same[rows, own]
    return _where_picked(agreeing / stack.num_members, picked)
