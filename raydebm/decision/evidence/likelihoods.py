"""Likelihood of labelled answers under the posterior's weights, and its maximum.

The weights maximise

    sum over problems log p(right | x) - sum over weights (theta_j - prior_j)^2 / (2 PRIOR_SD^2)

where p(right | x) is the total probability of the right clusters, or of "none of them" if no cluster is right (a
conditional logit, McFadden 1974). If no labelled cluster is right, the probability of the unlabelled ones is included,
because one of them may be right. Where answers do not compete, each cluster is an observation of a logistic regression,
weighted so that every problem counts once. A violation score is the fractional outcome 1 - violation, fitted by
quasi-likelihood (Wedderburn 1974): the regression's terms are divided by the dispersion of the outcomes around their
expectation. The dispersion is 1 for right or wrong labels and far below 1 for scores, each of which is more
informative.

Shapes: R clusters of P problems, T terms of clusters, U terms of "none of them".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from raydebm.decision.table import Floats, Ints, sigmoid

PRIOR_SD = 0.5
NUM_DISPERSIONS = 10
"""Maximum number of dispersion estimates, each from the weights fitted with the previous estimate."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Inputs of the likelihood, from labelled problems."""

    features: Floats
    """(R, T)"""
    context: Floats
    """(P, U)"""
    owner: Ints
    """Problem of each cluster, shape (R,)."""
    right: Floats
    """Worth of each cluster, shape (R,). NaN if unknown."""

    @cached_property
    def row_weight(self) -> Floats:
        """Weight of each cluster, shape (R,): 1 / number of its problem's labelled clusters, or 0 if unlabelled."""
        known = ~np.isnan(self.right)
        per_pool = np.bincount(self.owner, known, len(self.context))
        return np.where(known, (1 / np.maximum(per_pool, 1))[self.owner], 0.0)

    def log_odds(self, theta: Floats) -> Floats:
        """Log-odds of each cluster where clusters do not compete, shape (R,)."""
        num_terms = self.features.shape[1]
        log_odds: Floats = self.features @ theta[:num_terms] - (self.context @ theta[num_terms:])[self.owner]
        return log_odds


Objective = Callable[[Floats], tuple[float, Floats]]
"""Value to minimise and its gradient, at weights of shape (T + U,)."""


def exclusive(design: Design) -> Objective:
    """Negative log-likelihood and gradient of the conditional logit."""
    count = len(design.context)
    is_right = np.nan_to_num(design.right) > 0.5
    solvable = np.bincount(design.owner, is_right, count) > 0
    may_be_right = np.where(solvable[design.owner], is_right, np.isnan(design.right))
    num_terms = design.features.shape[1]

    def objective(theta: Floats) -> tuple[float, Floats]:
        scores, none = design.features @ theta[:num_terms], design.context @ theta[num_terms:]
        top = none.copy()
        np.maximum.at(top, design.owner, scores)
        mass, none_mass = np.exp(scores - top[design.owner]), np.exp(none - top)
        total = np.bincount(design.owner, mass, count) + none_mass
        good = np.bincount(design.owner, mass * may_be_right, count) + np.where(solvable, 0.0, none_mass)
        good = np.maximum(good, 1e-300)
        value = -np.log(good / total).sum()
        wanted = mass * may_be_right / good[design.owner]
        rows = mass / total[design.owner] - wanted
        pools = none_mass / total - np.where(solvable, 0.0, none_mass / good)
        return float(value), np.concatenate([rows @ design.features, pools @ design.context])

    return objective


def independent(design: Design, *, dispersion: float = 1.0) -> Objective:
    """Negative log-likelihood and gradient of the logistic regression over clusters."""
    row_weight, outcome = design.row_weight / dispersion, np.nan_to_num(design.right)

    def objective(theta: Floats) -> tuple[float, Floats]:
        scores = design.log_odds(theta)
        value = (row_weight * (np.logaddexp(0, scores) - outcome * scores)).sum()
        rows = row_weight * (sigmoid(scores) - outcome)
        return float(value), np.concatenate(
            [rows @ design.features, -np.bincount(design.owner, rows, len(design.context)) @ design.context]
        )

    return objective


def _dispersion(design: Design, theta: Floats) -> float:
    """Mean of (outcome - p)^2 / (p (1 - p)) over the labelled clusters and one pseudo-observation of 1.

    The pseudo-observation limits the weight of a few problems that fit well by chance.
    """
    expected = np.clip(sigmoid(design.log_odds(theta)), 1e-6, 1 - 1e-6)
    squares = np.nan_to_num(design.right - expected) ** 2 / (expected * (1 - expected))
    return float((design.row_weight @ squares + 1) / (design.row_weight.sum() + 1))


def maximum(likelihood: Objective, center: Floats) -> Floats:
    """Weights that maximise likelihood times prior. ``center`` is the prior mean."""

    def objective(theta: Floats) -> tuple[float, Floats]:
        value, gradient = likelihood(theta)
        away = (theta - center) / PRIOR_SD
        return value + float(away @ away) / 2, gradient + away / PRIOR_SD

    weights: Floats = minimize(objective, center, jac=True, method="L-BFGS-B").x
    return weights


def quasi_maximum(design: Design, center: Floats) -> Floats:
    """Weights of the regression on violation scores, with the dispersion estimated from its residuals."""
    theta, dispersion = maximum(independent(design), center), 1.0
    for _ in range(NUM_DISPERSIONS):
        earlier, dispersion = dispersion, _dispersion(design, theta)
        if abs(dispersion - earlier) <= 0.01 * earlier:
            break
        theta = maximum(independent(design, dispersion=dispersion), center)
    return theta
