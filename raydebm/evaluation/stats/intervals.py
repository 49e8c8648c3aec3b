"""Percentile bootstrap over problems, vectorised.

Problems are resampled, because candidates of one problem are not independent. All statistics of a report use the same
resamples, so differences between selectors are paired.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from raydebm.cpus import usable_cpus
from raydebm.identity import seed_for

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Weights = NDArray[Any]
"""Weight of each of n problems in each of B resamples, shape (B, n), >= 0."""

Part = TypeVar("Part")
Done = TypeVar("Done")

LEVEL = 0.95
NUM_BOOTSTRAP = 2000
"""Number of resamples for an interval."""
MIN_PER_CLASS = 5
"""Minimum number of problems of each class for an AUROC interval. With a single problem of a class, resamples only
repeat or omit its rank."""
ROWS_AT_ONCE = 16
"""Number of resamples converted to floats at once, small enough for a processor's cache."""
MIN_WEIGHTS_FOR_THREADS = 2**22
"""Number of weights below which threads cost more than they gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Number with its 95 % interval. The bounds are None without an interval; all three are None without data."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __neg__(self) -> "Estimate":
        value, low, high = (None if number is None else -number for number in (self.value, self.high, self.low))
        return Estimate(value=value, low=low, high=high, n=self.n)


NOTHING = Estimate(value=None, low=None, high=None, n=0)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Weights of n problems: 1 in the sample itself, and their counts in each resample."""

    weights: Weights
    """Shape (1 + num_bootstrap, n)."""

    @classmethod
    def of(cls, n: int, *, num_bootstrap: int = NUM_BOOTSTRAP, seed: int) -> "Bootstrap":
        """Sample n of n problems with replacement, ``num_bootstrap`` times."""
        generator = np.random.default_rng(seed_for(seed, "bootstrap", n))
        # A byte is sufficient for every count: one above 255 has a probability below 1e-500.
        weights = np.ones((1 + num_bootstrap, n), dtype=np.uint8)
        for row in weights[1:] if n else ():
            row[:] = np.bincount(generator.integers(0, n, size=n), minlength=n)
        return cls(weights)

    @cached_property
    def sizes(self) -> Floats:
        """Sum of the weights, shape (1 + num_bootstrap,)."""
        sizes: Floats = self.weights.sum(axis=1, dtype=np.float64)
        return sizes

    def first(self, count: int) -> "Bootstrap":
        """The sample and at most ``count`` resamples."""
        return Bootstrap(self.weights[: 1 + count])

    def of_items(self, problem: NDArray[np.intp]) -> "Bootstrap":
        """Weights of items, which are those of their problems.

        Args:
            problem: Problem of each item, shape (m,).
        """
        return Bootstrap(self.weights[:, problem])

    def mean(self, values: Floats) -> Estimate:
        """Mean over problems; NaN marks a problem without a value."""
        return self.means([values])[0]

    def means(self, columns: Sequence[Floats]) -> list[Estimate]:
        """``mean`` of each column, in one pass over the resamples, which is much faster."""
        return self.ratios([(values, np.ones(len(values))) for values in columns])

    def proportion(self, values: Floats) -> Estimate:
        """``mean`` of right (1) and wrong (0).

        If all are right or all are wrong, every resample is equal and the interval would have no width. Its inner bound
        is then the exact one (Clopper-Pearson).
        """
        return self.proportions([values])[0]

    def proportions(self, columns: Sequence[Floats]) -> list[Estimate]:
        """``proportion`` of each column, as fast as ``means``."""
        return [_exact_at_the_ends(estimate) for estimate in self.means(columns)]

    def ratio(self, numerators: Floats, denominators: Floats) -> Estimate:
        """sum(numerators) / sum(denominators) over problems where both are known.

        Resamples with a denominator of 0 are excluded from the interval.
        """
        return self.ratios([(numerators, denominators)])[0]

    def ratios(self, pairs: Sequence[tuple[Floats, Floats]]) -> list[Estimate]:
        """``ratio`` of each pair of numerators and denominators."""
        columns, numbers, is_mean = list[Floats](), list[int](), list[bool]()
        for numerators, denominators in pairs:
            known = ~(np.isnan(numerators) | np.isnan(denominators))
            numbers.append(int(known.sum()))
            columns.append(np.where(known, numerators, 0.0))
            # If all denominators are 1, their sums are the sizes.
            is_mean.append(bool(known.all() and (denominators == 1).all()))
            if not is_mean[-1]:
                columns.append(np.where(known, denominators, 0.0))
        sums = iter(list[Floats](weighted_sums(self.weights, np.stack(columns, axis=1)).T) if columns else ())
        estimates = list[Estimate]()
        for n, has_sizes in zip(numbers, is_mean, strict=True):
            top, bottom = next(sums), self.sizes if has_sizes else next(sums)
            samples = np.divide(top, bottom, where=np.abs(bottom) > 1e-12, out=np.full(len(top), math.nan))
            estimates.append(self.interval(samples, n))
        return estimates

    def interval(self, samples: Floats, n: int) -> Estimate:
        """Value of a statistic, and percentiles over the resamples. NaN samples (statistic undefined) are excluded.

        Args:
            samples: Statistic of each row of ``weights``.
        """
        value, defined = float(samples[0]), samples[1:][~np.isnan(samples[1:])]
        if math.isnan(value) or not len(defined):
            return Estimate(value=None, low=None, high=None, n=n)
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
        return Estimate(value=value, low=float(low), high=float(high), n=n)

    def share(self, samples: Floats, n: int) -> Estimate:
        """``interval`` of the share of n problems that are right, exact at 0 and 1 like ``proportion``."""
        return _exact_at_the_ends(self.interval(samples, n))

    def auroc(self, scores: Floats, positives: Floats) -> Estimate:
        """AUROC of ``scores`` for ``positives`` (1 or 0). Problems with NaN in either are excluded. Ties count half.

        There is no interval if a class has fewer than ``MIN_PER_CLASS`` problems.
        """
        known = ~(np.isnan(scores) | np.isnan(positives))
        samples = weighted_auroc(scores, positives, self.weights)
        return self.auroc_interval(samples, int(known.sum()), fewest=fewest_of_a_class(positives[known]))

    def auroc_interval(self, samples: Floats, n: int, *, fewest: int) -> Estimate:
        """``interval`` of an AUROC, without bounds if a class has fewer than ``MIN_PER_CLASS`` items.

        Args:
            fewest: Number of items in the rarer class.
        """
        estimate = self.interval(samples, n)
        return estimate if fewest >= MIN_PER_CLASS else replace(estimate, low=None, high=None)


