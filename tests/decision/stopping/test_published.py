"""The published rules against their formulas, by hand, and what all rules have in common."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.decision.stopping import SamplingState, SettledRule, StopReason
from raydebm.decision.stopping.published_rules import (
    BetaRule,
    CannotBeOvertakenRule,
    DirichletRule,
    FixedBudgetRule,
    UnanimousWaveRule,
    beta_probability,
    dirichlet_probability,
)
from raydebm.errors import ConfigError

RULES = (
    BetaRule(),
    DirichletRule(),
    UnanimousWaveRule(),
    CannotBeOvertakenRule(),
    FixedBudgetRule(),
    SettledRule(),
    SettledRule(tau_accept=0.7, price=0.001),
)


def after(*waves, max_samples=32):
    state = SamplingState(max_samples=max_samples)
    for wave in waves:
        state = state.after(list(wave), tokens=len(wave))
    return state


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        # 1 - I_0.5(v1 + 1, v2 + 1) is a binomial tail: P(Bin(v1 + v2 + 1, 1/2) > v2).
        ((4,), 1 - 1 / 32),
        ((3, 1), 26 / 32),
        ((2, 2), 1 / 2),
        ((5, 1, 1), 120 / 128),
        ((), 1 / 2),
    ],
)
def test_beta_probability(votes, expected):
    assert beta_probability(votes) == pytest.approx(expected)


def test_beta_stops_at_its_threshold():
    assert BetaRule(0.96875).decide(after("aaaa")).reason is StopReason.ACCEPT
    assert BetaRule(0.97).decide(after("aaaa")).reason is None


@pytest.mark.parametrize(("first", "second"), [(4, 0), (3, 1), (7, 5)])
def test_dirichlet_of_two_answers_is_beta(first, second):
    assert dirichlet_probability([first, second]) == pytest.approx(beta_probability([first, second]), abs=1e-5)


def test_dirichlet_of_equal_votes_is_chance():
    assert dirichlet_probability([2, 2, 2]) == pytest.approx(1 / 3, abs=1e-6)


def test_dirichlet_of_three_answers():
    # Dirichlet(2, 1, 1), so G1 ~ Gamma(2) and two exponentials: E[(1 - exp(-G1))^2] = 1 - 2/4 + 1/9.
    assert dirichlet_probability([1, 0, 0]) == pytest.approx(11 / 18, abs=1e-6)


def test_dirichlet_without_votes():
    assert DirichletRule(0.1).decide(after([None, None])).reason is None


def test_esc_stops_at_a_window_of_equal_answers():
    assert UnanimousWaveRule().decide(after("abab", "cccc")).reason is StopReason.ACCEPT


def test_esc_goes_on_where_one_differs():
    assert UnanimousWaveRule().decide(after("aaaa", "aaab")).reason is None


def test_esc_goes_on_where_a_sample_has_no_answer():
    assert UnanimousWaveRule().decide(after(["a", "a", None])).reason is None


def test_esc_goes_on_where_no_sample_has_an_answer():
    assert UnanimousWaveRule().decide(after([None, None])).reason is None


def test_cannot_be_overtaken_needs_more_than_what_is_left():
    assert CannotBeOvertakenRule().decide(after("aaaa", max_samples=8)).reason is None
    assert CannotBeOvertakenRule().decide(after("aaaaa", max_samples=9)).reason is StopReason.ACCEPT


@pytest.mark.parametrize("rule", [BetaRule, DirichletRule])
@pytest.mark.parametrize("threshold", [0.0, 1.1, math.nan])
def test_refuses_a_threshold_out_of_range(rule, threshold):
    with pytest.raises(ConfigError, match="threshold"):
        rule(threshold)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_no_rule_accepts_nothing(rule):
    assert rule.decide(after([None, None, None, None])).reason is not StopReason.ACCEPT


answers = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=4, max_size=12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(max_examples=25, deadline=None)
@given(wave=answers, shuffled=st.randoms(use_true_random=False))
def test_the_order_within_a_wave_does_not_matter(rule, wave, shuffled):
    other = list(wave)
    shuffled.shuffle(other)
    assert rule.decide(after(wave)) == rule.decide(after(other))


@pytest.mark.parametrize("rule", [BetaRule(), DirichletRule(), CannotBeOvertakenRule(), SettledRule()], ids=repr)
@settings(max_examples=40, deadline=None)
@given(lead=st.integers(1, 10), others=st.lists(st.integers(1, 10), max_size=3))
def test_a_larger_lead_never_turns_stopping_into_going_on(rule, lead, others):
    votes = {f"rival{index}": float(count) for index, count in enumerate(others)}
    if lead < max(others, default=0):
        return
    now, ahead = (
        SamplingState(max_samples=64, votes={"a": float(count), **votes}, num_samples=count + sum(others))
        for count in (lead, lead + 1)
    )
    # The same number is left, so that only the lead differs.
    ahead = SamplingState(max_samples=65, votes=ahead.votes, num_samples=ahead.num_samples)
    assert rule.decide(ahead).stop or not rule.decide(now).stop


@settings(max_examples=40, deadline=None)
@given(lead=st.integers(1, 20), rival=st.integers(0, 10), remaining=st.integers(0, 12))
def test_settled_stops_wherever_counting_does(lead, rival, remaining):
    votes = {"a": float(lead)} | ({"b": float(rival)} if rival else {})
    state = SamplingState(max_samples=lead + rival + remaining, votes=votes, num_samples=lead + rival)
    if CannotBeOvertakenRule().decide(state).stop:
        assert SettledRule(epsilon=0.001).decide(state).reason is StopReason.ACCEPT
