"""Candidates by generator: quality, length, selections and energies."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydebm.config.scorer import POSITIVE_FRAC
from raydebm.decision.table import Bools, Floats, PoolTable, ratio
from raydebm.evaluation.results.energy_metrics import sums_of
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, known_mean, weighted_sums

MIN_CORRECT = 5
"""Minimum number of correct candidates for a generator's mean energy to be compared."""


def energy_spread(pools: PoolTable, bootstrap: Bootstrap) -> Estimate:
    """``Screen.spread`` without the rest of the screen."""
    scored = labelled_and_scored(pools)
    means, n = means_by_generator(scored, scored.mu, bootstrap)
    return bootstrap.interval(std(means), n)


def labelled_and_scored(pools: PoolTable) -> PoolTable:
    return pools.kept(~np.isnan(pools.correct) & ~np.isnan(pools.mu))


def sample_means(pools: PoolTable, values: Floats, rows: Bools, bootstrap: Bootstrap) -> Floats:
    """Mean of ``values`` over these rows, in the sample itself and in each resample, shape (1 + B,)."""
    return ratio(*weighted_sums(bootstrap.weights, np.stack(sums_of(pools, values, rows), axis=1)).T)


def means_by_generator(pools: PoolTable, values: Floats, bootstrap: Bootstrap) -> tuple[Floats, int]:
    """``sample_means`` over each generator's correct rows, shape (1 + B, G), and the number of their problems.

    Generators with fewer than ``MIN_CORRECT`` are excluded. G is 0 if fewer than two remain.
    """
    own = [(pools.correct == 1) & (pools.author_of_row == index) for index in range(len(pools.authors))]
    usable = [rows for rows in own if rows.sum() >= MIN_CORRECT]
    if len(usable) < 2:
        return np.zeros((len(bootstrap.weights), 0)), 0
    means = np.stack([sample_means(pools, values, rows, bootstrap) for rows in usable], axis=1)
    return means, int(pools.any(np.any(usable, axis=0)).sum())


def std(means: Floats) -> Floats:
    """Standard deviation over generators, one per row. NaN without any."""
    deviations: Floats = means.std(axis=1) if means.shape[1] else np.full(len(means), math.nan)
    return deviations


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
    violation scores."""
    characters: float | None
    completion_tokens: float | None
    """Mean count by the endpoint. None if it reports none."""
    picked: Estimate
    """Share of the selections on all problems with a selection, as in the paper."""
    mu_correct: Estimate


def in_best_quarter(pools: PoolTable) -> Floats:
    """1 for the share of each pool that the paper's pairs take as positives, else 0, shape (R,). NaN without a
    violation score."""
    return np.where(np.isnan(pools.violation), math.nan, pools.lowest_share(POSITIVE_FRAC))


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
    best = in_best_quarter(pools)
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
                mu_correct=bootstrap.ratio(*sums_of(pools, pools.mu, good)),
            )
        )
    return tuple(rows)
