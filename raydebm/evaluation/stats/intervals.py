"""Percentile bootstrap over problems, vectorised.

Problems are the unit that is resampled, because candidates of one problem are not independent. Every statistic of one
report uses the same resamples, so differences between selectors are paired.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.identity import seed_for

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval. All None when there is nothing to average."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    """Problems it rests on."""

    def __neg__(self) -> "Estimate":
        value, low, high = (None if found is None else -found for found in (self.value, self.high, self.low))
        return Estimate(value=value, low=low, high=high, n=self.n)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Estimate":
        """Inverse of ``asdict``."""
        return cls(**value)


NOTHING = Estimate(value=None, low=None, high=None, n=0)


@dataclass(frozen=True, slots=True, eq=False)
class Bootstrap:
    """Resamples of ``n`` problems: how often each problem occurs in each, shape (num_bootstrap, n)."""

    counts: Floats

    @classmethod
    def of(cls, n: int, *, num_bootstrap: int, seed: int) -> "Bootstrap":
        """``num_bootstrap`` draws of n out of n with replacement."""
        generator = np.random.default_rng(seed_for(seed, "bootstrap", n))
        if n == 0:
            return cls(np.zeros((num_bootstrap, 0)))
        draws = np.empty((num_bootstrap, n), dtype=np.float64)
        for row in range(num_bootstrap):
            draws[row] = np.bincount(generator.integers(0, n, size=n), minlength=n)
        return cls(draws)

    def mean(self, values: Floats) -> Estimate:
        """Mean over problems; NaN marks a problem without a value."""
        return self.ratio(values, np.ones(len(values)))

    def proportion(self, values: Floats) -> Estimate:
        """``mean`` of right (1) and wrong (0).

        Where all are right or all are wrong, every resample is the same and an interval without width would claim
        certainty: the open side is then the exact one (Clopper-Pearson).
        """
        return _exact_at_the_ends(self.mean(values))

    def ratio(self, numerators: Floats, denominators: Floats) -> Estimate:
        """sum(numerators) / sum(denominators) over problems where both are known.

        Resamples whose denominator is 0 are left out of the interval.
        """
        known = ~(np.isnan(numerators) | np.isnan(denominators))
        n = int(known.sum())
        total = float(denominators[known].sum())
        if n == 0 or math.isclose(total, 0.0, abs_tol=1e-12):
            return Estimate(value=None, low=None, high=None, n=n)
        tops = self.counts @ np.where(known, numerators, 0.0)
        bottoms = self.counts @ np.where(known, denominators, 0.0)
        usable = np.abs(bottoms) > 1e-12
        return self.interval(
            float(numerators[known].sum()) / total, np.divide(tops, bottoms, where=usable, out=tops * math.nan), n
        )

    def interval(self, value: float, samples: Floats, n: int) -> Estimate:
        """Percentiles of the statistic over the resamples; NaN samples (statistic undefined there) are left out."""
        defined = samples[~np.isnan(samples)]
        if math.isnan(value) or not len(defined):
            return Estimate(value=None, low=None, high=None, n=n)
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(defined, [tail, 1 - tail])
        return Estimate(value=value, low=float(low), high=float(high), n=n)

    def share(self, value: float, samples: Floats, n: int) -> Estimate:
        """``interval`` of a share of right ones among n problems, with the exact side of ``proportion``."""
        return _exact_at_the_ends(self.interval(value, samples, n))

    def auroc(self, scores: Floats, positives: Floats) -> Estimate:
        """AUROC of ``scores`` for ``positives`` (1 or 0); NaN in either leaves the problem out. Ties count half."""
        known = ~(np.isnan(scores) | np.isnan(positives))
        n = int(known.sum())
        if n == 0:
            return NOTHING
        value = weighted_auroc(scores[known], positives[known], np.ones((1, n)))[0]
        return self.interval(float(value), weighted_auroc(scores[known], positives[known], self.counts[:, known]), n)


def mean_of_known(values: Floats) -> Floats:
    """(S, n) -> (n,): mean over the first axis of what is not NaN; NaN where nothing is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    means: Floats = np.divide(sums, counts, where=counts > 0, out=np.full(values.shape[1], math.nan))
    return means


def _exact_at_the_ends(found: Estimate) -> Estimate:
    if found.value not in (0.0, 1.0) or found.n == 0:
        return found
    miss = 1 - ((1 - LEVEL) / 2) ** (1 / found.n)
    low, high = (0.0, miss) if found.value == 0.0 else (1 - miss, 1.0)
    return Estimate(value=found.value, low=low, high=high, n=found.n)


def weighted_auroc(scores: Floats, positives: Floats, weights: Floats) -> Floats:
    """AUROC of each weighting of the same n items.

    Args:
        scores: shape (n,); higher should mean positive.
        positives: shape (n,); 1 or 0.
        weights: shape (B, n), >= 0.

    Returns:
        Shape (B,); NaN where one class has no weight.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])
    # Sum the weights of each distinct score, then compare positives with the negatives below them.
    positive_BG = np.add.reduceat(weights[:, order] * positives[order], starts, axis=1)  # noqa: N806
    negative_BG = np.add.reduceat(weights[:, order] * (1 - positives[order]), starts, axis=1)  # noqa: N806
    below_BG = np.cumsum(negative_BG, axis=1) - negative_BG  # noqa: N806
    wins = (positive_BG * (below_BG + 0.5 * negative_BG)).sum(axis=1)
    pairs = positive_BG.sum(axis=1) * negative_BG.sum(axis=1)
    area: Floats = np.divide(wins, pairs, where=pairs > 0, out=np.full(len(wins), math.nan))
    return area
