"""A way of choosing one candidate of each pool, what its choices are worth, and the steps that selectors share.

Letters of shapes as in ``pools.stack``: P pools, N candidates of the largest.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats, Ints
from raydebm.evaluation.pools.stack import Stack
from raydebm.extensions import load_extensions

SINGLE_SHOT = "single-shot "
"""Begins the name of a model that answers once per problem and draws nothing for the pool."""
BEST_GENERATOR = "best generator"
"""Name of the row of the generator that was best on labelled problems outside the test."""


Group = Literal["baseline", "generator", "external", "adapter", "ablation", "decision", "ours", "bound"]


Weights = Callable[[Stack], Floats]
"""Pools -> probability of each candidate, (P, N); a row sums to 1, or to 0 where the rule cannot choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    name: str
    """In tables; different for every selector of a report."""
    group: Group
    """Where its row stands; ``baseline`` for a new one."""
    description: str
    """How it chooses, with its tie-breaking."""
    weights: Weights
    partial_cover: bool = False
    """It depends on something that a problem may lack (a generator's candidates, a judge's scores). Where it cannot
    choose it was not asked, so the problem is left out; another rule that cannot choose has answered nothing."""
    is_greedy: bool = False
    """It chooses among the samples at temperature 0, which are no part of the pool: ``weights`` gets
    ``Stack.greedy``."""
    energies: float = 0.0
    """Share of the ensemble that must score every candidate before it can choose, for its cost: 1 where it reads mu,
    sigma or E, 1 / K where it reads one member of K."""
    scores: tuple[str, ...] = ()
    """Outside scorers (``Stack.scores``) that must score every candidate before it can choose, for its cost."""

    def choices(self, stack: Stack) -> tuple[Stack, Floats]:
        """The candidates that it chooses among, and the probability of each."""
        among = stack.greedy if self.is_greedy and stack.greedy is not None else stack
        return among, self.weights(among)


Family = Callable[[Stack, Stack], Sequence[Selector]]
"""(pools to evaluate, validation pools to fit on, perhaps none) -> selectors."""
_ADDED: list[Family] = []


def add_selectors(family: Family) -> Family:
    """Add the selectors that a function makes to every report; a decorator (docs/tutorials/a_selector.md)."""
    _ADDED.append(family)
    return family


def added_selectors(pools: Stack, validation: Stack) -> list[Selector]:
    """The selectors that modules of a user add."""
    load_extensions()
    return [selector for family in _ADDED for selector in family(pools, validation)]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What a selector's choices are worth (expected values)."""

    correct: Floats
    """(P,), in [0, 1]; NaN where the choice is unlabeled."""
    violation: Floats
    """(P,), in [0, 1], lower is better; NaN where unlabeled or not a continuous task."""


def values_of(selector: Selector, stack: Stack) -> Values:
    """The expected labels of the choices.

    Unlabeled candidates are left out, never counted as incorrect: probability is taken over the labelled ones. A rule
    that could not choose has answered nothing, which is worth 0 and violates all (1), unless the pool has no label at
    all or the rule covers only some problems.
    """
    among, weights = selector.choices(stack)
    chosen = weights.sum(axis=1) > 0
    correct, violation = expected(weights, among.correct), expected(weights, among.violation)
    if selector.partial_cover:
        return Values(correct, violation)
    return Values(
        np.where(chosen, correct, stack.correct_of_nothing()), np.where(chosen, violation, stack.violation_of_nothing())
    )


def expected(weights: Floats, values: Floats) -> Floats:
    """(P,): mean over what has a value, by weight; NaN where nothing of it has any weight."""
    known = ~np.isnan(values)
    mass = np.where(known, weights, 0.0).sum(axis=1)
    total = np.where(known, weights * values, 0.0).sum(axis=1)
    mean: Floats = np.divide(total, mass, where=mass > 0, out=np.full(len(mass), math.nan))
    return mean


def rounded_mean(values: Floats) -> float | None:
    """Mean of what is not NaN, rounded to nine digits, so that equal settings tie; None without any."""
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 9) if len(known) else None


def uniform(mask: Bools) -> Floats:
    """(P, N): equal chance over each row's mask; all zeros where it is empty."""
    count = mask.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(mask, count, where=count > 0, out=np.zeros(mask.shape))
    return shares


def lowest(values: Floats, mask: Bools) -> Floats:
    """(P, N): equal chance over each row's minima of ``values`` within ``mask``; NaN and +inf are never chosen."""
    usable = mask & np.isfinite(values)
    filled = np.where(usable, values, math.inf)
    return uniform(usable & (filled == filled.min(axis=1, keepdims=True)))


def one_hot(stack: Stack, picked: Ints) -> Floats:
    """(P, N): all probability on a pool's pick, given by column; all zeros where that is -1."""
    weights: Floats = ((picked[:, None] == np.arange(stack.present.shape[1])) & stack.present).astype(np.float64)
    return weights


def vote(stack: Stack, votes: Floats) -> Floats:
    """(P, N): equal chance over the answers with the most votes, then over the candidates that gave such an answer:
    those with a label where there are any, so that an answer's chance does not shrink where labels are left out.

    Args:
        votes: (P, N), at least 0; what candidates without an answer have does not count.
    """
    totals = stack.by_answer(votes)
    top = totals.max(axis=1, keepdims=True)
    # Sums of floats in another order differ in the last digits; that must not break a tie.
    winners = (totals >= top * (1 - 1e-12)) & (top > 0)
    labelled = ~np.isnan(stack.correct)
    winning = (stack.answer >= 0) & stack.of_answer(winners)
    rows = winning & (labelled | (stack.of_answer(stack.by_answer(labelled)) == 0))
    shared = winners.sum(axis=1, keepdims=True) * stack.of_answer(stack.by_answer(rows))
    weights: Floats = np.divide(1.0, shared, where=rows, out=np.zeros(rows.shape))
    return weights
