"""The likelihood of labelled answers under the posterior's weights, and the weights that make it largest.

The weights maximise

    sum over problems w_x log p(right | x) - sum over weights (theta_j - prior_j)^2 / (2 PRIOR_SD^2)

where p(right | x) is the total probability of the clusters that are right, or of "none of them" when none is (a
conditional logit, McFadden 1974). An unlabelled cluster may be the right one, so where no labelled one is right its
probability counts as well. Where answers do not compete each cluster is an observation of a logistic regression,
weighted so that every problem counts once. A violation score enters as the fractional outcome 1 - violation, by
quasi-likelihood (Wedderburn 1974): the regression's terms are divided by the dispersion of the outcomes around their
expectation, which is 1 for labels that are right or wrong and far below 1 for scores, of which each says more.

Shapes: R clusters of P problems, T terms of clusters, U terms of "none of them".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from raydebm.decision.evidence.groups import Floats, Ints, sigmoid

PRIOR_SD = 0.5
NUM_DISPERSIONS = 10
"""Estimates of the dispersion at most, each from the weights under the one before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """What the likelihood needs of labelled problems."""

    features: Floats
    """(R, T)"""
    context: Floats
    """(P, U)"""
    owner: Ints
    """(R,), the problem of each cluster."""
    right: Floats
    """(R,): worth of the cluster; NaN for unknown."""
    weight: Floats
    """(P,)"""

    @cached_property
    def row_weight(self) -> Floats:
        """(R,): a problem's weight, shared among its labelled clusters."""
        known = ~np.isnan(self.right)
        per_pool = np.bincount(self.owner, known, len(self.weight))
        return np.where(known, (self.weight / np.maximum(per_pool, 1))[self.owner], 0.0)

    def log_odds(self, theta: Floats) -> Floats:
        """(R,): of each cluster, where clusters do not compete."""
        num_terms = self.features.shape[1]
        log_odds: Floats = self.features @ theta[:num_terms] - (self.context @ theta[num_terms:])[self.owner]
        return log_odds


Objective = Callable[[Floats], tuple[float, Floats]]
"""A value to make small, and its gradient, at weights of shape (T + U,)."""


def exclusive(design: Design) -> Objective:
    """Negative log-likelihood and gradient of the conditional logit."""
    count = len(design.weight)
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
        value = -(design.weight * np.log(good / total)).sum()
        wanted = mass * may_be_right / good[design.owner]
        rows = design.weight[design.owner] * (mass / total[design.owner] - wanted)
        pools = design.weight * (none_mass / total - np.where(solvable, 0.0, none_mass / good))
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
            [rows @ design.features, -np.bincount(design.owner, rows, len(design.weight)) @ design.context]
        )

    return objective


def _dispersion(design: Design, theta: Floats) -> float:
    """Mean of (outcome - p)^2 / (p (1 - p)) over the labelled clusters, and over one more problem where it is 1, so
    that a few problems that happen to fit well are not taken for certain."""
    expected = np.clip(sigmoid(design.log_odds(theta)), 1e-6, 1 - 1e-6)
    squares = np.nan_to_num(design.right - expected) ** 2 / (expected * (1 - expected))
    return float((design.row_weight @ squares + 1) / (design.row_weight.sum() + 1))


def maximum(likelihood: Objective, center: Floats) -> Floats:
    """The weights of the largest likelihood times prior; ``center`` is the prior's."""

    def objective(theta: Floats) -> tuple[float, Floats]:
        value, gradient = likelihood(theta)
        away = (theta - center) / PRIOR_SD
        return value + float(away @ away) / 2, gradient + away / PRIOR_SD

    weights: Floats = minimize(objective, center, jac=True, method="L-BFGS-B").x
    return weights


def quasi_maximum(design: Design, center: Floats) -> Floats:
    """The same of the regression on violation scores, whose dispersion is estimated from its own residuals."""
    theta, dispersion = maximum(independent(design), center), 1.0
    for _ in range(NUM_DISPERSIONS):
        earlier, dispersion = dispersion, _dispersion(design, theta)
        if abs(dispersion - earlier) <= 0.01 * earlier:
            break
        theta = maximum(independent(design, dispersion=dispersion), center)
    return theta
