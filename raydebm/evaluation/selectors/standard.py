"""Standard selectors: all ways to choose one candidate of a pool, with one interface.

A selector returns each candidate's probability of being chosen. If a rule leaves the choice open (random, ties), the
probability is split, so the reported figure is an expected value. All zeros: the rule could not choose.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.selectors.selector import BEST_GENERATOR, SINGLE_SHOT, Selector, lowest, one_hot, uniform, vote
from raydebm.evaluation.stats.effects import comparable, generator_effects


def standard_selectors(
    pools: PoolTable,
    *,
    lambda_: float,
    adapters: Sequence[str] = (),
    best_generator: str | None = None,
) -> list[Selector]:
    """Selectors of a report, in order. Those that need energies are included only if some were recorded.

    Args:
        pools: Pools to evaluate, which determine the generators and the number of adapters.
        lambda_: Weight of E_constraint in the combined energy.
        adapters: Adapter names in the order of the energies. Default: ``a0``, ``a1``, ...
        best_generator: Generator chosen on labelled problems outside the test split. Default: the best on these pools,
            and the name says so.
    """
    generators, num_members = pools.authors, pools.num_members
    names = list(adapters) or [f"a{index}" for index in range(num_members)]
    greedy = set() if pools.greedy is None else set(pools.greedy.authors)
    selectors = _baselines(frozenset(greedy.intersection(generators)))
    if len(generators) > 1:
        selectors += _generator_selectors(pools, generators, best_generator)
    selectors += _single_shots(sorted(greedy.difference(generators)))
    if num_members:
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
    selectors += _ablations(num_members > 0)
    if num_members:
        selectors += _combined(lambda_)
    selectors.append(
        Selector(
            name="oracle",
            group="bound",
            description="a correct candidate whenever the pool has one (lowest violation score where the task has one)",
            weights=_oracle,
        )
    )
    return selectors


def _baselines(greedy: frozenset[str]) -> list[Selector]:
    """Baselines without energies.

    Args:
        greedy: Generators of the pool with a sample at temperature 0.
    """
    selectors = [
        Selector(name="random", group="baseline", description="any candidate with equal chance", weights=_random),
        Selector(name="first", group="baseline", description="the first after shuffling", weights=_first),
        Selector(name="shortest", group="baseline", description="the shortest text; ties shared", weights=_shortest),
        Selector(name="longest", group="baseline", description="the longest text; ties shared", weights=_longest),
        Selector(
            name="majority vote",
            group="baseline",
            description="the answer most candidates give; ties between answers shared; unparsed ones do not vote",
            weights=_majority,
        ),
    ]
    if greedy:
        selectors.insert(
            1,
            Selector(
                name="greedy",
                group="baseline",
                description="the sample at temperature 0 of one of the pool's generators, drawn with equal chance",
                weights=partial(_of_generators, names=greedy),
                partial_cover=True,
                is_greedy=True,
            ),
        )
    return selectors


def _generator_selectors(pools: PoolTable, generators: Sequence[str], best_generator: str | None) -> list[Selector]:
    selectors = [
        Selector(
            name=f"generator {name}",
            group="generator",
            description=f"a random candidate of generator {name}",
            weights=partial(_of_generators, names=frozenset({name})),
            partial_cover=True,
        )
        for name in generators
    ]
    selectors += [
        Selector(
            name=f"greedy {name}",
            group="generator",
            description=f"the sample of generator {name} at temperature 0",
            weights=partial(_of_generators, names=frozenset({name})),
            partial_cover=True,
            is_greedy=True,
        )
        for name in generators
        if pools.greedy is not None and name in pools.greedy.authors
    ]
    chosen = best_generator or best_generator_of(pools)
    if chosen is not None:
        how = "on labelled problems outside the test" if best_generator else "on these very problems, so it is a bound"
        selectors.append(
            Selector(
                name=BEST_GENERATOR if best_generator else f"{BEST_GENERATOR} (chosen in hindsight)",
                group="generator",
                description=f"always a random candidate of generator {chosen}, chosen {how}",
                weights=partial(_of_generators, names=frozenset({chosen})),
                partial_cover=True,
            )
        )
    return selectors


def _single_shots(names: Sequence[str]) -> list[Selector]:
    return [
        Selector(
            name=f"{SINGLE_SHOT}{name}",
            group="external",
            description=f"the one answer of {name} at temperature 0, which is no part of the pool",
            weights=partial(_of_generators, names=frozenset({name})),
            partial_cover=True,
            is_greedy=True,
        )
        for name in names
    ]


def best_generator_of(pools: PoolTable, *, by_violation: bool | None = None) -> str | None:
    """Generator with the lowest violation, or the most correct answers, as if all had answered the same problems.

    Ties by name. Generators without shared problems, even indirectly, cannot be compared: the result is then the best
    of the group with the most problems.

    Args:
        by_violation: Whether to compare violations. Default: if the labels have violation scores.
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


