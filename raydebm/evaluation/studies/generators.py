"""Candidates by generator: quality, length, selections and energies, and pools of one generator or of several."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydebm.config.pairs import POSITIVE_FRAC
from raydebm.decision.groups import Bools, Floats, Ints, ratio
from raydebm.decision.table import PoolTable
from raydebm.evaluation.results.energy_metrics import pair_accuracies
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, Weights, weighted_sums
from raydebm.evaluation.studies.sizes import EnergyOrder, of_oracle, of_votes

MIN_CORRECT = 5
"""Minimum number of correct candidates of a generator with a comparable mean energy."""


def energy_spread(pools: PoolTable, bootstrap: Bootstrap) -> Estimate:
    """``Screen.spread`` without the rest of the screen."""
    table = CandidateTable.of(pools, bootstrap)
    means, n = table.means_by_generator(table.mu)
    return bootstrap.of_samples(std(means), n)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTable:
    """Labelled, scored candidates of all pools, one per row, R rows; statistics of the sample itself, then of each
    resample, shape (1 + B,), NaN where undefined."""

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

        Generators with few correct candidates are excluded; G is 0 with fewer than two others.
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
MIXED = "all generators"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRow:
    """Candidates of one generator, with their treatment by the energy."""

    name: str
    num_candidates: int
    num_failed: int
    """Number of requests without a candidate."""
    num_unparsed: int
    """Number of candidates without an answer."""
    truncated_frac: float | None
    """Share of truncated texts. None if no finish reason is recorded."""
    accuracy: Estimate
    """Share correct, mean over problems."""
    mean_violation: Estimate
    best_quarter: Estimate
    """Share among the best quarter of the pool by violation score, mean over problems. No value if the task has no
    violation scores. The paper's positives in pairs (``POSITIVE_FRAC``)."""
    characters: float | None
    """Mean length of the text."""
    completion_tokens: float | None
    """Mean count by the endpoint. None if it reports none."""
    share_of_correct: float | None
    """Share of a problem's correct candidates, mean over the problems with any: the selections of a scorer that depends
    only on correctness."""
    picked: Estimate
    """Share of the selections by this generator, on the same problems."""
    picked_of_all: Estimate
    """Share of the selections on all problems with a selection, as in the paper."""
    mu_correct: Estimate
    """Mean mu of its correct candidates."""
    pair_accuracy: Estimate
    """Accuracy of mu on pairs of two candidates of this generator, independent of knowledge of the author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKind:
    """Pool of one generator's candidates, or an equally large random part of the whole pool."""

    name: str
    n: int
    """Candidates per problem (the largest number if it varies)."""
    random: Estimate
    majority: Estimate
    by_energy: Estimate
    mu_only: Estimate
    """pass@1 by mu."""
    oracle: Estimate
    same_size: Estimate = NOTHING
    """For one generator's pool: by energy on equally many random candidates of all generators per problem, on the
    problems that it answered."""
    whole_minus: Estimate = NOTHING
    """For one generator's pool: by energy on the whole pool minus on this pool, paired, on the problems that it
    answered."""
    mu_whole_minus: Estimate = NOTHING
    """Same as ``whole_minus``, by mu."""


