"""Recalibrate a posterior's probabilities on cross-fitted predictions.

Offset b and slope s maximise the likelihood of "the selected answer is right", with a normal prior around "no change"
(b = 0, log s = 0). Where answers compete, the selected answer's probability is

    p'(a) = e^b p(a)^s / (p(none)^s + e^b sum over clusters c of p(c)^s)

This is temperature scaling (Guo et al. 2017) with a bias between the answers and "none", so that a pool's probabilities
still sum to 1 and keep their order. Where answers do not compete, p'(a) = sigmoid(b + s logit p(a)) (Platt 1999).

In:   a posterior, cross-fitted predictions, the selected clusters.
Out:  the posterior with offset and slope.
Independent of: files, Ray, thresholds.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from raydebm.decision.evidence.fitting import CrossFit
from raydebm.decision.evidence.posterior import Posterior, softmax
from raydebm.decision.table import Bools, Floats, Ints, PoolTable, sigmoid

PRIOR_SD = 0.5
"""Standard deviation of the prior on offset and log slope."""

Likelihood = Callable[[float, float], tuple[float, float, float]]
"""(offset, slope) -> negative log-likelihood and its derivatives with respect to both."""


def recalibrated(
    posterior: Posterior, table: PoolTable, crossfit: CrossFit, selected: Ints, *, used: Bools | None = None
) -> Posterior:
    """The same posterior with offset and slope fitted on cross-fitted predictions.

    Args:
        posterior: posterior before recalibration.
        table: labelled problems.
        crossfit: predictions for these problems, not recalibrated.
        selected: selected cluster of each pool, shape (P,); -1 for none.
        used: mask of the pools to learn from. Default: all.
    """
    rows = np.flatnonzero(selected >= 0 if used is None else (selected >= 0) & used)
    if not len(rows):
        return posterior
    chosen = selected[rows]
    probability, worth = crossfit.probability[chosen], table.cluster_worth[chosen]
    known = np.isfinite(worth) & (probability > 0) & (probability < 1)
    if not known.any():
        return posterior
    rows, chosen, worth = rows[known], chosen[known], worth[known]
    if posterior.competition == "independent":
        likelihood = _independent(crossfit.probability[chosen], worth)
    else:
        likelihood = _exclusive(table.pool_of_cluster, crossfit, rows, chosen, worth)

    def objective(theta: Floats) -> tuple[float, Floats]:
        slope = math.exp(theta[1])
        value, by_offset, by_slope = likelihood(float(theta[0]), slope)
        gradient = np.array([by_offset, by_slope * slope]) + theta / PRIOR_SD**2
        return value + float(theta @ theta) / (2 * PRIOR_SD**2), gradient

    offset, log_slope = minimize(objective, np.zeros(2), jac=True, method="L-BFGS-B").x
    return replace(posterior, offset=float(offset), slope=math.exp(log_slope))


def _independent(probability: Floats, worth: Floats) -> Likelihood:
    logits = np.log(probability) - np.log1p(-probability)

    def likelihood(offset: float, slope: float) -> tuple[float, float, float]:
        scores = offset + slope * logits
        error = sigmoid(scores) - worth
        value = (np.logaddexp(0, scores) - worth * scores).sum()
        return float(value), float(error.sum()), float(error @ logits)

    return likelihood


def _exclusive(owner: Ints, crossfit: CrossFit, rows: Ints, chosen: Ints, worth: Floats) -> Likelihood:
    """Likelihood where answers compete.

    Args:
        owner: pool of each cluster, shape (C,).
        crossfit: predictions for P pools.
        rows: pools to learn from, shape (M,).
        chosen: selected cluster of each of these pools, shape (M,).
        worth: worth of each selection, shape (M,).
    """
    place = np.full(len(crossfit.none), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    open_rows = np.flatnonzero((place[owner] >= 0) & (crossfit.probability > 0))
    pool = place[owner[open_rows]]
    at = np.searchsorted(open_rows, chosen)
    log_p, log_none = np.log(crossfit.probability[open_rows]), np.log(crossfit.none[rows])

    def likelihood(offset: float, slope: float) -> tuple[float, float, float]:
        shares, none = softmax(slope * log_p + offset, slope * log_none, pool)
        p = np.clip(shares[at], 1e-12, 1 - 1e-12)
        value = -(worth * np.log(p) + (1 - worth) * np.log1p(-p)).sum()
        mean_log = np.bincount(pool, shares * log_p, len(rows)) + none * log_none
        pull = (worth - p) / (1 - p)  # derivative of the log-likelihood by log p
        return float(value), -float(pull @ none), -float(pull @ (log_p[at] - mean_log))

    return likelihood
