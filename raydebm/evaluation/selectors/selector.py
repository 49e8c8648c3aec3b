"""Selector: a way to choose one candidate of each pool, with shared steps and the value of its choices.

Shapes as in ``pools.stack``: P pools, N candidates of the largest.
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
"""Name prefix of a model that answers once per problem and is not part of the pool."""
BEST_GENERATOR = "best generator"
"""Name of the row of the best generator on labelled problems outside the test split."""


Group = Literal["baseline", "generator", "external", "adapter", "ablation", "decision", "ours", "bound"]


Weights = Callable[[Stack], Floats]
"""Pools -> probability of each candidate, (P, N). A row sums to 1, or to 0 if the rule cannot choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    name: str
    """Name in tables, unique within a report."""
    group: Group
    """Group of its row. Use ``baseline`` for a new selector."""
    description: str
    """Description of the choice and its tie-breaking."""
    weights: Weights
    partial_cover: bool = False
    """Whether the rule needs data that a problem may lack (a generator's candidates, a judge's scores). Problems where
    it cannot choose are then excluded; for other rules they count as no answer."""
    is_greedy: bool = False
    """Whether it chooses among the samples at temperature 0, which are not part of the pool. ``weights`` is then called
    with ``Stack.greedy``."""
    energies: float = 0.0
    """Share of the ensemble that scores every candidate for this selector, for its cost: 1 if it reads mu, sigma or E,
    1 / K if it reads one adapter of K."""
    scores: tuple[str, ...] = ()
    """Outside scorers (``Stack.scores``) that score every candidate for this selector, for its cost."""

    def choices(self, stack: Stack) -> tuple[Stack, Floats]:
        """Candidates to choose from, and the probability of each."""
        among = stack.greedy if self.is_greedy and stack.greedy is not None else stack
        return among, self.weights(among)


Family = Callable[[Stack, Stack], Sequence[Selector]]
"""(pools to evaluate, validation pools to fit on, may be empty) -> selectors."""
_ADDED: list[Family] = []


def add_selectors(family: Family) -> Family:
    """Decorator that adds a function's selectors to every report (docs/tutorials/a_selector.md)."""
    _ADDED.append(family)
    return family


def added_selectors(pools: Stack, validation: Stack) -> list[Selector]:
    """Selectors added by user modules."""
    load_extensions()
    return [selector for family in _ADDED for selector in family(pools, validation)]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Expected values of a selector's choices."""

    correct: Floats
    """Correctness in [0, 1], shape (P,). NaN if the choice is unlabelled."""
    violation: Floats
    """Violation in [0, 1], shape (P,), lower is better. NaN if unlabelled or without violation scores."""


def values_of(selector: Selector, stack: Stack) -> Values:
    """Expected labels of the choices.

    Unlabelled candidates are excluded, never counted as incorrect: probability is over the labelled ones. A rule that
    could not choose has worth 0 and violation 1, unless the pool has no label or the rule has ``partial_cover``.
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
    """Weighted mean over candidates with a value, shape (P,). NaN if their weight is 0."""
    known = ~np.isnan(values)
    mass = np.where(known, weights, 0.0).sum(axis=1)
    total = np.where(known, weights * values, 0.0).sum(axis=1)
    mean: Floats = np.divide(total, mass, where=mass > 0, out=np.full(len(mass), math.nan))
    return mean


def uniform(mask: Bools) -> Floats:
    """Equal probability over each row's mask, shape (P, N). All zeros if it is empty."""
    count = mask.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(mask, count, where=count > 0, out=np.zeros(mask.shape))
    return shares


def lowest(values: Floats, mask: Bools) -> Floats:
    """Equal probability over each row's minima of ``values`` within ``mask``, shape (P, N). NaN and +inf are never
    chosen."""
    usable = mask & np.isfinite(values)
    filled = np.where(usable, values, math.inf)
    return uniform(usable & (filled == filled.min(axis=1, keepdims=True)))


def one_hot(stack: Stack, picked: Ints) -> Floats:
    """Probability 1 at each pool's pick, given by column, shape (P, N). All zeros for -1."""
    weights: Floats = ((picked[:, None] == np.arange(stack.present.shape[1])) & stack.present).astype(np.float64)
    return weights


def vote(stack: Stack, votes: Floats) -> Floats:
    """Equal probability over the answers with the most votes, then over each answer's candidates. Shape (P, N).

    Within an answer, labelled candidates are used if there are any, so that unlabelled ones do not reduce its
    probability.

    Args:
        votes: Votes >= 0, shape (P, N). Values of candidates without an answer are ignored.
    """
    totals = stack.by_answer(votes)
    top = totals.max(axis=1, keepdims=True)
    # Sums of floats in another order differ in the last digits; this must not break a tie.
    winners = (totals >= top * (1 - 1e-12)) & (top > 0)
    labelled = ~np.isnan(stack.correct)
    winning = (stack.answer >= 0) & stack.of_answer(winners)
    rows = winning & (labelled | (stack.of_answer(stack.by_answer(labelled)) == 0))
    shared = winners.sum(axis=1, keepdims=True) * stack.of_answer(stack.by_answer(rows))
    weights: Floats = np.divide(1.0, shared, where=rows, out=np.zeros(rows.shape))
    return weights
