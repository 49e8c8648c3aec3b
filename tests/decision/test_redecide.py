"""Deciding again: the same policy gives the same decision, and what another one would have needed is said."""

import asyncio
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide, with_energies
from raydebm.decision.sampling.one_pass import Parts
from raydebm.errors import GenerationError
from raydebm.records import Decision, Energies

POLICY = Policy(lambda_=1.0, theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2)
SURE, UNSURE, HOPELESS = (-2.0, -2.0), (-3.0, -1.0), (-6.0, 0.0)
"""Sigma 0, 1 and 3; mu -2, -2 and -3."""


@pytest.fixture(scope="session")
def loop_over(task, problem, make_candidate, make_source, make_scorer, checker):
    """Runs the real loop over scripted passes, lists of (id, text, members), or an exception."""

    def run(*passes, policy=POLICY):
        drawn = [
            script
            if isinstance(script, Exception)
            else [
                make_candidate(name, text, pass_index=index, sample_index=place)
                for place, (name, text, _) in enumerate(script)
            ]
            for index, script in enumerate(passes, start=1)
        ]
        members = {name: m for script in passes if isinstance(script, list) for name, _, m in script}
        parts = Parts(task=task, source=make_source(*drawn), checker=checker, scorer=make_scorer(members))
        return asyncio.run(solve(problem, parts=parts, policy=policy))

    return run


def test_another_lambda_selects_another_candidate(loop_over):
    policy = POLICY.replaced(max_passes=1)
    recorded = loop_over([("a", "41!1", (-4.0, -4.0)), ("b", "42", (-3.5, -3.5))], policy=policy)

    low = redecide(recorded, policy, policy.replaced(lambda_=0.0))
    high = redecide(recorded, policy)

    assert (low.selected, high.selected) == ("a", "b")  # -4 < -3.5, and -4 + 1 > -3.5


def test_a_pass_that_nobody_drew_is_said_and_not_guessed(loop_over):
    policy = POLICY.replaced(max_passes=1)
    recorded = loop_over([("a", "42", UNSURE)], policy=policy)

    again = redecide(recorded, policy, POLICY)

    assert (again.decision, again.as_it_stands) == (Decision.REGENERATE, Decision.ACCEPT)


def test_a_recorded_pass_is_left_out_where_the_policy_would_not_have_drawn_it(loop_over):
    recorded = loop_over([("a", "42", UNSURE)], [("b", "43", SURE), ("c", "43", SURE)])

    again = redecide(recorded, POLICY, Policy(theta_sigma=1.2, theta_abstain=1.5))

    assert (recorded.best.candidate.candidate_id, len(recorded.pool)) == ("a", 3)
    assert (again.selected, again.num_passes, again.num_candidates) == ("a", 1, 1)


def test_a_pass_about_another_candidate_is_not_exact(loop_over):
    recorded = loop_over([("a", "41!1", (-4.0, -4.0)), ("b", "42", (-3.5, -1.5))], [("c", "44", SURE)])
    same = redecide(recorded, POLICY, POLICY.replaced(theta_abstain=2.0))
    other = redecide(recorded, POLICY, POLICY.replaced(lambda_=9.0))

    assert recorded.passes[0].selected == "a"
    assert same.exact
    assert not other.exact


def test_a_budget_takes_every_generators_first_sample_first(loop_over):
    recorded = loop_over([(name, "42", SURE) for name in "abcd"])
    pool = [
        replace(scored, candidate=replace(scored.candidate, generator=generator, sample_index=sample))
        for scored, (generator, sample) in zip(recorded.pool, [("g", 0), ("g", 1), ("h", 0), ("h", 1)], strict=True)
    ]
    better = with_energies(
        replace(recorded, pool=pool),
        {
            name: Energies(candidate_id=name, members=(mu, mu))
            for name, mu in zip("abcd", (-1, -9, -2, -9), strict=True)
        },
    )

    smaller = POLICY.replaced(budget=2)
    assert redecide(better, POLICY, smaller).selected == "c"  # of a and c, the first samples of g and h
    assert redecide(better, POLICY, is_rescored=True).selected == "b"


def test_no_pass_is_drawn_when_the_budget_is_spent(loop_over):
    recorded = loop_over([("a", "42", UNSURE)], [("b", "43", SURE)])

    again = redecide(recorded, POLICY, POLICY.replaced(budget=1))

    assert (again.decision, again.num_candidates, again.num_passes) == (Decision.ACCEPT, 1, 1)


def test_a_budget_may_end_within_a_later_pass(loop_over):
    recorded = loop_over([("a", "42", HOPELESS)], [("b", "43", HOPELESS), ("c", "43", SURE)])

    assert redecide(recorded, POLICY, POLICY.replaced(budget=2)).num_candidates == 2


def test_a_larger_later_pass_than_was_sampled_is_not_known(loop_over):
    recorded = loop_over([("a", "42!5", SURE)], [("b", "43!1", SURE), ("c", "43", SURE)])

    again = redecide(recorded, POLICY, POLICY.replaced(num_regenerate=3))

    assert (again.decision, again.as_it_stands) == (Decision.REGENERATE, Decision.ACCEPT)
    assert again.reason == "more of pass 2 would be sampled than the 2 of 3 that are recorded"


