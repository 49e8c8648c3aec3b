"""Selectors: every way of choosing one candidate of a pool, behind one interface.

A selector gives each candidate the probability of being chosen. Where a rule leaves a choice open (random, ties), it
spreads the probability, so the reported figure is the expected value and not one lucky draw. All zeros: the rule
could not choose.
"""

import math
from collections.abc import Sequence, Set
from functools import partial

import numpy as np

from raydebm.decision.rules import select
from raydebm.energy import total_energies
from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import (
    SINGLE_SHOT,
    Selector,
    expected,
    is_continuous,
    lengths,
    lowest,
    uniform,
    vote,
)
from raydebm.evaluation.stats.effects import comparable, generator_effects


def standard_selectors(
    pools: Sequence[EvaluatedPool],
    *,
    lambda_: float,
    adapters: Sequence[str] = (),
    best_generator: str | None = None,
) -> list[Selector]:
    """The selectors of a report, in its order; those that need energies only where some were recorded.

    Args:
        pools: what will be evaluated; says which generators and how many adapters there are.
        lambda_: weight of E_constraint in the combined energy.
        adapters: names in the order of the energies; ``a0``, ``a1``, ... by default.
        best_generator: chosen on validation data. None: the best on these very pools, which the name then admits.
    """
    generators = sorted({scored.candidate.generator for pool in pools for scored in pool.candidates})
    num_members = max((pool.members.shape[1] for pool in pools), default=0)
    names = list(adapters) or [f"a{index}" for index in range(num_members)]
    greedy = {scored.candidate.generator for pool in pools for scored in pool.greedy}
    found = _baselines(frozenset(greedy.intersection(generators)))
    if len(generators) > 1:
        found += _generator_selectors(pools, generators, best_generator)
    found += _single_shots(sorted(greedy.difference(generators)))
    if num_members:
        found += [
            Selector(
                name=f"adapter {name}",
                group="adapter",
                description=f"lowest energy of adapter {name} alone; ties shared",
                weights=partial(_lowest_member, index=index),
            )
            for index, name in enumerate(names[:num_members])
        ]
    found += [
        Selector(
            name=name,
            group="external",
            description=f"highest score of {name}; ties shared; candidates without a score are never chosen",
            weights=partial(_highest_score, name=name),
            partial_cover=True,
        )
        for name in dict.fromkeys(name for pool in pools for name in pool.scores)
    ]
    found += _ablations(num_members > 0)
    if num_members:
        found += _combined(lambda_)
    found.append(
        Selector(
            name="oracle",
            group="bound",
            description="a correct candidate whenever the pool has one (lowest violation score where the task has one)",
            weights=_oracle,
        )
    )
    return found


