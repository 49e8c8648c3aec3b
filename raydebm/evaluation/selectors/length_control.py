"""Length control: what is left of mu when what it says about a text's length is taken out of it.

A ranker that has learnt "long answers are right" looks skilful wherever that holds, and fails where it does not. The
slope of mu on the log length, within problems, is fitted on validation candidates and subtracted. Where *mu without
length* chooses no better than chance and *longest* (or *shortest*) does, length was what the ensemble knew.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import Selector, lengths, lowest

CONTROLLED = "mu without length"


def length_controlled(validation: Sequence[EvaluatedPool]) -> list[Selector]:
    """One selector, or none where validation candidates do not tell a slope."""
    slope = length_slope(validation)
    if slope is None:
        return []
    return [
        Selector(
            name=CONTROLLED,
            group="ablation",
            description=f"lowest mu - ({slope:.3g}) log length, the slope within problems of validation; ties shared",
            weights=partial(_lowest_controlled, slope=slope),
        )
    ]


def length_slope(pools: Sequence[EvaluatedPool]) -> float | None:
    """Least-squares slope of mu on the log of the length, both relative to their mean in the problem.

    None where no two candidates of a problem with energies differ in length.
    """
    products = squares = 0.0
    for pool in pools:
        logs, mu = np.log1p(lengths(pool)), pool.mu
        known = pool.in_pool & np.isfinite(logs) & np.isfinite(mu)
        if known.any():
            centred = logs[known] - logs[known].mean()
            products += float((centred * (mu[known] - mu[known].mean())).sum())
            squares += float((centred**2).sum())
    return products / squares if squares > 1e-12 else None


def _lowest_controlled(pool: EvaluatedPool, *, slope: float) -> Floats:
    return lowest(pool.mu - slope * np.log1p(lengths(pool)), pool.in_pool)
