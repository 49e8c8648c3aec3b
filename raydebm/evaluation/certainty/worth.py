"""What a certainty is about: whether a selection is right, or 1 - its violation where the task has violation scores.

Everything that judges a certainty asks here, so that reports of one training, of seeds and of folds judge it alike.
"""

import numpy as np

from raydebm.evaluation.stats.intervals import Floats

CORRECT = "the selection is correct"


def is_graded(violation: Floats) -> bool:
    """Whether selections have a violation score. ``violation``: in [0, 1]; NaN everywhere where the task has none."""
    return not np.isnan(violation).all()


def worth_of(correct: Floats, violation: Floats) -> Floats:
    """(P,), in [0, 1], higher is better; NaN where nothing is known of a selection."""
    return 1 - violation if is_graded(violation) else correct


def event_of(violation: Floats) -> str:
    """The worth in words."""
    return "1 - violation of the selection" if is_graded(violation) else CORRECT