def _ablations(has_energies: bool) -> list[Selector]:
    selectors = [
        Selector(
            name="constraint only",
            group="ablation",
            description="lowest E_constraint; ties shared; needs a candidate that parses",
            weights=_lowest_penalty,
        )
    ]
    if has_energies:
        mu_only = Selector(
            name="mu only",
            group="ablation",
            description="lowest ensemble mean among candidates that parse, which is ours with lambda 0; ties by id",
            weights=_lowest_mu,
            energies=1.0,
        )
        selectors.insert(0, mu_only)
    return selectors


def _combined(lambda_: float) -> list[Selector]:
    return [
        Selector(
            name="energy-weighted vote",
            group="ablation",
            description=f"each answer's sum of exp(-E), lambda={lambda_:g}; ties shared; unparsed ones do not vote",
            weights=partial(_weighted_vote, lambda_=lambda_),
            energies=1.0,
        ),
        Selector(
            name="ours",
            group="ours",
            description=f"lowest E = mu + {lambda_:g} E_constraint; ties by lower mu, then by id",
            weights=partial(_ours, lambda_=lambda_),
            energies=1.0,
        ),
    ]


def _random(pools: PoolTable) -> Floats:
    return uniform(pools, np.ones(len(pools.candidates), dtype=np.bool_))


def _first(pools: PoolTable) -> Floats:
    return uniform(pools, pools.place_of_row == pools.least(pools.place_of_row)[pools.pool_of_row])


def _shortest(pools: PoolTable) -> Floats:
    return lowest(pools, pools.length)


def _longest(pools: PoolTable) -> Floats:
    return lowest(pools, -pools.length)


def _majority(pools: PoolTable) -> Floats:
    return vote(pools, np.ones(len(pools.candidates)))


def _weighted_vote(pools: PoolTable, *, lambda_: float) -> Floats:
    return vote(pools, pools.energy_votes(lambda_))


def _of_generators(pools: PoolTable, *, names: frozenset[str]) -> Floats:
    return uniform(pools, pools.is_by(*names))


def _lowest_member(pools: PoolTable, *, index: int) -> Floats:
    return one_hot(pools, pools.of_adapters([index]).select(0.0))


def _lowest_mu(pools: PoolTable) -> Floats:
    return one_hot(pools, pools.select(0.0))


def _highest_score(pools: PoolTable, *, name: str) -> Floats:
    scores = pools.scores.get(name)
    return np.zeros(len(pools.candidates)) if scores is None else lowest(pools, -scores)


def _lowest_penalty(pools: PoolTable) -> Floats:
    return lowest(pools, pools.penalty)


def _ours(pools: PoolTable, *, lambda_: float) -> Floats:
    return one_hot(pools, pools.select(lambda_))


def _oracle(pools: PoolTable) -> Floats:
    labelled, correct = ~np.isnan(pools.correct), pools.correct == 1
    among = np.where(pools.any(correct)[pools.pool_of_row], correct, labelled)
    has_violations = pools.any(labelled & ~np.isnan(pools.violation))[pools.pool_of_row]
    return np.where(has_violations, lowest(pools, pools.violation, among), uniform(pools, among))
