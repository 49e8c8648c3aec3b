"""Signals of certainty about a selection, including sigma. Higher is more certain.

A signal is a number per problem about the energy minimiser ("the pick"), NaN if there is no pick.
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.decision.groups import Bools, Floats, Ints, ratio
from raydebm.decision.table import PoolTable


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


def signals(pools: PoolTable, lambda_: float, *, constant: bool = False) -> list[Signal]:
    """All signals of these pools. Empty without energies.

    Args:
        constant: Whether to include signals that are constant over these pools, for use with other pools.
    """
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
        Signal(
            "vote share",
            "share of the answers that agree with the pick's",
            of_picked(agreed),
        ),
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
    return [signal for signal in all_signals if constant or varies(signal.values)]


def varies(values: Floats) -> bool:
    """Whether two known values differ."""
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
