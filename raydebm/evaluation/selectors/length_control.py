"""Length control: the part of mu that is independent of a text's length.

A ranker that has learnt "long answers are right" seems skilful on data where that is true, and fails on other data. The
slope of mu on the log length, within problems, is fitted on validation candidates and subtracted. If *mu without
length* is no better than random while *longest* (or *shortest*) is, the ensemble learnt only length.
"""

import math
from functools import partial

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.selector import Selector, lowest

CONTROLLED = "mu without length"


def length_controlled(validation: Stack) -> list[Selector]:
    """One selector, or none if validation candidates do not determine a slope."""
    slope = length_slope(validation)
    if slope is None:
        return []
    return [
        Selector(
            name=CONTROLLED,
            group="ablation",
            description=f"lowest mu - ({slope:.3g}) log length among candidates that parse, the slope within problems "
            "of validation; ties shared",
            weights=partial(_lowest_controlled, slope=slope),
            energies=1.0,
        )
    ]


def length_slope(stack: Stack) -> float | None:
    """Least-squares slope of mu on the log of the length, both relative to their mean in the problem.

    None if no two candidates of a problem with energies differ in length.
    """
    logs, mu = np.log1p(stack.length), stack.mu()
    known = np.isfinite(logs) & np.isfinite(mu)
    logs, mu = (np.where(known, values, math.nan) for values in (logs, mu))
    centred, relative = (values - stack.mean_of(values)[:, None] for values in (logs, mu))
    squares = float(np.nansum(centred**2))
    return float(np.nansum(centred * relative)) / squares if squares > 1e-12 else None


def _lowest_controlled(stack: Stack, *, slope: float) -> Floats:
    return lowest(stack.mu() - slope * np.log1p(stack.length), stack.present & np.isfinite(stack.penalty))
