"""The rule over the rest of the budget: accept and abstain, with and without probabilities."""

import pytest

from raydebm.decision.stopping import settled as rule
from raydebm.decision.stopping.settled import StopReason, settled, wave_ends


@pytest.fixture
def alpha_one(monkeypatch):
    """The concentration is known to be 1."""
    monkeypatch.setattr(rule, "concentrations", lambda votes: ((1.0, 1.0),))


@pytest.mark.usefixtures("alpha_one")
def test_lead_and_confidence_by_hand():
    # Votes 3 and 1, two samples left, alpha 1: the lead goes only when both are the rival's, 1/5 * 2/6.
    stop = settled({"a": 3, "b": 1}, unanswered=0, remaining=2)

    assert stop.reason is None
    assert stop.words == "go on after 4 samples, 2 left (probability of keeping the lead 0.933, confidence 0.6)"


@pytest.mark.usefixtures("alpha_one")
def test_a_lead_that_is_hardly_lost_is_accepted():
    # Votes 4 and 1: the rival needs all three, 1/6 * 2/7 * 3/8.
    stop = settled({"a": 4, "b": 1}, unanswered=0, remaining=3)

    assert (stop.reason, stop.leader) == (StopReason.ACCEPT, "a")
    assert "keeping the lead 0.982" in stop.words


@pytest.mark.usefixtures("alpha_one")
def test_samples_without_an_answer_lower_the_confidence():
    assert "confidence 0.4" in settled({"a": 2}, unanswered=2, remaining=28).words


@pytest.mark.usefixtures("alpha_one")
def test_a_settled_answer_is_accepted_from_the_wanted_confidence_on():
    reasons = [
        settled({"a": 9}, unanswered=0, remaining=3, probabilities={"a": p}, tau_accept=0.75).reason
        for p in (0.74, 0.75)
    ]
    assert reasons == [None, StopReason.ACCEPT]


@pytest.mark.usefixtures("alpha_one")
def test_hopeless_is_given_up():
    probabilities = {"a": 0.1, "b": 0.1}
    stop = settled({"a": 8, "b": 8}, unanswered=0, remaining=16, probabilities=probabilities, tau_accept=0.8)
    assert stop.reason is StopReason.ABSTAIN


@pytest.mark.usefixtures("alpha_one")
def test_a_threshold_that_only_a_proof_reaches_is_never_given_up():
    probabilities = {"a": 0.1, "b": 0.1}
    stop = settled({"a": 8, "b": 8}, unanswered=0, remaining=16, probabilities=probabilities, tau_accept=1.0)
    assert stop.reason is None


@pytest.mark.usefixtures("alpha_one")
def test_probabilities_like_the_votes_are_the_rule_on_votes():
    votes = {"a": 5, "b": 2, "c": 1}
    alone, with_them = (
        settled(votes, unanswered=0, remaining=12, probabilities=known)
        for known in (None, {answer: count / 8 for answer, count in votes.items()})
    )
    assert alone.words.split("confidence")[0] == with_them.words.split("confidence")[0]


def test_the_probabilities_name_the_leader_and_its_confidence():
    stop = settled({"a": 3, "b": 1}, unanswered=0, remaining=28, probabilities={"a": 0.1, "b": 0.8})
    assert stop.leader == "b"
    assert "confidence 0.8" in stop.words


def test_a_proven_answer_stops_at_once():
    stop = settled({"a": 1, "b": 3}, unanswered=0, remaining=28, probabilities={"a": 1.0, "b": 0.0}, tau_accept=1.0)
    assert (stop.reason, stop.leader) == (StopReason.ACCEPT, "a")


@pytest.mark.parametrize("probabilities", [None, {}])
def test_nothing_answered_is_neither_accepted_nor_an_error(probabilities):
    stop = settled({}, unanswered=4, remaining=28, probabilities=probabilities)
    assert (stop.reason, stop.leader) == (None, None)
    assert stop.words.endswith("confidence 0)")


def test_the_last_wave_repeats_up_to_the_budget():
    assert wave_ends((4, 2), 9) == [4, 6, 8, 9]
