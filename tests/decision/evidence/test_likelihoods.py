import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from raydebm.decision.evidence.likelihoods import PRIOR_SD, Design, _dispersion, exclusive, independent, quasi_maximum


def one_problem(right):
    """Two clusters with features 1 and 0, and "none" with context 1."""
    return Design(
        features=np.array([[1.0], [0.0]]), context=np.array([[1.0]]), owner=np.array([0, 0]), right=np.array(right)
    )


THETA = np.array([0.7, -0.4])
MASSES = math.exp(0.7), 1.0, math.exp(-0.4)


@pytest.mark.parametrize(
    ("right", "mass"),
    [
        ([1.0, 0.0], MASSES[0]),
        ([0.0, 1.0], MASSES[1]),
        ([1.0, 1.0], MASSES[0] + MASSES[1]),
        ([0.0, 0.0], MASSES[2]),
        ([0.0, math.nan], MASSES[1] + MASSES[2]),
        ([1.0, math.nan], MASSES[0]),
    ],
    ids=["first", "second", "both", "none", "unlabelled-or-none", "unlabelled-beside-a-right-one"],
)
def test_likelihood_of_competing_answers(right, mass):
    value, _ = exclusive(one_problem(right))(THETA)

    assert value == pytest.approx(-math.log(mass / sum(MASSES)))


def test_likelihood_of_answers_that_do_not_compete():
    """Scores 0.7 + 0.4 and 0.4; the problem counts once, so each answer half."""
    value, _ = independent(one_problem([1.0, 0.25]))(THETA)

    def loss(score, outcome):
        return math.log(1 + math.exp(score)) - outcome * score

    assert value == pytest.approx((loss(1.1, 1.0) + loss(0.4, 0.25)) / 2)


def random_design(seed):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(6), [1, 2, 3, 4, 2, 3])
    right = rng.choice([0.0, 1.0, 0.3, math.nan], len(owner))
    return Design(features=rng.normal(size=(len(owner), 3)), context=rng.normal(size=(6, 2)), owner=owner, right=right)


@pytest.mark.parametrize("likelihood", [exclusive, independent])
@pytest.mark.parametrize("seed", range(2))
def test_gradients(likelihood, seed):
    objective = likelihood(random_design(seed))
    theta = np.random.default_rng(seed + 100).normal(size=5)

    assert check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], theta) < 1e-5


def test_the_dispersion_is_the_mean_squared_residual_in_units_of_a_right_or_wrong_label():
    """Both probabilities are 1/2: residuals 1/2 and -1/4 over a variance of 1/4, and one more problem that counts 1."""
    dispersion = _dispersion(one_problem([1.0, 0.25]), np.zeros(2))

    assert dispersion == pytest.approx(((1 + 0.25) / 2 + 1) / 2)


def test_scores_near_their_expectation_weigh_as_much_as_their_dispersion_says():
    """The gradient of likelihood over dispersion plus prior is zero at the maximum."""
    rng = np.random.default_rng(0)
    owner, features = np.repeat(np.arange(40), 5), rng.normal(size=(200, 1))
    right = 1 / (1 + np.exp(-1.5 * features[:, 0])) + rng.uniform(-0.05, 0.05, 200)
    design = Design(features=features, context=np.ones((40, 1)), owner=owner, right=np.clip(right, 0, 1))

    theta = quasi_maximum(design, np.zeros(2))

    dispersion = _dispersion(design, theta)
    assert dispersion < 0.1
    _, gradient = independent(design, dispersion=dispersion)(theta)
    assert gradient + theta / PRIOR_SD**2 == pytest.approx(np.zeros(2), abs=0.1)
    assert theta[0] == pytest.approx(1.5, abs=0.05)
