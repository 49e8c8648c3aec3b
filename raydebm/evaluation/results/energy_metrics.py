"""Metrics of the energies: ranking of candidates, sigma as a signal of errors, and the theory of the ensemble.

Measures have one value per problem, shape (P,), NaN where undefined, to be averaged and bootstrapped over problems.

Theory (paper Proposition 1, Eq. condorcet): V_k is 1 if adapter k gives the correct one of a (correct, incorrect) pair
the strictly lower energy. q is its mean over pairs and adapters, rho the mean correlation of V_j and V_k over pairs.
Problems have equal weight, so one with many pairs does not dominate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from raydebm.decision.table import Bools, Floats, PoolTable, ratio
from raydebm.evaluation.certainty.signals import NUM_RESAMPLES, num_answered, risks
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, weighted_sums

POOLS_AT_ONCE = 1024
"""Number of pools whose pairs are compared at once, which limits memory."""


def pool_energies(pools: PoolTable, lambda_: float) -> Floats:
    """E per candidate, shape (R,). NaN if not scored, else +inf if not parsed."""
    return np.where(np.isnan(pools.mu), math.nan, pools.energy(lambda_))


def energy_gaps(pools: PoolTable, energies: Floats) -> Floats:
    """Mean energy of incorrect minus mean energy of correct candidates. Positive is good."""
    return pools.mean_of(energies, pools.correct == 0) - pools.mean_of(energies, pools.correct == 1)


def kendall_taus(pools: PoolTable, energies: Floats) -> Floats:
    """Rank correlation (tau-b) of -energy with quality, in [-1, 1]. Positive is good.

    Quality is minus the violation score if the pool has one, else correctness. NaN if energy or quality is constant.
    """
    has_scores = pools.any(~np.isnan(pools.violation))[pools.pool_of_row]
    quality = pools.grid(np.where(has_scores, -pools.violation, pools.correct))
    energies = pools.grid(energies)
    usable = ~np.isnan(quality) & ~np.isnan(energies)
    # Direct definition over all pairs. It is faster than scipy's for pools of this size; a test compares the two.
    parts = [slice(start, start + POOLS_AT_ONCE) for start in range(0, len(usable), POOLS_AT_ONCE)]
    sums = np.concatenate([_orders(-energies[part], quality[part], usable[part]) for part in parts])
    return ratio(sums[:, 2], np.sqrt(sums[:, 0] * sums[:, 1]))


def _orders(given: Floats, wanted: Floats, usable: Bools) -> Floats:
    """Over all ordered pairs of usable candidates: number different in ``given``, number different in ``wanted``, and
    number concordant minus discordant. Shape (p, 3)."""
    both = usable[:, :, None] & usable[:, None, :]
    one, other = (_signs(values) * both for values in (given, wanted))
    return np.stack([np.abs(one).sum(axis=(1, 2)), np.abs(other).sum(axis=(1, 2)), (one * other).sum(axis=(1, 2))], 1)


def _signs(values: Floats) -> NDArray[np.int8]:
    """Order of each pair, shape (p, N, N): 1, -1, or 0 for a tie. Compared instead of subtracted, so that infinities
    tie."""
    larger = (values[:, :, None] > values[:, None, :]).astype(np.int8)
    signs: NDArray[np.int8] = larger - larger.transpose(0, 2, 1)
    return signs


def pair_accuracies(pools: PoolTable, energies: Floats) -> Floats:
    """Share of (correct, incorrect) pairs in which the correct one has the lower energy, shape (P,). Ties count half.

    Args:
        energies: Energies, shape (R,). Candidates with NaN are excluded.
    """
    from scipy.stats import rankdata  # imported here because it is slow

    energy, correct = pools.grid(energies), pools.grid(pools.correct)
    known = ~np.isnan(energy) & ~np.isnan(correct)
    # Infinite energies tie with each other, and not with the candidates that are left out.
    _, places = np.unique(energy[known], return_inverse=True)
    filled = np.full(energy.shape, len(places) + 1)
    filled[known] = places
    bad = known & (correct == 0)
    num_bad, num_good = bad.sum(axis=1), (known & (correct == 1)).sum(axis=1)
    wins = np.where(bad, rankdata(filled, axis=1), 0.0).sum(axis=1) - num_bad * (num_bad + 1) / 2  # Mann-Whitney's U
    return ratio(wins, num_bad * num_good)


def pass_at_n_by_energy(pools: PoolTable, lambda_: float, *, max_n: int) -> Floats:
    """1 if one of the n lowest-energy candidates is correct, else 0, for n = 1..max_n. Shape (P, max_n). NaN without
    labels.

    Unlabelled candidates are excluded from the order. Ties are broken as in selection; unselectable candidates are
    last. Beyond the pool's size the value is constant.
    """
    correct, mu = pools.grid(pools.correct), pools.grid(pools.mu)
    labelled, ties = ~np.isnan(correct), np.where(np.isnan(mu), math.inf, mu)
    columns = np.broadcast_to(np.arange(mu.shape[1]), mu.shape)
    order = np.lexsort((columns, ties, pools.grid(pools.energy(lambda_), math.inf), ~labelled), axis=1)
    right = np.take_along_axis(correct == 1, order, axis=1).astype(np.float64)
    curves = np.maximum.accumulate(right, axis=1)[:, np.minimum(np.arange(max_n), mu.shape[1] - 1)]
    return np.where(labelled.any(axis=1, keepdims=True), curves, math.nan)


def pass_at_n_by_chance(pools: PoolTable, *, max_n: int) -> Floats:
    """Probability that n random candidates contain a correct one, 1 - C(L-c, n) / C(L, n) with c correct of L labelled
    ones, for n = 1..max_n. Shape (P, max_n). NaN without labels."""
    wrong, total = pools.count(pools.correct == 0), pools.count(~np.isnan(pools.correct))
    miss, values = np.ones(len(total)), np.empty((len(total), max_n))
    for drawn in range(max_n):
        miss = np.where(drawn < total, miss * np.maximum(wrong - drawn, 0) / np.maximum(total - drawn, 1), miss)
        values[:, drawn] = 1 - miss
    return np.where(total[:, None] > 0, values, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Share correct without the most uncertain selections (paper, selective prediction)."""

    abstain_frac: float
    pass_at_1: Estimate


