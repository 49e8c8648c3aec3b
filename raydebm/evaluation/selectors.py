"""Selectors: rules that choose one candidate per pool, and the expected labels of their choices.

A selector gives each candidate its probability of being chosen. If a rule leaves the choice open (random, ties), the
probability is split, so the reported figure is an expected value. If all are zero, the rule could not choose.

Shapes as in ``decision.table``: P pools, R rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from raydebm.decision.table import Bools, Floats, Ints, PoolTable, ratio
from raydebm.evaluation.stats.effects import comparable, generator_effects
from raydebm.extensions import load_extensions

SINGLE_SHOT = "single-shot "
"""Name prefix of a model that answers once per problem and is not part of the pool."""
PAPER_RULE = "energy (paper)"
"""Name of the paper's rule: lowest E = mu + lambda E_constraint."""
BEST_GENERATOR = "best generator"
"""Name of the row of the best generator on labelled problems outside the test split."""


Group = Literal["baseline", "generator", "external", "adapter", "ablation", "decision", "paper", "loop", "bound"]


Weights = Callable[[PoolTable], Floats]
"""Function from pools to the probability of each row, shape (R,). Each pool's probabilities sum to 1, or to 0 if the
rule cannot choose."""


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
    with ``PoolTable.greedy``."""
    energies: float = 0.0
    """Share of the ensemble that the selector needs, which determines its cost: 1 if it reads mu, sigma or E, 1 / K if
    it reads one adapter of K."""
    scores: tuple[str, ...] = ()
    """Outside scorers (``PoolTable.scores``) that the selector needs, which determine its cost."""

    def choices(self, pools: PoolTable) -> tuple[PoolTable, Floats]:
        """Candidates to choose from, and the probability of each."""
        among = pools.greedy if self.is_greedy and pools.greedy is not None else pools
        return among, self.weights(among)


Family = Callable[[PoolTable, PoolTable], Sequence[Selector]]
"""Function that makes selectors from the pools to evaluate and the validation pools to fit on (may be empty)."""
_ADDED: list[Family] = []


def add_selectors(family: Family) -> Family:
    """Decorator that adds a function's selectors to every report (docs/tutorials/a_selector.md)."""
    _ADDED.append(family)
    return family


def added_selectors(pools: PoolTable, validation: PoolTable) -> list[Selector]:
    load_extensions()
    return [selector for family in _ADDED for selector in family(pools, validation)]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    correct: Floats
    """Correctness in [0, 1], shape (P,). NaN if the choice is unlabelled."""
    violation: Floats
    """Violation in [0, 1], shape (P,), lower is better. NaN if unlabelled or without violation scores."""


def values_of(selector: Selector, pools: PoolTable) -> Values:
    """Expected labels of the choices.

    Unlabelled candidates are excluded, never counted as incorrect: the probabilities of the labelled ones are rescaled
    to sum to 1. A rule that could not choose has correctness 0 and violation 1, unless the pool has no label or the
    rule has ``partial_cover``.
    """
    among, weights = selector.choices(pools)
    chosen = among.total(weights) > 0
    correct, violation = expected(among, weights, among.correct), expected(among, weights, among.violation)
    if selector.partial_cover:
        return Values(correct, violation)
    return Values(
        np.where(chosen, correct, pools.correct_of_nothing()), np.where(chosen, violation, pools.violation_of_nothing())
    )


def expected(pools: PoolTable, weights: Floats, values: Floats) -> Floats:
    """Weighted mean over rows with a value, shape (P,). NaN if their weight is 0."""
    known = ~np.isnan(values)
    return ratio(pools.total(np.where(known, weights * values, 0.0)), pools.total(np.where(known, weights, 0.0)))


def uniform(pools: PoolTable, rows: Bools) -> Floats:
    """Equal probability over these rows of each pool, shape (R,). All zeros in a pool without any."""
    return np.where(rows, 1 / np.maximum(pools.count(rows), 1)[pools.pool_of_row], 0.0)


def lowest(pools: PoolTable, values: Floats, rows: Bools | None = None) -> Floats:
    """Equal probability over each pool's minima of ``values`` within ``rows`` (default: all), shape (R,).

    NaN and +inf are never chosen.
    """
    usable = np.isfinite(values) if rows is None else rows & np.isfinite(values)
    filled = np.where(usable, values, math.inf)
    return uniform(pools, usable & (filled == pools.least(filled)[pools.pool_of_row]))


