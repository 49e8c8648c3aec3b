"""Candidates by generator: quality, length and selections, and pools of one generator or of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.config.pairs import POSITIVE_FRAC
from raydebm.evaluation.pools.pool import Floats, lowest_share
from raydebm.evaluation.pools.stack import Stack, pair_accuracies
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.studies.pool_size import EnergyOrder, of_oracle, of_votes

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
    num_unlabeled: int
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
    cost_usd: float | None
    """Sum over its requests, including those without a candidate. None if unknown."""
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
    ours: Estimate
    mu_only: Estimate
    """pass@1 by mu."""
    oracle: Estimate
    same_size: Estimate
    """For one generator's pool: ours on equally many random candidates of all generators per problem, on the problems
    that it answered."""
    whole_minus: Estimate
    """For one generator's pool: ours on the whole pool minus ours on this pool, paired, on the problems that it
    answered."""
    mu_whole_minus: Estimate
    """Same as ``whole_minus``, by mu."""


def generator_rows(
    stack: Stack, *, lambda_: float, bootstrap: Bootstrap, trained: Stack | None = None
) -> tuple[GeneratorRow, ...]:
    """One row per generator.

    Args:
        trained: The same pools with the labels used in training (``pool.with_trained_labels``), for
            ``share_of_correct``, ``picked``, ``mu_correct`` and ``pair_accuracy``. Default: ``stack``.
    """
    trained = stack if trained is None else trained
    picked = stack.select(lambda_) if stack.num_members else np.full(len(stack.problems), -1)
    writer = np.where(picked >= 0, stack.generator[np.arange(len(picked)), picked], -1)
    right = trained.correct == 1
    num_right = right.sum(axis=1).astype(np.float64)
    solved = num_right > 0
    mu = stack.mu()
    best = np.where(np.isnan(stack.violation), math.nan, lowest_share(stack.violation, BEST_SHARE).astype(float))
    names = (*stack.generators, *sorted({request.generator for request in stack.failed} - set(stack.generators)))
    rows = []
    for index, name in enumerate(names):
        within = stack.generator == index
        failed = [request.cost_usd for request in stack.failed if request.generator == name]
        good = within & right & ~np.isnan(mu)
        chosen = np.where(writer >= 0, (writer == index).astype(float), math.nan)
        share = np.divide((within & right).sum(axis=1), num_right, where=solved, out=np.full(len(solved), math.nan))
        rows.append(
            GeneratorRow(
                name=name,
                num_candidates=int(within.sum()),
                num_failed=len(failed),
                num_unparsed=int((within & ~stack.parsed).sum()),
                num_unlabeled=int(np.isnan(stack.correct[within]).sum()),
                truncated_frac=_known_mean(stack.cut_off[within]),
                accuracy=bootstrap.proportion(stack.by_chance(within)),
                mean_violation=bootstrap.mean(stack.violation_by_chance(within)),
                best_quarter=bootstrap.proportion(stack.mean_of(best, within)),
                characters=_known_mean(stack.length[within]),
                completion_tokens=_known_mean(stack.tokens[within]),
                cost_usd=_known_sum([*stack.cost_usd[within].tolist(), *failed]),
                share_of_correct=bootstrap.mean(share).value,
                picked=bootstrap.proportion(np.where(solved, chosen, math.nan)),
                picked_of_all=bootstrap.proportion(chosen),
                mu_correct=bootstrap.ratio(np.where(good, mu, 0.0).sum(axis=1), good.sum(axis=1).astype(float)),
                pair_accuracy=bootstrap.proportion(pair_accuracies(np.where(within, mu, math.nan), trained.correct)),
            )
        )
    return tuple(rows)


def _known_mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _known_sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return math.fsum(known) if known else None


def pool_kinds(stack: Stack, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> tuple[PoolKind, ...]:
    """Each generator's own pool, then random mixed pools of the same sizes, then the whole. Empty with one generator.

    All are scored by the same ensemble, which was trained on the mixed pool.
    """
    if len(stack.generators) < 2:
        return ()
    whole = int(stack.sizes.max())
    ours, by_mu = EnergyOrder.of(stack, lambda_), EnergyOrder.of(stack, 0.0)
    everything, everything_by_mu = ours.correct(whole), by_mu.correct(whole)
    rows = []
    sizes: set[int] = set()
    for index, name in enumerate(stack.generators):
        part = stack.narrowed(index)
        size = int(part.sizes.max())
        sizes.add(size)
        own, own_by_mu = EnergyOrder.of(part, lambda_).correct(size), EnergyOrder.of(part, 0.0).correct(size)
        rows.append(
            replace(
                _kind(part, name, size, (own, own_by_mu), bootstrap=bootstrap, seed=seed),
                same_size=bootstrap.proportion(np.where(np.isnan(own), math.nan, ours.correct(part.sizes))),
                whole_minus=bootstrap.mean(everything - own),
                mu_whole_minus=bootstrap.mean(everything_by_mu - own_by_mu),
            )
        )
    for size in sorted(sizes - {whole}):
        name, values = f"{MIXED}, {size} random candidates", (ours.correct(size), by_mu.correct(size))
        rows.append(_kind(stack, name, size, values, bootstrap=bootstrap, seed=seed))
    rows.append(_kind(stack, MIXED, whole, (everything, everything_by_mu), bootstrap=bootstrap, seed=seed))
    return tuple(rows)


def _kind(
    stack: Stack, name: str, size: int, ours_and_mu: tuple[Floats, Floats], *, bootstrap: Bootstrap, seed: int
) -> PoolKind:
    plain, _ = of_votes(stack, None, size, seed=seed)
    columns = [stack.by_chance(), plain, *ours_and_mu, of_oracle(stack, size)]
    random, majority, ours, mu_only, oracle = bootstrap.proportions(columns)
    return PoolKind(
        name=name,
        n=size,
        random=random,
        majority=majority,
        ours=ours,
        mu_only=mu_only,
        oracle=oracle,
        same_size=NOTHING,
        whole_minus=NOTHING,
        mu_whole_minus=NOTHING,
    )
