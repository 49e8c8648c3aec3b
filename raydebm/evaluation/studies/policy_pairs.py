"""Paired test of two policies on the same decisions: the recorded one, and another one in replay."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from raydebm.decisions.stored_replay import ReplayedPair
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted

NUM_BOOTSTRAP = 1000


def compare_policies(pairs: Sequence[ReplayedPair]) -> tuple[Comparison, Comparison]:
    """Test the differences in right and in wrong returned answers, replayed minus recorded.

    Args:
        pairs: One pair per problem, because decisions about one problem are not independent.

    Returns:
        Right answers and wrong answers, each by the exact McNemar test, with p corrected for both by Holm.
    """
    bootstrap = Bootstrap.of(len(pairs), num_bootstrap=NUM_BOOTSTRAP, seed=0)
    tests = []
    for worth in (1, -1):
        values = {
            name: np.array([getattr(pair, name) == worth for pair in pairs], dtype=np.float64)
            for name in ReplayedPair._fields
        }
        tests += compare(values, [("again", "recorded")], bootstrap=bootstrap, seed=0)
    right, wrong = (
        replace(test, p_holm=p) for test, p in zip(tests, holm_adjusted([t.p_value for t in tests]), strict=True)
    )
    return right, wrong
