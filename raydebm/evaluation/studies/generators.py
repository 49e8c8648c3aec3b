"""Candidates by generator: quality, length, selections and energies."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydebm.config.scorer import POSITIVE_FRAC
from raydebm.decision.table import Bools, Floats, Ints, PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Weights, known_mean, weighted_sums

MIN_CORRECT = 5
"""Minimum number of correct candidates for a generator's mean energy to be compared."""


def energy_spread(pools: PoolTable, bootstrap: Bootstrap) -> Estimate:
    """``Screen.spread`` without the rest of the screen."""
    table = CandidateTable.of(pools, bootstrap)
    means, n = table.means_by_generator(table.mu)
    return bootstrap.of_samples(std(means), n)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTable:
    """Labelled, scored candidates of all pools, one per row (R rows). Statistics have shape (1 + B,): the value of the
    sample itself, then those of the resamples; NaN where undefined."""

    generators: tuple[str, ...]
    """All generator names of the pools, sorted."""
    problem: Ints
    generator: Ints
    """Index in ``generators``."""
    correct: Floats
    mu: Floats
    offset: Floats
    """mu minus the mean mu of the problem's correct rows. NaN for incorrect rows."""
    weights: Weights
    """Weight of each problem in the sample itself (1) and in each resample, shape (1 + B, P)."""

    @classmethod
    def of(cls, pools: PoolTable, bootstrap: Bootstrap) -> "CandidateTable":
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
            weights=bootstrap.with_sample(),
        )

    def sums(self, values: Floats | float, rows: Bools) -> Floats:
        """Sum of ``values`` over the selected rows of each problem, shape (P,). 1 counts them."""
        weights = np.broadcast_to(values, rows.shape)[rows]
        return np.bincount(self.problem[rows], weights, self.weights.shape[1]).astype(np.float64)

    def means(self, values: Floats, rows: Bools) -> Floats:
        """Mean of ``values`` over the selected rows, shape (1 + B,)."""
        tops, counts = weighted_sums(self.weights, np.stack([self.sums(values, rows), self.sums(1.0, rows)], axis=1)).T
        means: Floats = np.divide(tops, counts, where=counts > 0, out=np.full_like(tops, math.nan))
        return means

    def means_by_generator(self, values: Floats) -> tuple[Floats, int]:
        """Means over each generator's correct rows, shape (1 + B, G), and the number of their problems.

        Generators with fewer than ``MIN_CORRECT`` are excluded. G is 0 if fewer than two remain.
        """
        own = [(self.correct == 1) & (self.generator == index) for index in range(len(self.generators))]
        usable = [rows for rows in own if rows.sum() >= MIN_CORRECT]
        if len(usable) < 2:
            return np.zeros((len(self.weights), 0)), 0
        means = np.stack([self.means(values, rows) for rows in usable], axis=1)
        return means, len(np.unique(self.problem[np.any(usable, axis=0)]))


def std(means: Floats) -> Floats:
    """Standard deviation over generators, one per row. NaN without any."""
    deviations: Floats = means.std(axis=1) if means.shape[1] else np.full(len(means), math.nan)
    return deviations


BEST_SHARE = POSITIVE_FRAC
"""Share of a pool that the paper uses for positive pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRow:
    """Quality and length of one generator's candidates, and how often the energy selects them."""

    name: str
    num_candidates: int
    num_failed: int
    num_unparsed: int
    truncated_frac: float | None
    """Share of truncated texts. None if no finish reason is recorded."""
    accuracy: Estimate
    mean_violation: Estimate
    best_quarter: Estimate
    """Share among the best quarter of the pool by violation score, mean over problems. No value if the task has no
    violation scores. The paper's positives in pairs (``POSITIVE_FRAC``)."""
    characters: float | None
    completion_tokens: float | None
    """Mean count by the endpoint. None if it reports none."""
    picked: Estimate
    """Share of the selections on all problems with a selection, as in the paper."""
    mu_correct: Estimate


def generator_rows(
    pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap, trained: PoolTable | None = None
) -> tuple[GeneratorRow, ...]:
    """One row per generator.

    Args:
        trained: The same pools with the labels used in training, for ``mu_correct``. Default: ``pools``.
    """
    trained = pools if trained is None else trained
    picked = pools.select(lambda_)
    writer = np.append(pools.author_of_row, -1)[picked]
    right = trained.correct == 1
    best = np.where(np.isnan(pools.violation), math.nan, pools.lowest_share(BEST_SHARE))
    failed_of = Counter(scored.candidate.generator for _, scored in pools.failed)
    names = (*pools.authors, *sorted(failed_of.keys() - set(pools.authors)))
    rows = []
    for index, name in enumerate(names):
        within = pools.author_of_row == index
        good = within & right & ~np.isnan(pools.mu)
        chosen = np.where(writer >= 0, (writer == index).astype(float), math.nan)
        rows.append(
            GeneratorRow(
                name=name,
                num_candidates=int(within.sum()),
                num_failed=failed_of[name],
                num_unparsed=int((within & ~pools.parsed).sum()),
                truncated_frac=known_mean(pools.cut_off[within]),
                accuracy=bootstrap.proportion(pools.by_chance(within)),
                mean_violation=bootstrap.mean(pools.mean_of(pools.violation, within)),
                best_quarter=bootstrap.proportion(pools.mean_of(best, within)),
                characters=known_mean(pools.length[within]),
                completion_tokens=known_mean(pools.tokens[within]),
                picked=bootstrap.proportion(chosen),
                mu_correct=bootstrap.ratio(pools.total(np.where(good, pools.mu, 0.0)), pools.total(good)),
            )
        )
    return tuple(rows)