def generator_rows(
    pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap, trained: PoolTable | None = None
) -> tuple[GeneratorRow, ...]:
    """One row per generator.

    Args:
        trained: The same pools with the labels used in training (``PoolTable.with_trained_labels``), for
            ``share_of_correct``, ``picked``, ``mu_correct`` and ``pair_accuracy``. Default: ``pools``.
    """
    trained = pools if trained is None else trained
    picked = pools.select(lambda_)
    writer = np.append(pools.author_of_row, -1)[picked]
    right = trained.correct == 1
    num_right = pools.count(right)
    solved = num_right > 0
    best = np.where(np.isnan(pools.violation), math.nan, pools.lowest_share(BEST_SHARE))
    failed_of = Counter(scored.candidate.generator for _, scored in pools.failed)
    names = (*pools.authors, *sorted(failed_of.keys() - set(pools.authors)))
    rows = []
    for index, name in enumerate(names):
        within = pools.author_of_row == index
        good = within & right & ~np.isnan(pools.mu)
        chosen = np.where(writer >= 0, (writer == index).astype(float), math.nan)
        share = ratio(pools.count(within & right), num_right)
        rows.append(
            GeneratorRow(
                name=name,
                num_candidates=int(within.sum()),
                num_failed=failed_of[name],
                num_unparsed=int((within & ~pools.parsed).sum()),
                truncated_frac=_known_mean(pools.cut_off[within]),
                accuracy=bootstrap.proportion(pools.by_chance(within)),
                mean_violation=bootstrap.mean(pools.mean_of(pools.violation, within)),
                best_quarter=bootstrap.proportion(pools.mean_of(best, within)),
                characters=_known_mean(pools.length[within]),
                completion_tokens=_known_mean(pools.tokens[within]),
                share_of_correct=bootstrap.mean(share).value,
                picked=bootstrap.proportion(np.where(solved, chosen, math.nan)),
                picked_of_all=bootstrap.proportion(chosen),
                mu_correct=bootstrap.ratio(pools.total(np.where(good, pools.mu, 0.0)), pools.total(good)),
                pair_accuracy=bootstrap.proportion(pair_accuracies(trained, np.where(within, pools.mu, math.nan))),
            )
        )
    return tuple(rows)


def _known_mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def pool_kinds(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> tuple[PoolKind, ...]:
    """Each generator's own pool, then random mixed pools of the same sizes, then the whole. Empty with one generator.

    All are scored by the same ensemble, which was trained on the mixed pool.
    """
    if len(pools.authors) < 2:
        return ()
    whole = int(pools.sizes.max())
    by_energy, by_mu = EnergyOrder.of(pools, lambda_), EnergyOrder.of(pools, 0.0)
    everything, everything_by_mu = by_energy.correct(whole), by_mu.correct(whole)
    rows = []
    sizes: set[int] = set()
    for index, name in enumerate(pools.authors):
        part = pools.kept(pools.author_of_row == index)
        size = int(part.sizes.max())
        sizes.add(size)
        own, own_by_mu = EnergyOrder.of(part, lambda_).correct(size), EnergyOrder.of(part, 0.0).correct(size)
        paired = {
            "same_size": bootstrap.proportion(np.where(np.isnan(own), math.nan, by_energy.correct(part.sizes))),
            "whole_minus": bootstrap.mean(everything - own),
            "mu_whole_minus": bootstrap.mean(everything_by_mu - own_by_mu),
        }
        rows.append(_kind(part, name, size, (own, own_by_mu), bootstrap=bootstrap, seed=seed, **paired))
    for size in sorted(sizes - {whole}):
        name, values = f"{MIXED}, {size} random candidates", (by_energy.correct(size), by_mu.correct(size))
        rows.append(_kind(pools, name, size, values, bootstrap=bootstrap, seed=seed))
    rows.append(_kind(pools, MIXED, whole, (everything, everything_by_mu), bootstrap=bootstrap, seed=seed))
    return tuple(rows)


def _kind(
    pools: PoolTable,
    name: str,
    size: int,
    energy_and_mu: tuple[Floats, Floats],
    *,
    bootstrap: Bootstrap,
    seed: int,
    **paired: Estimate,
) -> PoolKind:
    plain, _ = of_votes(pools, None, size, seed=seed)
    columns = (pools.by_chance(), plain, *energy_and_mu, of_oracle(pools, size))
    names = ("random", "majority", "by_energy", "mu_only", "oracle")
    return PoolKind(name=name, n=size, **dict(zip(names, bootstrap.proportions(columns), strict=True)), **paired)
