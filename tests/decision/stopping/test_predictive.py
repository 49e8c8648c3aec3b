"""Exact predictive probabilities, against hand computations and against sampling from the process itself."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.decision.stopping.predictive import (
    ConcentrationPrior,
    Standing,
    VoteBelief,
    expected_gain,
    fit_concentration_prior,
    lead_probability,
    reach_probability,
)
from raydebm.errors import ConfigError


def standing(*votes, rates=None, new_rate=1.0, unanswered=0.0):
    return Standing(
        votes=tuple(float(count) for count in votes),
        rates=rates or (1.0,) * len(votes),
        new_rate=new_rate,
        unanswered=unanswered,
    )


def by_sampling(votes, unanswered, remaining, alpha, *, repeats=20_000):
    generator, wins = random.Random(0), 0
    for _ in range(repeats):
        counts, failed = list(votes), unanswered
        for _ in range(remaining):
            place = generator.random() * (sum(counts) + failed + alpha) - failed
            if place < 0:
                failed += 1
                continue
            for index, count in enumerate(counts):
                if place < count:
                    counts[index] += 1
                    break
                place -= count
            else:
                counts.append(1)
        wins += all(counts[0] > count for count in counts[1:])
    return wins / repeats


def test_one_more_sample_overturns_a_lead_of_one_only_to_a_tie():
    # Votes 2 and 1, alpha 1: the rival draws level with probability 1 / (3 + 1), and a tie counts against the leader.
    assert lead_probability(standing(2, 1), remaining=1, alpha=1.0) == pytest.approx(3 / 4)


def test_two_more_samples():
    # Votes 3 and 1, alpha 1. The lead is lost to a tie when both samples go to the rival: 1/5 * 2/6.
    assert lead_probability(standing(3, 1), remaining=2, alpha=1.0) == pytest.approx(1 - 1 / 15)


def test_a_new_answer_can_draw_level():
    # One vote, alpha 2: a new answer comes with probability 2/3 and is then level.
    assert lead_probability(standing(1), remaining=1, alpha=2.0) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("votes", "unanswered", "remaining", "alpha"),
    [((3, 1), 0, 5, 1.0), ((2, 2), 1, 6, 3.0), ((1, 1, 1, 1), 0, 28, 10.0), ((5, 3, 3), 2, 12, 0.3)],
)
def test_agrees_with_sampling_from_the_process(votes, unanswered, remaining, alpha):
    exact = lead_probability(standing(*votes, unanswered=float(unanswered)), remaining=remaining, alpha=alpha)
    # Four standard errors of 20,000 repeats at p = 1/2.
    assert exact == pytest.approx(by_sampling(votes, unanswered, remaining, alpha), abs=0.0142)


def test_nothing_left_is_certain():
    assert lead_probability(standing(2, 1), remaining=0, alpha=1.0) == pytest.approx(1.0)


def test_a_tie_with_nothing_left_is_no_lead():
    assert lead_probability(standing(2, 2), remaining=0, alpha=1.0) == pytest.approx(0.0)


def test_nobody_leads_without_votes():
    assert lead_probability(standing(unanswered=4.0), remaining=4, alpha=1.0) == 0.0


def test_a_rival_whose_votes_count_nothing_never_overtakes():
    assert lead_probability(standing(1, 30, rates=(1.0, 0.0), new_rate=0.0), remaining=20, alpha=1.0) == pytest.approx(
        1.0
    )


@settings(max_examples=60, deadline=None)
@given(
    lead=st.integers(1, 12),
    rivals=st.lists(st.integers(1, 12), max_size=6),
    unanswered=st.integers(0, 8),
    remaining=st.integers(0, 40),
    alpha=st.floats(0.03, 30.0),
)
def test_is_a_probability_and_rises_with_the_lead(lead, rivals, unanswered, remaining, alpha):
    now, ahead = (
        lead_probability(standing(votes, *rivals, unanswered=float(unanswered)), remaining=remaining, alpha=alpha)
        for votes in (lead, lead + 1)
    )
    assert 0.0 <= now <= 1.0
    assert ahead >= now - 1e-9


@pytest.mark.parametrize("remaining", [60, 252])
def test_long_budgets_lose_no_precision(remaining):
    # The lead of one vote over none is lost only to new answers, which at this alpha hardly ever come.
    probability = lead_probability(standing(1), remaining=remaining, alpha=1e-9)
    assert probability == pytest.approx(1.0, abs=1e-6)


def test_ewens_weights():
    # Two alphas, votes (2,): alpha Gamma(alpha) / Gamma(alpha + 2) = 1 / (alpha + 1): 1/2 and 1/4.
    updated = ConcentrationPrior((1.0, 3.0), (0.5, 0.5)).updated([2.0])
    assert updated.weights == pytest.approx((2 / 3, 1 / 3))


def test_fit_finds_the_alpha_of_problems_that_always_say_the_same():
    prior = fit_concentration_prior([[20.0]] * 30, values=(0.1, 10.0))
    assert prior.weights[0] == pytest.approx(1.0, abs=1e-6)


def test_fit_recovers_the_shares_of_a_mixture():
    prior = fit_concentration_prior([[60.0]] * 30 + [[1.0] * 60] * 10, values=(0.01, 100.0))
    assert prior.weights == pytest.approx((0.75, 0.25), abs=1e-3)


def test_fit_needs_an_answer():
    with pytest.raises(ConfigError, match="at least one recorded problem with an answer"):
        fit_concentration_prior([[], []])


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ((), (), "above 0"),
        ((0.0,), (1.0,), "above 0"),
        ((math.nan,), (1.0,), "above 0"),
        ((1.0, 2.0), (1.0,), "one weight"),
        ((1.0,), (math.nan,), "one weight"),
        ((1.0, 2.0), (0.5, 0.6), "sum to 1, got 1.1"),
    ],
)
def test_refuses_what_is_no_prior(values, weights, message):
    with pytest.raises(ConfigError, match=message):
        ConcentrationPrior(values, weights)


def belief(*probabilities, none=0.0, strength=4.0):
    return VoteBelief(probabilities=probabilities, none=none, strength=strength)


def test_reach_is_the_beta_binomial_tail():
    # p = 1/2 with strength 2 is Beta(1, 1): after two samples the agreeing ones are 0, 1, 2 with probability 1/3 each,
    # and p becomes 1/4, 1/2 or 3/4. Either of the two answers may get there.
    probability = reach_probability(belief(0.5, 0.5, strength=2.0), remaining=2, threshold=0.75)
    assert probability == pytest.approx(2 / 3)


def test_reach_counts_new_answers():
    # Nothing seen yet, strength alpha = 1: both samples are one new answer with probability 1/2, its share is then 2/3.
    probability = reach_probability(belief(none=1.0, strength=1.0), remaining=2, threshold=0.6)
    assert probability == pytest.approx(1 / 2)


def test_a_certain_answer_has_reached():
    assert reach_probability(belief(1.0), remaining=5, threshold=0.99) == pytest.approx(1.0)


def test_gain_of_one_sample():
    # Shares 1/2 and 1/2 with strength 2: one sample makes it 2/3 against 1/3, a gain of 2/3 - 1/2 on average.
    assert expected_gain(belief(0.5, 0.5, strength=2.0), num_samples=1) == pytest.approx(1 / 6)


def test_no_gain_where_the_lead_cannot_be_overturned():
    assert expected_gain(belief(0.75, 0.25, strength=8.0), num_samples=2) == pytest.approx(0.0, abs=1e-12)


def test_gain_grows_with_the_samples():
    gains = [expected_gain(belief(0.5, 0.25, none=0.25), num_samples=size) for size in (1, 4, 16)]
    assert gains == sorted(gains)


def test_answers_that_are_surely_wrong_gain_nothing():
    gain = expected_gain(belief(0.0, 0.0, none=1.0), num_samples=4)
    # Only new answers count: the largest gain there can be.
    assert 0.0 < gain <= 1.0
    assert math.isfinite(gain)


def test_certain_rivals_of_probability_zero_change_nothing():
    assert expected_gain(belief(1.0, 0.0), num_samples=4) == pytest.approx(0.0, abs=1e-6)
