"""Exact predictive probabilities, against hand computations and against sampling from the process itself."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.decision.stopping.predictive import Standing, concentrations, lead_probabilities, reach_probability


def lead(*votes, remaining, alpha=1.0, unanswered=0, rates=None, new_rate=1.0):
    standing = Standing(votes=votes, rates=rates or (1.0,) * len(votes), new_rate=new_rate, unanswered=unanswered)
    [probability] = lead_probabilities(standing, remaining=remaining, alphas=(alpha,))
    return probability


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
    assert lead(2, 1, remaining=1) == pytest.approx(3 / 4)


def test_a_new_answer_can_draw_level():
    # One vote, alpha 2: a new answer comes with probability 2/3 and is then level.
    assert lead(1, remaining=1, alpha=2.0) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("votes", "unanswered", "remaining", "alpha"),
    [((3, 1), 0, 5, 1.0), ((1, 1, 1, 1), 0, 28, 10.0), ((5, 3, 3), 2, 12, 0.3)],
)
def test_agrees_with_sampling_from_the_process(votes, unanswered, remaining, alpha):
    exact = lead(*votes, unanswered=unanswered, remaining=remaining, alpha=alpha)
    # Four standard errors of 20,000 repeats at p = 1/2.
    assert exact == pytest.approx(by_sampling(votes, unanswered, remaining, alpha), abs=0.0142)


@settings(max_examples=60, deadline=None)
@given(
    first=st.integers(1, 12),
    rivals=st.lists(st.integers(1, 12), max_size=6),
    unanswered=st.integers(0, 8),
    remaining=st.integers(0, 40),
    alpha=st.floats(0.03, 30.0),
)
def test_is_a_probability_and_rises_with_the_lead(first, rivals, unanswered, remaining, alpha):
    now, ahead = (
        lead(votes, *rivals, unanswered=unanswered, remaining=remaining, alpha=alpha) for votes in (first, first + 1)
    )
    assert 0.0 <= now <= 1.0
    assert ahead >= now - 1e-9


def test_long_budgets_lose_no_precision():
    # The lead of one vote over none is lost only to new answers, which at this alpha hardly ever come.
    assert lead(1, remaining=252, alpha=1e-9) == pytest.approx(1.0, abs=1e-6)


def test_ewens_weights():
    # Two alphas, votes (2,): alpha Gamma(alpha) / Gamma(alpha + 2) = 1 / (alpha + 1): 1/2 and 1/4.
    assert concentrations([2], grid=(1.0, 3.0)) == ((1.0, pytest.approx(2 / 3)), (3.0, pytest.approx(1 / 3)))


def test_reach_is_the_beta_binomial_tail():
    # p = 1/2 with strength 2 is Beta(1, 1): after two samples the agreeing ones are 0, 1, 2 with probability 1/3 each,
    # and p becomes 1/4, 1/2 or 3/4. Either of the two answers may get there.
    reach = reach_probability((0.5, 0.5), none=0.0, strength=2.0, remaining=2, threshold=0.75)
    assert reach == pytest.approx(2 / 3)


def test_reach_counts_new_answers():
    # Nothing seen yet, strength alpha = 1: both samples are one new answer with probability 1/2, its share is then 2/3.
    reach = reach_probability((), none=1.0, strength=1.0, remaining=2, threshold=0.6)
    assert reach == pytest.approx(1 / 2)
    # The only sample is a new answer, whose share is then 1/2.
    assert reach_probability((), none=1.0, strength=1.0, remaining=1, threshold=0.5) == pytest.approx(1.0)


def test_a_certain_answer_has_reached():
    reach = reach_probability((1.0,), none=0.0, strength=4.0, remaining=5, threshold=0.99)
    assert reach == pytest.approx(1.0)
    assert reach_probability((0.0,), none=0.0, strength=1.0, remaining=1, threshold=0.5) == 0.0