def fewest_of_a_class(positives: Floats) -> int:
    return min(int((positives == 1).sum()), int((positives == 0).sum()))


def known_mean(values: Floats) -> float | None:
    """Mean of the values that are not NaN. None without any."""
    known = values[~np.isnan(values)].tolist()
    return math.fsum(known) / len(known) if known else None


def mean_of_known(values: Floats) -> Floats:
    """Mean over the first axis of values that are not NaN, shapes (S, n) -> (n,). NaN if nothing is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    means: Floats = np.divide(sums, counts, where=counts > 0, out=np.full(values.shape[1], math.nan))
    return means


def _exact_at_the_ends(estimate: Estimate) -> Estimate:
    if estimate.value not in (0.0, 1.0) or estimate.n == 0:
        return estimate
    miss = 1 - ((1 - LEVEL) / 2) ** (1 / estimate.n)
    low, high = (0.0, miss) if estimate.value == 0.0 else (1 - miss, 1.0)
    return Estimate(value=estimate.value, low=low, high=high, n=estimate.n)


def over_blocks(statistic: Callable[[Weights], Floats], weights: Weights) -> Floats:
    """Statistic of (b, n) weights, shape (b, ...), computed for blocks of resamples.

    This limits memory, and large inputs use all available CPUs. The statistic converts the weights, which may be bytes,
    to floats.
    """
    blocks = [weights[start : start + ROWS_AT_ONCE] for start in range(0, max(len(weights), 1), ROWS_AT_ONCE)]
    # In small blocks the threads of a product wait for each other, which takes ten times as long.
    with _linear_algebra().limit(limits=1, user_api="blas"):
        if weights.size < MIN_WEIGHTS_FOR_THREADS:
            return np.concatenate([statistic(block) for block in blocks])
        return np.concatenate(on_all_cpus(statistic, blocks))


def on_all_cpus(work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
    """Results of ``work`` for each part, in order, computed in threads (numpy releases the GIL)."""
    with ThreadPoolExecutor(usable_cpus()) as threads:
        return list(threads.map(work, parts))


@cache
def _linear_algebra() -> ThreadpoolController:
    """Thread limits of numpy's BLAS libraries, cached because the look-up takes milliseconds."""
    return ThreadpoolController()


def weighted_sums(weights: Weights, columns: Floats) -> Floats:
    """Weighted sum of each column, shapes (B, n), (n, M) -> (B, M), or (B,) for a single column of shape (n,)."""
    return over_blocks(lambda block: block.astype(np.float64) @ columns, weights)


def weighted_auroc(scores: Floats, positives: Floats, weights: Weights) -> Floats:
    """AUROC of each weighting of the same n items.

    Args:
        scores: Scores, shape (n,). Higher should mean positive. Items with NaN are excluded.
        positives: 1 or 0, shape (n,). Items with NaN are excluded.
        weights: Weights >= 0, shape (B, n).

    Returns:
        Shape (B,). NaN if one class has no weight.
    """
    # Sort both classes by score, so that gathered items are adjacent in memory.
    classes = (np.flatnonzero((positives == label) & ~np.isnan(scores)) for label in (1, 0))
    good, bad = (rows[np.argsort(scores[rows], kind="stable")] for rows in classes)
    below, up_to = (np.searchsorted(scores[bad], scores[good], side=side) for side in ("left", "right"))
    has_ties = bool((below != up_to).any())

    def areas(block: Weights) -> Floats:
        own, lower = np.take(block, good, axis=1).astype(np.float64), np.zeros((len(block), len(bad) + 1))
        np.cumsum(np.take(block, bad, axis=1), axis=1, out=lower[:, 1:])
        beaten = np.take(lower, below, axis=1)
        if has_ties:  # ties count half
            beaten = 0.5 * (beaten + np.take(lower, up_to, axis=1))
        wins, pairs = np.einsum("bn,bn->b", own, beaten), own.sum(axis=1) * lower[:, -1]
        area: Floats = np.divide(wins, pairs, where=pairs > 0, out=np.full(len(wins), math.nan))
        return area

    return over_blocks(areas, weights)