def test_what_a_larger_budget_would_have_sampled_is_not_known(loop_over):
    """A recorded budget of two was spent on the first pass, which may have been planned larger."""
    policy = POLICY.replaced(budget=2)
    recorded = loop_over([("a", "42", SURE), ("b", "42", SURE)], policy=policy)

    assert redecide(recorded, policy, POLICY).decision is Decision.REGENERATE
    assert redecide(recorded, policy, POLICY.replaced(budget=3)).decision is Decision.REGENERATE
    assert redecide(recorded, policy).decision is Decision.ACCEPT


def test_a_later_pass_of_another_share_of_feedback_is_not_exact(loop_over):
    recorded = loop_over([("a", "42!5", SURE)], [("b", "43!1", SURE), ("c", "43", SURE)])

    assert not redecide(recorded, POLICY, POLICY.replaced(fresh_share=0.5)).exact


def test_feedback_about_a_candidate_that_was_left_out_is_not_exact(loop_over):
    """Nothing parses, so pass 3 quotes the most promising text of both passes; that may be one that was left out."""
    policy = POLICY.replaced(max_passes=3)
    recorded = loop_over(
        [("a", "?", SURE)], [("b", "?", SURE), ("c", "?", HOPELESS)], [("d", "42", SURE)], policy=policy
    )

    assert redecide(recorded, policy).exact
    assert not redecide(recorded, policy, policy.replaced(num_regenerate=1)).exact


def test_new_energies_change_the_selection(loop_over):
    recorded = loop_over([("a", "42", SURE), ("b", "43", (-1.0, -1.0))])

    rescored = with_energies(recorded, {"b": Energies(candidate_id="b", members=(0.0,))})

    assert redecide(rescored, POLICY, is_rescored=True).selected == "b"  # a has no energy now


def test_a_pass_that_could_not_be_drawn_stays_lost(loop_over, down):
    recorded = loop_over([("a", "42", UNSURE)], down)

    again = redecide(recorded, POLICY)

    assert (recorded.decision, again.decision, again.num_passes) == (Decision.ACCEPT, Decision.ACCEPT, 2)


# ---- any record that the loop makes ------------------------------------------------------------------------------

TEXTS = st.sampled_from(["41", "42", "42!1", "43!0.5", "no number", "crash", None])
MEMBERS = st.lists(st.one_of(st.floats(-5, 5), st.sampled_from([0.0, 1.0, math.nan])), min_size=2, max_size=2).map(
    tuple
)
PASS = st.one_of(st.lists(st.tuples(TEXTS, MEMBERS), max_size=4), st.just(GenerationError("endpoint is down")))
FIRST = st.lists(st.tuples(TEXTS, MEMBERS), max_size=4)
LATER = st.lists(PASS, min_size=3, max_size=3)
POLICIES = st.builds(
    Policy,
    lambda_=st.sampled_from([0.0, 0.5, 2.0]),
    theta_sigma=st.sampled_from([0.0, 0.3, 0.8]),
    theta_abstain=st.sampled_from([1.0, 1.5, 4.0]),
    signal=st.sampled_from(["selected", "pool_mean", "equation"]),
    max_passes=st.integers(1, 4),
    num_regenerate=st.integers(1, 3),
)


def named(*passes):
    """The passes with ids of pass and place."""
    return [
        script
        if isinstance(script, Exception)
        else [(f"{index}-{place}", *drawn) for place, drawn in enumerate(script)]
        for index, script in enumerate(passes, start=1)
    ]


@settings(max_examples=200, deadline=None)
@given(first=FIRST, later=LATER, data=st.data())
def test_the_identical_policy_gives_the_identical_decision(loop_over, first, later, data):
    policy = data.draw(POLICIES)
    outcome = loop_over(*named(first, *later), policy=policy)

    again = redecide(outcome, policy)

    assert (again.decision, again.best) == (outcome.decision, outcome.best)
    assert again.exact
    assert again.num_passes == len(outcome.passes)
    assert (again.signal, again.penalty) == (outcome.passes[-1].sigma, outcome.passes[-1].penalty)
    assert outcome.reason.startswith(again.reason)


@settings(max_examples=200, deadline=None)
@given(first=FIRST, later=LATER, data=st.data())
def test_an_exact_redecision_is_what_the_loop_would_have_decided(loop_over, first, later, data):
    """The script draws the same later passes whatever was selected: an exact result must agree with a live run."""
    recorded_policy, policy = data.draw(POLICIES), data.draw(POLICIES)
    policy = policy.replaced(num_regenerate=recorded_policy.num_regenerate)
    outcome = loop_over(*named(first, *later), policy=recorded_policy)

    again = redecide(outcome, recorded_policy, policy)

    if again.exact and again.decision is not Decision.REGENERATE:
        live = loop_over(*named(first, *later), policy=policy)
        assert (again.decision, again.best) == (live.decision, live.best)