def one_hot(pools: PoolTable, picked: Ints) -> Floats:
    """Probability 1 at each pool's picked row, shape (R,). All zeros for -1."""
    weights = np.zeros(len(pools.candidates))
    weights[picked[picked >= 0]] = 1.0
    return weights


def vote(pools: PoolTable, votes: Floats) -> Floats:
    """Equal probability over the answers with the most votes, then over each answer's candidates. Shape (R,).

    Within an answer, labelled candidates are used if there are any, so that unlabelled ones do not reduce its
    probability.

    Args:
        votes: Votes >= 0, shape (R,). Values of candidates without an answer are ignored.
    """
    totals, owner = pools.by_cluster(votes), pools.pool_of_cluster
    top = np.zeros(pools.num_pools)
    np.maximum.at(top, owner, totals)
    # Float sums in a different order differ in the last digits, which must not break a tie.
    winners = (totals >= top[owner] * (1 - 1e-12)) & (top[owner] > 0)
    labelled = ~np.isnan(pools.correct)
    is_unlabelled = pools.by_cluster(labelled) == 0
    rows = pools.of_cluster(winners, False) & (labelled | pools.of_cluster(is_unlabelled, False))
    num_winners = np.bincount(owner, winners, pools.num_pools)[owner]
    shared = pools.of_cluster(num_winners * pools.by_cluster(rows), math.nan)
    weights: Floats = np.divide(1.0, shared, where=rows, out=np.zeros(len(rows)))
    return weights


MAJORITY = Selector(
    name="majority vote",
    group="baseline",
    description="the answer most candidates give; ties between answers shared; unparsed ones do not vote",
    weights=lambda pools: vote(pools, np.ones(len(pools.candidates))),
)


def standard_selectors(
    pools: PoolTable, *, lambda_: float, adapters: Sequence[str] = (), best_generator: str | None = None
) -> list[Selector]:
    """Selectors of a report, in order. Those that need energies are included only if some were recorded.

    Args:
        pools: Pools to evaluate, which determine the generators and the number of adapters.
        lambda_: Weight of E_constraint in the combined energy.
        adapters: Adapter names in the order of the energies. Default: ``a0``, ``a1``, ...
        best_generator: Generator chosen on labelled problems outside the test split. Default: the best on these pools,
            and the name says so.
    """
    num_members = pools.num_members
    names = list(adapters) or [f"a{index}" for index in range(num_members)]
    greedy = frozenset() if pools.greedy is None else frozenset(pools.greedy.authors)
    selectors = [
        _rule("random", "any candidate with equal chance", lambda pools: uniform(pools, pools.penalty >= 0)),
        _rule("first", "the first after shuffling", lambda pools: lowest(pools, pools.place_of_row.astype(np.float64))),
        _rule("shortest", "the shortest text; ties shared", lambda pools: lowest(pools, pools.length)),
        _rule("longest", "the longest text; ties shared", lambda pools: lowest(pools, -pools.length)),
        MAJORITY,
    ]
    if own := greedy.intersection(pools.authors):
        how = "the sample at temperature 0 of one of the pool's generators, drawn with equal chance"
        selectors.insert(1, _by("greedy", "baseline", how, *own, is_greedy=True))
    if len(pools.authors) > 1:
        selectors += [
            _by(f"generator {name}", "generator", f"a random candidate of generator {name}", name)
            for name in pools.authors
        ]
        selectors += [
            _by(f"greedy {name}", "generator", f"the sample of generator {name} at temperature 0", name, is_greedy=True)
            for name in pools.authors
            if name in greedy
        ]
        how = "on labelled problems outside the test" if best_generator else "on these very problems, so it is a bound"
        if chosen := best_generator or best_generator_of(pools):
            name = BEST_GENERATOR if best_generator else f"{BEST_GENERATOR} (chosen in hindsight)"
            how = f"always a random candidate of generator {chosen}, chosen {how}"
            selectors.append(_by(name, "generator", how, chosen))
    for name in sorted(greedy.difference(pools.authors)):
        how = f"the one answer of {name} at temperature 0, which is not part of the pool"
        selectors.append(_by(f"{SINGLE_SHOT}{name}", "external", how, name, is_greedy=True))
    selectors += [
        Selector(
            name=f"adapter {name}",
            group="adapter",
            description=f"lowest energy of adapter {name} alone among candidates that parse; ties by id",
            weights=partial(_lowest_member, index=index),
            energies=1 / num_members,
        )
        for index, name in enumerate(names[:num_members])
    ]
    selectors += [
        Selector(
            name=name,
            group="external",
            description=f"highest score of {name}; ties shared; candidates without a score are never chosen",
            weights=partial(_highest_score, name=name),
            partial_cover=True,
            scores=(name,),
        )
        for name in pools.scores
    ]
    if num_members:
        by_mu = "lowest ensemble mean among candidates that parse, as the paper's rule with lambda 0; ties by id"
        selectors.append(_rule("mu only", by_mu, lambda pools: one_hot(pools, pools.select(0.0)), "ablation", 1.0))
    by_constraint = "lowest E_constraint; ties shared; needs a candidate that parses"
    selectors.append(_rule("constraint only", by_constraint, lambda pools: lowest(pools, pools.penalty), "ablation"))
    if num_members:
        by_vote = f"each answer's sum of exp(-E), lambda={lambda_:g}; ties shared; unparsed ones do not vote"
        by_energy = f"lowest E = mu + {lambda_:g} E_constraint; ties by lower mu, then by id"
        votes = _rule(
            "energy-weighted vote", by_vote, lambda pools: vote(pools, pools.energy_votes(lambda_)), "ablation", 1.0
        )
        paper = _rule(PAPER_RULE, by_energy, lambda pools: one_hot(pools, pools.select(lambda_)), "paper", 1.0)
        selectors += [votes, paper]
    bound = "a correct candidate whenever the pool has one (lowest violation score where the task has one)"
    return [*selectors, _rule("oracle", bound, _oracle, "bound")]


