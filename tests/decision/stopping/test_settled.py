"""The rule over the rest of the budget: accept, abstain, cost, with and without a posterior."""

import math

import pytest

from raydebm.decision.stopping import AnswerPosterior, SamplingState, SettledRule, StopReason
from raydebm.decision.stopping.predictive import ConcentrationPrior
from raydebm.errors import ConfigError

ALPHA_ONE = ConcentrationPrior((1.0,), (1.0,))


def state(*, max_samples=32, tokens=0, unanswered=0, **votes):
    return SamplingState(
        max_samples=max_samples,
        votes={answer: float(count) for answer, count in votes.items()},
        num_samples=sum(votes.values()) + unanswered,
        num_unanswered=unanswered,
        tokens=tokens,
    )


def posterior(none=0.0, **probabilities):
    return AnswerPosterior(probabilities=probabilities, none=none)


def test_lead_and_confidence_by_hand():
    # Votes 3 and 1, two samples left, alpha 1: the lead goes only when both are the rival's, 1/5 * 2/6.
    decision = SettledRule(epsilon=0.05, prior=ALPHA_ONE).decide(state(a=3, b=1, max_samples=6))
    assert decision.lead_probability == pytest.approx(14 / 15)
    assert decision.confidence == pytest.approx(3 / 5)
    assert decision.reason is None


def test_accepts_at_epsilon():
    assert SettledRule(epsilon=0.07, prior=ALPHA_ONE).decide(state(a=3, b=1, max_samples=6)).reason is StopReason.ACCEPT


def test_a_settled_answer_without_confidence_is_not_accepted():
    rule = SettledRule(epsilon=0.07, tau_accept=0.7, eta=0.0, prior=ALPHA_ONE)
    assert rule.decide(state(a=3, b=1, max_samples=6)).reason is None


def test_concentrations_are_averaged_over_their_posterior():
    # Votes (2,): the weights become 2/3 and 1/3 (1 / (alpha + 1)). One sample left cannot draw level.
    rule = SettledRule(prior=ConcentrationPrior((1.0, 3.0), (0.5, 0.5)))
    decision = rule.decide(state(a=2, max_samples=3))
    assert decision.lead_probability == pytest.approx(1.0)
    assert decision.confidence == pytest.approx(2 / 3 * 2 / 3 + 1 / 3 * 2 / 5)


def test_samples_without_an_answer_lower_the_confidence():
    decision = SettledRule(prior=ALPHA_ONE).decide(state(a=2, unanswered=2))
    assert decision.confidence == pytest.approx(2 / 5)


def test_hopeless_is_given_up():
    # Every answer differs: none will have nine tenths of 32.
    decision = SettledRule(tau_accept=0.9, prior=ALPHA_ONE).decide(state(a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1))
    assert decision.reason is StopReason.ABSTAIN
    assert decision.reach_probability == pytest.approx(0.0, abs=1e-6)


def test_eta_zero_never_gives_up():
    rule = SettledRule(tau_accept=0.9, eta=0.0, prior=ALPHA_ONE)
    assert rule.decide(state(a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1)).reason is None


def test_reach_by_hand():
    # Alpha 1, votes 1 and 1, one sample left: a share of 2/4 is reached when the sample repeats either one: 2/3.
    decision = SettledRule(tau_accept=0.5, eta=0.5, prior=ALPHA_ONE).decide(state(a=1, b=1, max_samples=3))
    assert decision.reach_probability == pytest.approx(2 / 3)


def test_stops_where_samples_cost_more_than_they_bring():
    # One sample left, votes 1 and 1, alpha 1: it makes 2/4 of 1/3 with probability 2/3, and costs 10 tokens.
    tied = state(a=1, b=1, max_samples=3, tokens=20)
    gain = 2 / 3 * (2 / 4) + 1 / 3 * (1 / 4) - 1 / 3
    dear = SettledRule(price=1.01 * gain / 10, prior=ALPHA_ONE).decide(tied)
    assert dear.expected_gain == pytest.approx(gain)
    assert dear.reason is StopReason.COST
    assert SettledRule(price=0.99 * gain / 10, prior=ALPHA_ONE).decide(tied).reason is None


def test_a_more_valuable_answer_is_worth_more_samples():
    tied = state(a=1, b=1, max_samples=3, tokens=20)
    assert SettledRule(price=0.1, prior=ALPHA_ONE).decide(tied).reason is StopReason.COST
    assert SettledRule(price=0.1, value=100.0, prior=ALPHA_ONE).decide(tied).reason is None


def test_free_tokens_are_never_too_dear():
    decision = SettledRule(prior=ALPHA_ONE).decide(state(a=1, b=1, tokens=10**9))
    assert (decision.reason, decision.expected_gain) == (None, None)


def test_a_posterior_like_the_votes_is_the_rule_on_votes():
    votes = state(a=5, b=2, c=1, max_samples=20)
    rule = SettledRule(prior=ALPHA_ONE)
    alone, with_it = rule.decide(votes), rule.decide(votes, posterior(a=5 / 8, b=2 / 8, c=1 / 8))
    assert with_it.lead_probability == pytest.approx(alone.lead_probability)


def test_the_posterior_names_the_leader_and_its_confidence():
    decision = SettledRule(prior=ALPHA_ONE).decide(state(a=3, b=1), posterior(a=0.1, b=0.8, none=0.1))
    assert (decision.leader, decision.confidence) == ("b", 0.8)


def test_a_proven_answer_stops_at_once():
    decision = SettledRule(epsilon=0.0, tau_accept=1.0).decide(state(a=1, b=3), posterior(a=1.0, b=0.0))
    assert (decision.reason, decision.leader, decision.lead_probability) == (StopReason.ACCEPT, "a", 1.0)


def test_none_of_them_ends_in_abstention():
    rule = SettledRule(tau_accept=0.8, prior=ALPHA_ONE)
    decision = rule.decide(state(a=8, b=8), posterior(a=0.1, b=0.1, none=0.8))
    assert decision.reason is StopReason.ABSTAIN


def test_weighted_votes_are_no_error():
    weighted = SamplingState(max_samples=16).after(["a", "a", "b", None], weights=[0.9, 0.8, 0.2, 1.0])
    decision = SettledRule(prior=ALPHA_ONE).decide(weighted)
    assert decision.leader == "a"
    assert 0.0 < decision.lead_probability < 1.0


def test_nothing_answered_is_neither_accepted_nor_an_error():
    decision = SettledRule(prior=ALPHA_ONE).decide(state(unanswered=4))
    assert (decision.reason, decision.leader, decision.confidence) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"epsilon": 1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"tau_accept": 1.5}, "tau_accept"),
        ({"eta": -0.1}, "eta"),
        ({"value": math.inf}, "value"),
        ({"price": -1.0}, "price"),
    ],
)
def test_refuses_a_setting_out_of_range(fields, name):
    with pytest.raises(ConfigError, match=rf"stopping\.{name}"):
        SettledRule(**fields)
