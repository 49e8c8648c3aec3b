"""States, decisions and plans of waves."""

import json
import math

import pytest

from raydebm.decision.stopping import AnswerPosterior, SamplingPlan, SamplingState, StopDecision, StopReason
from raydebm.decision.stopping.published_rules import BetaRule, FixedBudgetRule
from raydebm.errors import ConfigError


def plan(waves=(4, 4, 8, 16), max_samples=32, rule=None):
    return SamplingPlan(rule=rule or FixedBudgetRule(), waves=waves, max_samples=max_samples)


def test_a_wave_adds_votes_samples_and_tokens():
    state = SamplingState(max_samples=8).after(["a", "b", "a", None], tokens=40)
    assert (dict(state.votes), state.num_samples, state.num_unanswered) == ({"a": 2.0, "b": 1.0}, 4, 1)
    assert (state.remaining, state.tokens_per_sample) == (4, 10.0)


def test_weights_count_in_place_of_samples():
    state = SamplingState(max_samples=8).after(["a", "b", "a"], weights=[0.5, 1.0, 0.25])
    assert dict(state.votes) == {"a": 0.75, "b": 1.0}


def test_an_answer_of_weight_zero_has_no_vote():
    assert not SamplingState(max_samples=8).after(["a"], weights=[0.0]).votes


def test_the_order_within_a_wave_does_not_matter():
    start = SamplingState(max_samples=8)
    first, second = start.after(["b", "a", None, "c"]), start.after([None, "c", "b", "a"])
    assert first.ranked() == second.ranked()


def test_ranked_by_votes_then_by_answer():
    state = SamplingState(max_samples=8).after(["c", "b", "c", "a"])
    assert [answer for answer, _ in state.ranked()] == ["c", "a", "b"]


def test_ranked_by_the_posterior_where_there_is_one():
    state = SamplingState(max_samples=8).after(["a", "a", "b"])
    ranked = state.ranked(AnswerPosterior(probabilities={"a": 0.2, "b": 0.7}, none=0.1))
    assert [answer for answer, _ in ranked] == ["b", "a"]


def test_a_posterior_must_know_every_answer():
    state = SamplingState(max_samples=8).after(["a", "b"])
    with pytest.raises(ConfigError, match=r"no probability for the answer\(s\) \['b'\]"):
        state.ranked(AnswerPosterior(probabilities={"a": 1.0}, none=0.0))


@pytest.mark.parametrize(
    ("probabilities", "none"), [({"a": 0.5}, 0.4), ({"a": 1.2}, -0.2), ({"a": math.nan}, 0.5), ({}, 0.0)]
)
def test_refuses_what_is_no_posterior(probabilities, none):
    with pytest.raises(ConfigError, match="probabilities of answers"):
        AnswerPosterior(probabilities=probabilities, none=none)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_samples": 0},
        {"max_samples": 4, "num_unanswered": 1},
        {"max_samples": 4, "num_samples": 2, "votes": {"a": 3.0}},
        {"max_samples": 4, "num_samples": 2, "votes": {"a": math.nan}},
        {"max_samples": 4, "num_samples": 2, "votes": {"a": 0.0}},
    ],
)
def test_refuses_an_impossible_state(fields):
    with pytest.raises(ConfigError):
        SamplingState(**fields)


@pytest.mark.parametrize(
    ("weights", "tokens"), [([1.5], 0), ([-0.1], 0), ([math.nan], 0), ([1.0, 1.0], 0), ([1.0], -1)]
)
def test_refuses_a_bad_wave(weights, tokens):
    with pytest.raises(ConfigError):
        SamplingState(max_samples=4).after(["a"], weights=weights, tokens=tokens)


def test_waves_end_at_the_budget():
    assert plan(max_samples=18).ends() == (4, 8, 16, 18)


def test_the_last_wave_repeats():
    assert plan(waves=(2, 3), max_samples=9).ends() == (2, 5, 8, 9)


def test_the_next_wave_after_a_part_of_one_is_the_rest_of_it():
    state = plan().start().after(["a"] * 5)
    assert plan().next_wave(state) == 3


def test_no_wave_follows_the_budget():
    state = plan(max_samples=4).start().after(["a"] * 4)
    assert plan(max_samples=4).next_wave(state) == 0


def test_never_stops_before_the_first_wave():
    sampling_plan = plan(rule=BetaRule(0.6))
    assert not sampling_plan.decide(sampling_plan.start().after(["a", "a", "a"])).stop
    assert sampling_plan.decide(sampling_plan.start().after(["a", "a", "a", "a"])).stop


def test_stops_when_the_budget_is_spent():
    decision = plan(max_samples=2).decide(SamplingState(max_samples=2).after(["a", "b"]))
    assert (decision.reason, decision.leader) == (StopReason.BUDGET, "a")


def test_stops_when_every_sample_failed():
    decision = plan(max_samples=2).decide(SamplingState(max_samples=2).after([None, None]))
    assert (decision.reason, decision.leader) == (StopReason.BUDGET, None)


@pytest.mark.parametrize(("waves", "max_samples"), [((), 4), ((0,), 4), ((4,), 0)])
def test_refuses_a_plan_without_samples(waves, max_samples):
    with pytest.raises(ConfigError):
        plan(waves=waves, max_samples=max_samples)


def test_a_decision_is_json_with_words():
    decision = StopDecision(
        reason=StopReason.ACCEPT, leader="18", num_samples=8, remaining=24, lead_probability=0.9876, confidence=0.9
    )
    assert json.loads(json.dumps(decision.to_json())) == {
        "reason": "accept",
        "stop": True,
        "leader": "18",
        "num_samples": 8,
        "remaining": 24,
        "lead_probability": 0.9876,
        "confidence": 0.9,
        "words": "the leading answer is settled after 8 samples, 24 left "
        "(probability of keeping the lead 0.988, confidence 0.9)",
    }


def test_going_on_is_json_too():
    body = StopDecision(reason=None, leader=None, num_samples=4, remaining=28).to_json()
    assert body == {
        "reason": None,
        "stop": False,
        "num_samples": 4,
        "remaining": 28,
        "words": "go on after 4 samples, 28 left",
    }