def _rule(name: str, description: str, weights: Weights, group: Group = "baseline", energies: float = 0.0) -> Selector:
    return Selector(name=name, group=group, description=description, weights=weights, energies=energies)


def _by(name: str, group: Group, description: str, *generators: str, is_greedy: bool = False) -> Selector:
    """A random candidate of some generators."""
    return Selector(
        name=name,
        group=group,
        description=description,
        weights=lambda pools: uniform(pools, pools.is_by(*generators)),
        partial_cover=True,
        is_greedy=is_greedy,
    )


def _lowest_member(pools: PoolTable, *, index: int) -> Floats:
    return one_hot(pools, pools.of_adapters([index]).select(0.0))


def _highest_score(pools: PoolTable, *, name: str) -> Floats:
    scores = pools.scores.get(name)
    return np.zeros(len(pools.candidates)) if scores is None else lowest(pools, -scores)


def _oracle(pools: PoolTable) -> Floats:
    labelled, correct = ~np.isnan(pools.correct), pools.correct == 1
    among = np.where(pools.any(correct)[pools.pool_of_row], correct, labelled)
    has_violations = pools.any(labelled & ~np.isnan(pools.violation))[pools.pool_of_row]
    return np.where(has_violations, lowest(pools, pools.violation, among), uniform(pools, among))


def best_generator_of(pools: PoolTable, *, by_violation: bool | None = None) -> str | None:
    """Generator with the lowest violation or the most correct answers, adjusted as if all had answered the same
    problems.

    Ties by name. Generators that share no problems, even indirectly, cannot be compared: the result is then the best of
    the connected group with the most problems.

    Args:
        by_violation: Whether to compare violations. Default: true if the labels have violation scores.
    """
    continuous = pools.has_violations if by_violation is None else by_violation
    losses = pools.violation if continuous else -pools.correct
    names = pools.authors
    by_name = [pools.mean_of(losses, pools.author_of_row == index) for index in range(len(names))]
    table = np.stack(by_name, axis=1) if by_name else np.zeros((0, 0))
    problem, generator = np.nonzero(~np.isnan(table))
    if not len(problem):
        return None
    effects = generator_effects(problem, generator, table[problem, generator], num_generators=len(names)).round(9)
    inside = comparable(problem, generator, num_generators=len(names))
    return names[int(np.nanargmin(np.where(inside, effects, math.nan)))]
