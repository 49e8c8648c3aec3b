"""Length control: what is left of mu when what it says about a text's length is taken out of it.

A ranker that has learnt "long answers are right" looks skilful wherever that holds, and fails where it does not. The
slope of mu on the log length, within problems, is fitted on validation candidates and subtracted. Where *mu without
length* chooses no better than chance and *longest* (or *shortest*) does, length was what the ensemble knew.
"""

import math
from functools import partial

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.selector import Selector, lowest

CONTROLLED = "mu without length"


def length_controlled(validation: Stack) -> list[Selector]:
    """One selector, or none where validation candidates do not tell a slope."""
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

    None where no two candidates of a problem with energies differ in length.
    """
    logs, mu = np.log1p(stack.length), stack.mu()
    known = np.isfinite(logs) & np.isfinite(mu)
    logs, mu = (np.where(known, values, math.nan) for values in (logs, mu))
    centred, relative = (values - stack.mean_of(values)[:, None] for values in (logs, mu))
    squares = float(np.nansum(centred**2))
    return float(np.nansum(centred * relative)) / squares if squares > 1e-12 else None


def _lowest_controlled(stack: Stack, *, slope: float) -> Floats:
    return lowest(stack.mu() - slope * np.log1p(stack.length), stack.present & np.isfinite(stack.penalty))
