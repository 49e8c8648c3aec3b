import asyncio
import math

import pytest

from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.one_pass import Parts
from raydebm.errors import ConfigError, GenerationError, LimitReachedError, ScoringError
from raydebm.records import Decision

POLICY = Policy(lambda_=1.0, theta_sigma=0.8, theta_abstain=1.5)
SURE, UNSURE, TORN = (-0.1, 0.1), (-1.0, 1.0), (-2.0, 2.0)  # sigma 0.1, 1, 2; mu 0


def shifted(members, mu):
    return tuple(energy + mu for energy in members)


@pytest.fixture
def run(task, problem, checker, make_scorer):
    def run(source, members, policy=POLICY):
        return asyncio.run(
            solve(
                problem,
                parts=Parts(task=task, source=source, checker=checker, scorer=make_scorer(members)),
                policy=policy,
            )
        )

    return run


def test_a_sure_answer_without_violations_is_accepted_in_one_pass(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "42"), make_candidate("b", "41")])

    outcome = run(source, {"a": SURE, "b": shifted(SURE, 1)})

    assert outcome.decision is Decision.ACCEPT
    assert outcome.answer == "42"
    assert [p.decision for p in outcome.passes] == [Decision.ACCEPT]
    assert source.chats == [None]


def test_a_violation_is_told_and_the_second_pass_improves_the_answer(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "41!2")], [make_candidate("b", "42", pass_index=2)])

    outcome = run(source, {"a": SURE, "b": SURE})

    assert outcome.answer == "42"
    assert [p.decision for p in outcome.passes] == [Decision.REGENERATE, Decision.ACCEPT]
    assert outcome.passes[0].feedback.splitlines()[1] == "- over the limit by 2"
    assert source.chats[1][-1]["content"] == outcome.passes[0].feedback
    assert (outcome.passes[0].selected, outcome.passes[1].selected) == ("a", "b")
    assert len(outcome.pool) == 2


def test_a_second_pass_that_adds_nothing_leaves_the_first_selection(run, make_source, make_candidate):
    source = make_source([make_candidate("z", "42")], [make_candidate("a", "42", pass_index=2)])

    outcome = run(source, {"z": UNSURE, "a": UNSURE})

    assert outcome.best.candidate.candidate_id == "z"
    assert outcome.decision is Decision.ACCEPT


def test_adapters_that_still_disagree_lead_to_abstention_with_the_best_kept(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "42")], [make_candidate("b", "43", pass_index=2)])

    outcome = run(source, {"a": TORN, "b": shifted(TORN, 1)})

    assert outcome.decision is Decision.ABSTAIN
    assert outcome.answer is None
    assert outcome.best.candidate.candidate_id == "a"
    assert "above theta_abstain 1.5" in outcome.reason


def test_a_violation_that_remains_is_given_out_and_named(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "41!2")], [make_candidate("b", "43!3", pass_index=2)])

    outcome = run(source, {"a": SURE, "b": SURE})

    assert outcome.answer == "41!2"
    assert "over the limit by 2" in outcome.reason


def test_nothing_parses_in_any_pass(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "hm")], [make_candidate("b", "oh", pass_index=2)])

    outcome = run(source, {"a": SURE, "b": SURE})

    assert outcome.decision is Decision.ABSTAIN
    assert outcome.best is None
    assert outcome.reason == "no candidate can be selected: of 2, 2 did not parse"
    assert outcome.passes[0].feedback.startswith("Your reply had no answer")


def test_single_failures_are_counted_and_tolerated(run, make_source, make_candidate):
    source = make_source([make_candidate("a", None), make_candidate("b", "42")])

    outcome = run(source, {"b": SURE})

    assert outcome.answer == "42"
    assert (outcome.passes[0].num_requested, outcome.passes[0].num_failed) == (2, 1)


@pytest.mark.parametrize("failure", [GenerationError("endpoint is down"), TimeoutError("no reply in 30 s")])
def test_a_second_pass_that_fails_leaves_the_decision_to_the_first(run, make_source, make_candidate, failure):
    outcome = run(make_source([make_candidate("a", "42")], failure), {"a": UNSURE})

    assert outcome.answer == "42"
    assert f"pass 2 could not be sampled ({failure}), so the decision uses earlier passes only" in outcome.reason
    assert (outcome.passes[1].num_requested, outcome.passes[1].num_failed) == (8, 8)


def test_a_first_pass_that_fails_is_the_callers_to_handle(run, make_source, down):
    with pytest.raises(GenerationError, match="endpoint is down"):
        run(make_source(down), {})


def test_a_mistake_in_a_later_pass_is_not_turned_into_a_decision(run, make_source, make_candidate):
    with pytest.raises(ConfigError, match="no such generator"):
        run(make_source([make_candidate("a", "42")], ConfigError("no such generator")), {"a": UNSURE})


def test_a_candidate_with_nan_energy_is_left_out_and_named(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "41"), make_candidate("b", "42")])

    outcome = run(source, {"a": (math.nan, 0.0), "b": SURE})

    assert outcome.answer == "42"
    assert "1 of 2 candidates could not be scored" in outcome.reason


def test_a_scorer_that_loses_candidates_is_reported(task, problem, checker, make_source, make_candidate):
    class Lossy:
        async def score(self, problem, candidates):
            return []

    with pytest.raises(ScoringError, match="the scorer returned 0 results for 1 candidates"):
        asyncio.run(
            solve(
                problem,
                parts=Parts(
                    task=task, source=make_source([make_candidate("a", "42")]), checker=checker, scorer=Lossy()
                ),
                policy=POLICY,
            )
        )


def test_every_pass_answers_the_violations_of_the_best_so_far(run, make_source, make_candidate):
    source = make_source(
        [make_candidate("a", "41!2")],
        [make_candidate("b", "43!5", pass_index=2)],  # worse: pass 3 is told about "a" again
        [make_candidate("c", "44!1", pass_index=3)],
        [make_candidate("d", "42", pass_index=4)],
    )

    outcome = run(source, dict.fromkeys("abcd", SURE), Policy(max_passes=4))

    assert outcome.answer == "42"
    assert [chat[-2]["content"] for chat in source.chats[1:]] == ["41!2", "41!2", "44!1"]
    assert [chat[-1]["content"].splitlines()[1] for chat in source.chats[1:]] == [
        "- over the limit by 2",
        "- over the limit by 2",
        "- over the limit by 1",
    ]


def test_a_spent_budget_leaves_no_pass(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "41!2"), make_candidate("b", None)])

    outcome = run(source, {"a": SURE}, Policy(budget=2))

    assert [record.decision for record in outcome.passes] == [Decision.ACCEPT]


def test_a_limit_that_forbids_a_pass_leaves_the_decision_to_the_first(run, make_source, make_candidate):
    source = make_source([make_candidate("a", "41!2")], LimitReachedError("of max_usd 1 none is left"))

    outcome = run(source, {"a": SURE})

    assert outcome.answer == "41!2"
    assert outcome.reason.endswith(
        "; pass 2 was not started (of max_usd 1 none is left), so the decision uses earlier passes only"
    )
    assert (outcome.passes[1].num_requested, outcome.passes[1].num_failed) == (0, 0)
