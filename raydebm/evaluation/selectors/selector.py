"""A way of choosing one candidate of a pool, what its choice is worth, and the steps that selectors share."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats
from raydebm.extensions import load_extensions

SINGLE_SHOT = "single-shot "
"""Begins the name of a model that answers once per problem and draws nothing for the pool."""


Group = Literal["baseline", "generator", "external", "adapter", "ablation", "decision", "ours", "bound"]


Weights = Callable[[EvaluatedPool], Floats]
"""Pool -> probability of each of its N + G candidates; sums to 1, or to 0 when the rule cannot choose."""


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


Family = Callable[[Sequence[EvaluatedPool], Sequence[EvaluatedPool]], Sequence[Selector]]
"""(pools to evaluate, validation pools to fit on) -> selectors."""
_ADDED: list[Family] = []


def add_selectors(family: Family) -> Family:
    """Add the selectors that a function makes to every report; a decorator (docs/tutorials/a_selector.md)."""
    _ADDED.append(family)
    return family


def added_selectors(pools: Sequence[EvaluatedPool], validation: Sequence[EvaluatedPool]) -> list[Selector]:
    """The selectors that modules of a user add."""
    load_extensions()
    return [selector for family in _ADDED for selector in family(pools, validation)]


@dataclass(frozen=True, slots=True)
class Value:
    """What a selector's choice is worth on one problem (expected values)."""

    correct: float
    """In [0, 1]; NaN when the choice is unlabeled."""
    violation: float
    """In [0, 1], lower is better; NaN when unlabeled or not a continuous task."""


def value_of(selector: Selector, pool: EvaluatedPool) -> Value:
    """The expected label of the choice.

    Unlabeled candidates are left out, never counted as incorrect: probability is taken over the labelled ones. A rule
    that could not choose has answered nothing, which is worth 0 and violates all (1), unless the pool has no label at
    all or the rule covers only some problems.
    """
    weights = selector.weights(pool) if pool.everything else np.zeros(0)
    if weights.sum() == 0:
        return Value(math.nan, math.nan) if selector.partial_cover else value_of_nothing(pool)
    return Value(expected(weights, pool.correct), expected(weights, pool.violation))


def value_of_nothing(pool: EvaluatedPool) -> Value:
    """What it is worth to answer nothing: correct 0 and violation 1, each where the pool has such labels."""
    unlabeled = np.isnan(pool.correct[pool.in_pool]).all()
    unscored = np.isnan(pool.violation[pool.in_pool]).all()
    return Value(math.nan if unlabeled else 0.0, math.nan if unscored else 1.0)


def expected(weights: Floats, values: Floats) -> float:
    """Mean over what has a value, by weight; NaN where nothing of it has any weight."""
    known = ~np.isnan(values)
    mass = weights[known].sum()
    return float((weights[known] * values[known]).sum() / mass) if mass > 0 else math.nan


def is_continuous(pools: Sequence[EvaluatedPool]) -> bool:
    """Whether labels have a violation score; its mean is then what selectors are compared by."""
    return not all(np.isnan(pool.violation).all() for pool in pools)


def uniform(mask: Bools) -> Floats:
    """Equal chance over the mask; all zeros where it is empty."""
    count = mask.sum()
    return mask / count if count else np.zeros(len(mask))


def lowest(values: Floats, mask: Bools) -> Floats:
    """Equal chance over the minima of ``values`` within ``mask``; NaN and +inf are never chosen."""
    usable = mask & np.isfinite(values)
    if not usable.any():
        return np.zeros(len(values))
    return uniform(usable & (values == values[usable].min()))


def lengths(pool: EvaluatedPool) -> Floats:
    """Characters of everything in the pool; NaN without a text."""
    texts = [scored.candidate.text for scored in pool.everything]
    return np.array([math.nan if text is None else float(len(text)) for text in texts])


def vote(pool: EvaluatedPool, votes: Floats) -> Floats:
    """Equal chance over the answers with the most votes, then over the candidates that gave such an answer: those with
    a label where there are any, so that an answer's chance does not shrink where labels are left out."""
    totals: dict[str, float] = defaultdict(float)
    keys = [scored.report.vote_key for scored in pool.candidates]
    for key, vote in zip(keys, votes[: len(keys)], strict=True):
        if key is not None:
            totals[key] += vote
    weights = np.zeros(len(pool.correct))
    if not totals or max(totals.values()) <= 0:
        return weights
    top = max(totals.values())
    # Sums of floats in another order differ in the last digits; that must not break a tie.
    winners = {key for key, total in totals.items() if math.isclose(total, top, rel_tol=1e-12)}
    for winner in winners:
        rows = [row for row, key in enumerate(keys) if key == winner]
        labelled = [row for row in rows if not math.isnan(pool.correct[row])] or rows
        weights[labelled] = 1.0 / (len(winners) * len(labelled))
    return weights
