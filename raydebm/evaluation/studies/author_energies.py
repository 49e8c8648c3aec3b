"""Energies by author: a row per labelled candidate, and statistics over the authors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.groups import Bools, Floats, Ints
from raydebm.decision.table import PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

MIN_CORRECT = 5
"""Minimum number of correct candidates of a generator with a comparable mean energy."""


def energy_spread(pools: PoolTable, bootstrap: Bootstrap) -> Estimate:
    """``Screen.spread`` without the rest of the screen."""
    table = CandidateTable.of(pools)
    return over_generators(table.correct_sums(table.mu), bootstrap, std).estimate(bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTable:
    """Labelled, scored candidates of all pools, one per row, R rows."""

    generators: tuple[str, ...]
    """All generator names of the pools, sorted."""
    problem: Ints
    generator: Ints
    """Index in ``generators``."""
    correct: Floats
    """1 or 0."""
    mu: Floats
    offset: Floats
    """mu minus the mean mu of the problem's correct rows. NaN for incorrect rows."""
    num_problems: int

    @classmethod
    def of(cls, pools: PoolTable) -> "CandidateTable":
        """Convert the pools' labelled candidates to columns."""
        rows = np.flatnonzero(~np.isnan(pools.correct) & ~np.isnan(pools.mu))
        problem, mu, correct = pools.pool_of_row[rows], pools.mu[rows], pools.correct[rows]
        centres = pools.mean_of(np.where(pools.correct == 1, pools.mu, math.nan))[problem]
        return cls(
            generators=pools.authors,
            problem=problem,
            generator=pools.author_of_row[rows],
            correct=correct,
            mu=mu,
            offset=np.where(correct == 1, mu - centres, math.nan),
            num_problems=pools.num_pools,
        )

    def sums(self, values: Floats, rows: Bools) -> "Sums":
        """Sum and number of ``values`` over the selected rows of each problem."""
        sums = np.bincount(self.problem[rows], weights=values[rows], minlength=self.num_problems)
        counts = np.bincount(self.problem[rows], minlength=self.num_problems)
        return Sums(sums.astype(np.float64), counts.astype(np.float64))

    def correct_sums(self, values: Floats) -> "list[Sums]":
        """``sums`` over the correct rows of every generator."""
        right = self.correct == 1
        return [self.sums(values, right & (self.generator == index)) for index in range(len(self.generators))]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums and numbers of energies, per problem."""

    energies: Floats
    counts: Floats

    @property
    def mean(self) -> float:
        """Mean over all problems."""
        return float(self.energies.sum() / self.counts.sum())

    def resampled(self, bootstrap: Bootstrap) -> Floats:
        """Mean in each resample. NaN if a resample has none of the candidates."""
        tops, bottoms = bootstrap.sums(self.energies), bootstrap.sums(self.counts)
        means: Floats = np.divide(tops, bottoms, where=bottoms > 0, out=np.full_like(tops, math.nan))
        return means


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """Value with its resamples, NaN where undefined."""

    value: float
    samples: Floats
    n: int

    @classmethod
    def undefined(cls, bootstrap: Bootstrap) -> "Statistic":
        """Statistic without data."""
        return cls(math.nan, np.full(len(bootstrap.counts), math.nan), 0)

    def estimate(self, bootstrap: Bootstrap) -> Estimate:
        """The value with its bootstrap interval."""
        return bootstrap.interval(self.value, self.samples, self.n)

    def over(self, other: "Statistic") -> "Statistic":
        """Ratio of two statistics. Undefined where the other is not above 0."""
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
    """Statistic of the generators' mean energies. Generators with few correct candidates are excluded."""
    usable = [own for own in sums if own.counts.sum() >= MIN_CORRECT]
    if len(usable) < 2:
        return Statistic.undefined(bootstrap)
    covered = np.sum([own.counts for own in usable], axis=0) > 0
    samples = np.stack([own.resampled(bootstrap) for own in usable], axis=1)
    return Statistic(
        float(statistic(np.array([[own.mean for own in usable]]))[0]), statistic(samples), int(covered.sum())
    )
