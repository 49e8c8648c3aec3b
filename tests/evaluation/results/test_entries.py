"""Which entries of a report are compared with each other."""

import math

import numpy as np

from raydebm.evaluation.results.entries import SelectorEntry, comparisons
from raydebm.evaluation.stats.intervals import Bootstrap


def entry(name, group):
    values = np.array([1.0, 0.0])
    return SelectorEntry(
        name=name, group=group, description="", correct=values, violation=np.full(2, math.nan), unlabeled=values > 1
    )


def test_no_two_comparisons_are_of_the_same_two_selectors():
    """The paper's rule is compared with every other selector, and the decision's selectors with the vote, too."""
    entries = [entry("majority vote", "baseline"), entry("posterior", "decision"), entry("energy (paper)", "paper")]

    compared = comparisons(entries, Bootstrap.of(2, num_bootstrap=100, seed=0), 0)

    assert [(row.one, row.other) for row in compared] == [
        ("energy (paper)", "majority vote"),
        ("energy (paper)", "posterior"),
        ("posterior", "majority vote"),
    ]
