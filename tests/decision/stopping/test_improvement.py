"""Expected improvement of rewards, by hand."""

import math

import pytest
from scipy.integrate import quad
from scipy.stats import t as student

from raydebm.decision.stopping import StopReason
from raydebm.decision.stopping.improvement import (
    ImprovementRule,
    Predictive,
    RewardPrior,
    expected_improvement,
    predictive_of,
)
from raydebm.errors import ConfigError


def test_the_default_predictive_is_the_classical_one():
    # Rewards 1, 2, 3: mean 2, s = 1, scale sqrt(1 + 1/3), two degrees of freedom.
    predictive = predictive_of([1.0, 2.0, 3.0], RewardPrior())
    assert (predictive.degrees, predictive.location) == (2.0, 2.0)
    assert predictive.scale == pytest.approx(math.sqrt(4 / 3))


def test_two_rewards_are_too_few_without_a_prior():
    assert predictive_of([1.0, 2.0], RewardPrior()) is None


def test_a_prior_is_pulled_by_the_rewards():
    # mean (4 * 0 + 2 * 3) / 6; beta = 1 + 0 + 4 * 2 * 9 / 12 = 7; alpha = 3; variance 7 * 7 / (3 * 6).
    predictive = predictive_of([3.0, 3.0], RewardPrior(mean=0.0, strength=4.0, shape=2.0, scale=1.0))
    assert (predictive.degrees, predictive.location) == (6.0, 1.0)
    assert predictive.scale == pytest.approx(math.sqrt(49 / 18))


def test_noise_of_the_scorer_is_no_spread_of_the_rewards():
    assert predictive_of([1.0, 2.0, 3.0], RewardPrior(), noise=1.0).scale == pytest.approx(math.sqrt(1 / 3))
    assert predictive_of([1.0, 2.0, 3.0], RewardPrior(), noise=2.0).scale == 0.0


@pytest.mark.parametrize("best", [-1.0, 0.5, 4.0])
def test_expected_improvement_is_the_integral(best):
    density = student(df=5, loc=0.5, scale=1.5).pdf
    by_quadrature, _ = quad(lambda r: (r - best) * density(r), best, math.inf)
    improvement = expected_improvement(Predictive(degrees=5, location=0.5, scale=1.5), best)
    assert improvement == pytest.approx(by_quadrature, rel=1e-6)


def test_without_spread_nothing_improves():
    assert expected_improvement(Predictive(degrees=3, location=1.0, scale=0.0), 1.0) == 0.0


def test_stops_when_the_improvement_is_below_the_price():
    rewards = [1.0, 2.0, 3.0, 2.0]
    gain = expected_improvement(predictive_of(rewards, RewardPrior()), 3.0)
    dear = ImprovementRule(price=1.01 * gain).decide(rewards, max_samples=16)
    assert (dear.reason, dear.leader) == (StopReason.COST, "2")
    assert dear.expected_gain == pytest.approx(gain)
    assert not ImprovementRule(price=0.99 * gain).decide(rewards, max_samples=16).stop


def test_the_price_is_in_units_of_the_value():
    rewards = [1.0, 2.0, 3.0, 2.0]
    assert ImprovementRule(price=1.0).decide(rewards, max_samples=16).stop
    assert not ImprovementRule(price=1.0, value=10.0).decide(rewards, max_samples=16).stop


def test_equal_rewards_stop():
    assert ImprovementRule(price=0.01).decide([2.0] * 4, max_samples=16).reason is StopReason.COST


def test_never_stops_before_the_minimum():
    assert not ImprovementRule(price=1e9, min_samples=8).decide([1.0, 2.0, 3.0, 2.0], max_samples=16).stop


def test_stops_at_the_budget():
    assert ImprovementRule(price=0.0).decide([1.0, 2.0], max_samples=2).reason is StopReason.BUDGET


def test_missing_rewards_count_as_samples_only():
    decision = ImprovementRule(price=1e9).decide([None, math.nan, 5.0], max_samples=16)
    assert (decision.reason, decision.leader, decision.num_samples) == (None, "2", 3)


def test_no_reward_at_all():
    decision = ImprovementRule(price=1.0).decide([None] * 4, max_samples=16)
    assert (decision.stop, decision.leader) == (False, None)


@pytest.mark.parametrize("fields", [{"price": -1.0}, {"price": math.nan}, {"price": 1.0, "min_samples": 0}])
def test_refuses_bad_settings(fields):
    with pytest.raises(ConfigError):
        ImprovementRule(**fields)


@pytest.mark.parametrize("fields", [{"strength": -1.0}, {"scale": -1.0}, {"shape": -1.0}, {"mean": math.nan}])
def test_refuses_bad_priors(fields):
    with pytest.raises(ConfigError):
        RewardPrior(**fields)
