"""Labelled problems walked through every pass of a policy: what thresholds are chosen, and promises certified, on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.evidence.groups import Floats
from raydebm.decision.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """Labelled problems walked through every pass; P problems, S passes."""

    confidence: Floats
    """(P, S): of the selection after each pass; -inf where nothing can be selected. A walk that ended early repeats its
    last pass."""
    worth: Floats
    """(P, S): worth of the selection, 0 without one; NaN for unlabelled."""
    floor: float = -math.inf
    """Nothing is promised by thresholds below it (``guarantee.certify``)."""


WalkOf = Callable[[Sequence[Policy]], Walk]
"""Walks the pools' problems through all passes, each under its own policy."""


def joined(first: Walk, second: Walk) -> Walk:
    """The problems of both walks, above the higher floor. A second one without problems has no passes."""
    shape = (len(second.worth), first.worth.shape[1])
    return Walk(
        confidence=np.concatenate([first.confidence, second.confidence.reshape(shape)]),
        worth=np.concatenate([first.worth, second.worth.reshape(shape)]),
        floor=max(first.floor, second.floor),
    )