def selective_accuracy(
    sigma: Floats, correct: Floats, bootstrap: Bootstrap, *, shares: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
) -> tuple[Retained, ...]:
    """Accuracy on the labelled selections without those of highest sigma, for each of the ``shares`` to leave out.

    Equal sigmas at the cut-off count fractionally. ``n`` is the number of remaining problems.

    Args:
        sigma: Sigma of each problem's selection, shape (P,). NaN without one.
        correct: Correctness of the selections, shape (P,).
    """
    known = ~(np.isnan(sigma) | np.isnan(correct))
    total = int(known.sum())
    if total == 0:
        return tuple(Retained(abstain_frac=share, pass_at_1=NOTHING) for share in shares)
    accuracy = 1 - risks(-sigma[known], correct[known], bootstrap.first(NUM_RESAMPLES).weights[:, known], shares)
    return tuple(
        Retained(abstain_frac=share, pass_at_1=bootstrap.share(values, num_answered(share, total)))
        for share, values in zip(shares, accuracy.T, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasureRow:
    """Quality of one energy's ranking of a problem's candidates. ``n`` is the number of problems where a figure is
    defined."""

    name: str
    pair_accuracy: Estimate
    kendall_tau_b: Estimate
    energy_gap: Estimate
    """Mean energy of a problem's incorrect candidates minus that of its correct ones."""
    mean_difference: Estimate
    """``mean_incorrect`` minus ``mean_correct``, the paper's gap, in which problems are weighted by their numbers of
    candidates."""
    mean_correct: Estimate
    """Mean over all correct candidates. Problems with more of them have more weight."""
    mean_incorrect: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtN:
    n: int
    by_energy: Estimate
    by_mu: Estimate
    """Lowest mu first, without constraints."""
    by_chance: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPoint:
    """One problem's selection in the mu-sigma plane."""

    mu: float
    sigma: float
    correct: bool | None


def energy_measures(
    pools: PoolTable,
    trained: PoolTable,
    names: Sequence[str],
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    tolerance: float,
) -> dict[str, Any]:
    """Measure the energies of the adapters ``names``, of mu, and of E, as fields of ``Evaluation``.

    Args:
        trained: The same pools with the labels used in training (``PoolTable.with_trained_labels``).
        tolerance: Tolerance of pass@n, for tasks with violation scores.
    """
    continuous = pools.has_violations
    accepted = pools.with_tolerance(tolerance) if continuous else pools
    measured: dict[str, Any] = {}
    for prefix, weight in (("mu_", 0.0), ("", lambda_)):
        picked = pools.select(weight)
        mu, sigma, correct = (pools.at(values, picked) for values in (pools.mu, pools.sigma, pools.correct))
        has_sigma = len(names) > 1
        measured[f"{prefix}sigma_auroc"] = bootstrap.auroc(-sigma, correct) if has_sigma else NOTHING
        measured[f"{prefix}selective"] = selective_accuracy(sigma, correct, bootstrap) if has_sigma else ()
    points = zip(mu.tolist(), sigma.tolist(), correct.tolist(), strict=True)
    return measured | {
        "energies": tuple(_energy_rows(trained, names, lambda_, bootstrap)),
        "pass_at_n": tuple(_pass_at_n(accepted, lambda_=lambda_, bootstrap=bootstrap)) if names else (),
        "tolerance": tolerance if continuous else None,
        "theory": ensemble_theory(trained, bootstrap),
        "picks": tuple(
            PickPoint(mu=mu, sigma=sigma, correct=None if math.isnan(correct) else correct == 1)
            for mu, sigma, correct in points
            if not math.isnan(mu)
        ),
    }


def _energy_rows(
    pools: PoolTable, names: Sequence[str], lambda_: float, bootstrap: Bootstrap
) -> list[EnergyMeasureRow]:
    if not names:
        return []
    columns = {f"adapter {name}": pools.members[:, index] for index, name in enumerate(names)}
    columns |= {"mu": pools.mu, "E": pool_energies(pools, lambda_)}
    rows = []
    for name, energies in columns.items():
        finite = np.where(np.isfinite(energies), energies, math.nan)
        bad, good = (sums_of(pools, finite, (pools.correct == label) & ~np.isnan(finite)) for label in (0, 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            totals = weighted_sums(bootstrap.weights, np.stack([*bad, *good], axis=1)).T
            difference = totals[0] / totals[1] - totals[2] / totals[3]
        rows.append(
            EnergyMeasureRow(
                name=name,
                pair_accuracy=bootstrap.proportion(pair_accuracies(pools, energies)),
                kendall_tau_b=bootstrap.mean(kendall_taus(pools, energies)),
                energy_gap=bootstrap.mean(energy_gaps(pools, finite)),
                mean_difference=bootstrap.interval(difference, int(((good[1] + bad[1]) > 0).sum())),
                mean_correct=bootstrap.ratio(*good),
                mean_incorrect=bootstrap.ratio(*bad),
            )
        )
    return rows


def sums_of(pools: PoolTable, values: Floats, rows: Bools) -> tuple[Floats, Floats]:
    """Sum of ``values`` over these rows, and their number, shape (P,) each."""
    return pools.total(np.where(rows, values, 0.0)), pools.total(rows)


def _pass_at_n(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> list[PassAtN]:
    largest = int(pools.sizes.max())
    by_energy = pass_at_n_by_energy(pools, lambda_, max_n=largest)
    by_mu = pass_at_n_by_energy(pools, 0.0, max_n=largest)
    by_chance = pass_at_n_by_chance(pools, max_n=largest)
    sizes = _sizes(largest)
    estimates = (bootstrap.proportions([curve[:, n - 1] for n in sizes]) for curve in (by_energy, by_mu, by_chance))
    return [
        PassAtN(n=n, by_energy=energy, by_mu=mu, by_chance=chance)
        for n, energy, mu, chance in zip(sizes, *estimates, strict=True)
    ]


def _sizes(largest: int) -> list[int]:
    """Every size up to 8, then powers of two, then the largest."""
    return sorted(
        {*range(1, min(8, largest) + 1), *(2**power for power in range(4, 16) if 2**power < largest), largest}
    )


POOLS_OF_VOTES_AT_ONCE = 256
"""Number of pools whose pairs are compared by every adapter at once, which limits memory."""


def ensemble_accuracy(num_adapters: float, q: float, rho: float) -> float:
    """P(K, q, rho): probability that the ensemble mean ranks a pair correctly. K may be ``math.inf`` for the ceiling.

    A Gaussian approximation of a majority of correlated votes, valid for K >= 5 and rho >= 0.

    Raises:
        ValueError: q outside [0, 1], rho outside [-1, 1], or K below 1.
    """
    if not (0 <= q <= 1 and -1 <= rho <= 1 and num_adapters >= 1):
        raise ValueError(f"need K >= 1, 0 <= q <= 1 and -1 <= rho <= 1, got K={num_adapters}, q={q}, rho={rho}")
    if q == 0.5:
        return 0.5
    # Variance of the mean vote. Its limit for K -> inf is q (1 - q) rho.
    share = 0.0 if math.isinf(num_adapters) else 1 / num_adapters
    variance = q * (1 - q) * (share + (1 - share) * rho)
    if variance <= 0:
        return float(q > 0.5)
    return float(ndtr((q - 0.5) / math.sqrt(variance)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleTheory:
    """Measured q and rho, the proposition's prediction, and the measured accuracy."""

    num_adapters: int
    q: Estimate
    rho: Estimate
    """Mean pairwise correlation. No value with one adapter, or if an adapter ranks every pair the same way."""
    predicted: float | None
    ceiling: float | None
    """Limit of P(K, q, rho) for K -> inf."""
    measured: Estimate
    """Share of pairs that the ensemble mean ranks correctly."""
    num_pairs: int


def ensemble_theory(pools: PoolTable, bootstrap: Bootstrap) -> EnsembleTheory | None:
    """Estimates from scored, labelled pools. None if no pool has both a correct and an incorrect scored candidate."""
    num_adapters = pools.num_members
    if num_adapters == 0:
        return None
    table, counts = _moments(pools)
    num_pairs = int(counts.sum())
    if num_pairs == 0:
        return None
    known, weights = counts > 0, bootstrap.weights
    totals = weighted_sums(weights, known.astype(np.float64))[:, None]
    sums = weighted_sums(weights, np.where(known[:, None], table, 0.0))
    moments = ratio(sums, np.broadcast_to(totals, sums.shape))
    n, qs, rhos = int(known.sum()), moments[:, :num_adapters].mean(axis=1), _rho(moments, num_adapters)
    q, rho = float(qs[0]), float(rhos[0])
    return EnsembleTheory(
        num_adapters=num_adapters,
        q=bootstrap.interval(qs, n),
        rho=bootstrap.interval(rhos, n),
        predicted=None if math.isnan(rho) else ensemble_accuracy(num_adapters, q, rho),
        ceiling=None if math.isnan(rho) else ensemble_accuracy(math.inf, q, rho),
        measured=bootstrap.interval(moments[:, -1], n),
        num_pairs=num_pairs,
    )


def _moments(pools: PoolTable) -> tuple[Floats, Floats]:
    """Moments over each problem's pairs, and the number of pairs, shape (P,).

    The moments have shape (P, K + K * K + 1): mean V_k (K), mean V_j V_k (K * K), mean indicator of mu (1); NaN without
    a pair.
    """
    energies = pools.grid(np.column_stack([pools.members, pools.mu]))
    scored, correct = ~np.isnan(energies).any(axis=2), pools.grid(pools.correct)
    good, bad = scored & (correct == 1), scored & (correct == 0)
    num_adapters, num_pools = pools.num_members, len(good)
    products = np.zeros((num_pools, num_adapters + 1, num_adapters + 1))
    for start in range(0, num_pools, POOLS_OF_VOTES_AT_ONCE):
        part = slice(start, start + POOLS_OF_VOTES_AT_ONCE)
        is_pair = good[part][:, :, None] & bad[part][:, None, :]
        # Whole numbers below 2^24 are exact in these floats.
        votes = (energies[part][:, :, None, :] < energies[part][:, None, :, :]) & is_pair[..., None]
        flat = votes.reshape(len(votes), -1, num_adapters + 1).astype(np.float32)
        products[part] = flat.transpose(0, 2, 1) @ flat
    counts = (good.sum(axis=1) * bad.sum(axis=1)).astype(np.float64)
    first = products[:, range(num_adapters), range(num_adapters)]
    second = products[:, :num_adapters, :num_adapters].reshape(num_pools, -1)
    table = np.concatenate([first, second, products[:, -1, -1:]], axis=1)
    return ratio(table, np.broadcast_to(counts[:, None], table.shape)), counts


def _rho(moments: Floats, num_adapters: int) -> Floats:
    if num_adapters < 2:
        return np.full(len(moments), math.nan)
    means = moments[:, :num_adapters]
    second = moments[:, num_adapters:-1].reshape(-1, num_adapters, num_adapters)
    deviations = np.sqrt(np.clip(means * (1 - means), 0.0, None))
    covariance = second - means[:, :, None] * means[:, None, :]
    scale = deviations[:, :, None] * deviations[:, None, :]
    first, other = np.triu_indices(num_adapters, k=1)
    pairs = np.divide(covariance, scale, where=scale > 1e-12, out=np.full(covariance.shape, math.nan))[:, first, other]
    rho: Floats = np.clip(pairs.mean(axis=1), -1.0, 1.0)
    return rho