def _baselines(greedy: frozenset[str]) -> list[Selector]:
    """``greedy``: the pool's generators that have a sample at temperature 0."""
    found = [
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
        found.insert(
            1,
            Selector(
                name="greedy",
                group="baseline",
                description="the sample at temperature 0 of one of the pool's generators, drawn with equal chance",
                weights=partial(_greedy_of, names=greedy),
                partial_cover=True,
            ),
        )
    return found


def _generator_selectors(
    pools: Sequence[EvaluatedPool], generators: Sequence[str], best_generator: str | None
) -> list[Selector]:
    found = [
        Selector(
            name=f"generator {name}",
            group="generator",
            description=f"a random candidate of generator {name}",
            weights=partial(_of_generator, name=name),
            partial_cover=True,
        )
        for name in generators
    ]
    found += [
        Selector(
            name=f"greedy {name}",
            group="generator",
            description=f"the sample of generator {name} at temperature 0",
            weights=partial(_greedy_of, names=frozenset({name})),
            partial_cover=True,
        )
        for name in generators
        if any(scored.candidate.generator == name for pool in pools for scored in pool.greedy)
    ]
    chosen = best_generator or best_generator_of(pools)
    if chosen is not None:
        how = "on validation problems" if best_generator else "on these very problems, so it is a bound"
        found.append(
            Selector(
                name="best generator" if best_generator else "best generator (chosen in hindsight)",
                group="generator",
                description=f"always a random candidate of generator {chosen}, chosen {how}",
                weights=partial(_of_generator, name=chosen),
                partial_cover=True,
            )
        )
    return found


def _single_shots(names: Sequence[str]) -> list[Selector]:
    return [
        Selector(
            name=f"{SINGLE_SHOT}{name}",
            group="external",
            description=f"the one answer of {name} at temperature 0, which is no part of the pool",
            weights=partial(_greedy_of, names=frozenset({name})),
            partial_cover=True,
        )
        for name in names
    ]


def best_generator_of(pools: Sequence[EvaluatedPool], *, by_violation: bool | None = None) -> str | None:
    """The generator that violates least, or is correct most often, as if all had answered the same problems; ties by
    name. Generators that share no problem, not even through others, cannot be compared: it is then the best of the
    group that answered most problems.

    Args:
        by_violation: None: where the labels have a violation score.
    """
    continuous = is_continuous(pools) if by_violation is None else by_violation
    names = sorted({scored.candidate.generator for pool in pools for scored in pool.candidates})
    found = [
        (row, index, loss)
        for row, pool in enumerate(pools)
        for index, name in enumerate(names)
        if not math.isnan(
            loss := expected(_of_generator(pool, name=name), pool.violation if continuous else -pool.correct)
        )
    ]
    if not found:
        return None
    problem, generator, losses = (np.array(column) for column in zip(*found, strict=True))
    effects = generator_effects(problem, generator, losses.astype(np.float64), num_generators=len(names)).round(9)
    inside = comparable(problem, generator, num_generators=len(names))
    return names[int(np.nanargmin(np.where(inside, effects, math.nan)))]


def _ablations(has_energies: bool) -> list[Selector]:
    found = [
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
            description="lowest ensemble mean, whether or not it parses (parsing belongs to E_constraint); ties shared",
            weights=_lowest_mu,
        )
        found.insert(0, mu_only)
    return found


def _combined(lambda_: float) -> list[Selector]:
    return [
        Selector(
            name="energy-weighted vote",
            group="ablation",
            description=f"each answer's sum of exp(-E), lambda={lambda_:g}; ties shared; unparsed ones do not vote",
            weights=partial(_weighted_vote, lambda_=lambda_),
        ),
        Selector(
            name="ours",
            group="ours",
            description=f"lowest E = mu + {lambda_:g} E_constraint; ties by lower mu, then by id",
            weights=partial(_ours, lambda_=lambda_),
        ),
    ]


def _random(pool: EvaluatedPool) -> Floats:
    return uniform(pool.in_pool)


def _first(pool: EvaluatedPool) -> Floats:
    weights = np.zeros(len(pool.correct))
    weights[: min(len(pool.candidates), 1)] = 1.0
    return weights


def _shortest(pool: EvaluatedPool) -> Floats:
    return lowest(lengths(pool), pool.in_pool)


def _longest(pool: EvaluatedPool) -> Floats:
    return lowest(-lengths(pool), pool.in_pool)


def _majority(pool: EvaluatedPool) -> Floats:
    return vote(pool, np.ones(len(pool.correct)))


def _weighted_vote(pool: EvaluatedPool, *, lambda_: float) -> Floats:
    energy = total_energies(pool.mu, pool.penalty, lambda_)
    usable = np.isfinite(energy) & pool.in_pool
    if not usable.any():
        return np.zeros(len(energy))
    # Relative to the lowest, so that exp cannot overflow; the ratio of votes is the same.
    return vote(pool, np.where(usable, np.exp(np.minimum(energy[usable].min() - energy, 0.0)), 0.0))


def _greedy_of(pool: EvaluatedPool, *, names: frozenset[str]) -> Floats:
    return uniform(~pool.in_pool & _generated_by(pool, names))


def _of_generator(pool: EvaluatedPool, *, name: str) -> Floats:
    return uniform(pool.in_pool & _generated_by(pool, {name}))


def _generated_by(pool: EvaluatedPool, names: Set[str]) -> Bools:
    return np.array([scored.candidate.generator in names for scored in pool.everything], dtype=np.bool_)


def _lowest_member(pool: EvaluatedPool, *, index: int) -> Floats:
    return np.zeros(len(pool.correct)) if not pool.members.size else lowest(pool.members[:, index], pool.in_pool)


def _lowest_mu(pool: EvaluatedPool) -> Floats:
    return lowest(pool.mu, pool.in_pool)


def _highest_score(pool: EvaluatedPool, *, name: str) -> Floats:
    scores = pool.scores.get(name)
    return np.zeros(len(pool.correct)) if scores is None else lowest(-scores, pool.in_pool)


def _lowest_penalty(pool: EvaluatedPool) -> Floats:
    return lowest(pool.penalty, pool.in_pool)


def _ours(pool: EvaluatedPool, *, lambda_: float) -> Floats:
    weights = np.zeros(len(pool.correct))
    best = select(pool.candidates, lambda_)
    if best is not None:
        weights[[scored is best for scored in pool.everything].index(True)] = 1.0
    return weights


def _oracle(pool: EvaluatedPool) -> Floats:
    labelled = pool.in_pool & ~np.isnan(pool.correct)
    correct = labelled & (pool.correct == 1)
    among = correct if correct.any() else labelled
    if np.isnan(pool.violation[labelled]).all():
        return uniform(among)
    return lowest(pool.violation, among)
