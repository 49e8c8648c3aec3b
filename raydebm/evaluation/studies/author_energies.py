"""Energies of each author's candidates: a row per labelled candidate, and statistics over the authors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.effects import generator_effects
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats

MIN_CORRECT = 5
"""A generator with fewer correct candidates has no mean energy that could be compared."""


def energy_spread(stack: Stack, bootstrap: Bootstrap) -> Estimate:
    """``Screen.spread`` alone."""
    mu = stack.mu()
    right = (stack.correct == 1) & ~np.isnan(mu)
    sums = []
    for index in range(len(stack.generators)):
        own = right & (stack.generator == index)
        sums.append(Sums(np.where(own, mu, 0.0).sum(axis=1), own.sum(axis=1).astype(np.float64)))
    return over_generators(sums, bootstrap, std).estimate(bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTable:
    """Labelled, scored candidates of all pools, one row each, R rows."""

    generators: tuple[str, ...]
    """All names of the pools, sorted."""
    problem: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    generator: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    """Position in ``generators``."""
    correct: Floats
    """1 or 0."""
    mu: Floats
    centred: Floats
    """mu minus the problem's effect on it: its mean, as if all generators had answered it."""
    offset: Floats
    """mu minus the mean mu of the problem's correct rows; NaN for incorrect rows."""
    num_problems: int

    @classmethod
    def of(cls, pools: Sequence[EvaluatedPool]) -> "CandidateTable":
        """Lay the pools' labelled candidates out as columns."""
        names = sorted({scored.candidate.generator for pool in pools for scored in pool.candidates})
        index_of = {name: index for index, name in enumerate(names)}
        columns: list[tuple[Floats, ...]] = []
        for number, pool in enumerate(pools):
            usable = pool.in_pool & ~np.isnan(pool.correct) & ~np.isnan(pool.mu)
            writers = np.array([index_of.get(scored.candidate.generator, -1) for scored in pool.everything])[usable]
            mu, correct = pool.mu[usable], pool.correct[usable]
            right = correct == 1
            offset = np.where(right, mu - mu[right].mean() if right.any() else math.nan, math.nan)
            columns.append((np.full(len(mu), float(number)), writers.astype(float), correct, mu, offset))
        joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)] if columns else [np.zeros(0)] * 5
        problem, generator = joined[0].astype(np.int64), joined[1].astype(np.int64)
        return cls(
            generators=tuple(names),
            problem=problem,
            generator=generator,
            correct=joined[2],
            mu=joined[3],
            centred=_centred(problem, generator, joined[3], num_generators=len(names)),
            offset=joined[4],
            num_problems=len(pools),
        )

    def per_problem(self, values: Floats, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Floats:
        """Sum of ``values`` over the chosen rows of each problem, shape (num_problems,)."""
        return np.bincount(self.problem[rows], weights=values[rows], minlength=self.num_problems).astype(np.float64)


def _centred(
    problem: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    generator: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    mu: Floats,
    *,
    num_generators: int,
) -> Floats:
    """Only the problem is taken out, so the generator's effect stays in.

    Rounded to nine digits of the largest: what is equal but for the last digits must stay a tie.
    """
    if not len(mu):
        return mu
    effects = generator_effects(problem, generator, mu, num_generators=num_generators)
    left = mu - effects[generator]
    sizes = np.maximum(np.bincount(problem), 1)
    centred: Floats = mu - (np.bincount(problem, weights=left) / sizes)[problem]
    return np.round(centred, 9 - math.ceil(math.log10(max(float(np.abs(mu).max()), 1e-9))))


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Energies and numbers of one generator's correct candidates, per problem."""

    energies: Floats
    counts: Floats


def correct_sums(table: CandidateTable, index: int, *, centred: bool = False) -> Sums:
    """Sums and counts by problem of the energies of one generator's correct candidates."""
    rows = (table.generator == index) & (table.correct == 1)
    energies = table.per_problem(table.offset if centred else table.mu, rows)
    return Sums(energies, table.per_problem(np.ones(len(rows)), rows))


def all_correct_sums(table: CandidateTable) -> list[Sums]:
    """``correct_sums`` of every generator."""
    return [correct_sums(table, index) for index in range(len(table.generators))]


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """A value with its resamples, NaN where it is undefined."""

    value: float
    samples: Floats
    n: int

    def estimate(self, bootstrap: Bootstrap) -> Estimate:
        """The value with its bootstrap interval."""
        return bootstrap.interval(self.value, self.samples, self.n)

    def over(self, other: "Statistic") -> "Statistic":
        """The ratio; undefined where the other is not above 0."""
        value = self.value / other.value if other.value > 0 else math.nan
        samples = np.divide(
            self.samples, other.samples, where=other.samples > 0, out=np.full_like(self.samples, math.nan)
        )
        return Statistic(value, samples, min(self.n, other.n))


def std(means: Floats) -> Floats:
    """Standard deviation over generators, one per row."""
    deviations: Floats = means.std(axis=1)
    return deviations


def value_range(means: Floats) -> Floats:
    """Largest minus smallest over generators, one per row."""
    ranges: Floats = means.max(axis=1) - means.min(axis=1)
    return ranges


def over_generators(sums: Sequence[Sums], bootstrap: Bootstrap, statistic: Callable[[Floats], Floats]) -> Statistic:
    """A statistic of the generators' mean energies; generators with few correct candidates are left out."""
    usable = [generator_sums for generator_sums in sums if generator_sums.counts.sum() >= MIN_CORRECT]
    if len(usable) < 2:
        return Statistic(math.nan, np.full(len(bootstrap.counts), math.nan), 0)
    means = np.array([[generator_sums.energies.sum() / generator_sums.counts.sum() for generator_sums in usable]])
    covered = np.sum([generator_sums.counts for generator_sums in usable], axis=0) > 0
    samples = np.stack([resampled(generator_sums, bootstrap) for generator_sums in usable], axis=1)
    return Statistic(float(statistic(means)[0]), statistic(samples), int(covered.sum()))


def resampled(sums: Sums, bootstrap: Bootstrap) -> Floats:
    """The mean in each resample; NaN where a resample has none of the candidates."""
    tops, bottoms = bootstrap.sums(sums.energies), bootstrap.sums(sums.counts)
    means: Floats = np.divide(tops, bottoms, where=bottoms > 0, out=np.full_like(tops, math.nan))
    return means
