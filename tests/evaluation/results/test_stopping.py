"""Replays of stopping rules over recorded answers."""

import math

import numpy as np
import pytest

from raydebm.decision.stopping import AnswerPosterior, SettledRule, StopReason
from raydebm.decision.stopping.published_rules import (
    BetaRule,
    CannotBeOvertakenRule,
    FixedBudgetRule,
    UnanimousWaveRule,
)
from raydebm.decision.stopping.state import StopDecision
from raydebm.errors import PoolError
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.stopping import (
    RecordedAnswers,
    joined,
    lead_probabilities,
    replay,
    replay_threshold,
    stopping_row,
    trajectories,
)
from raydebm.evaluation.results.stopping_rows import stopping_rows
from raydebm.evaluation.stats.intervals import Bootstrap


def recorded(answers, *, gold="a", problem_id="p", group="g", tokens=None):
    return RecordedAnswers(
        problem_id=problem_id,
        group=group,
        answers=tuple(answers),
        correct=np.array([float(answer == gold) for answer in answers]),
        tokens=np.array([10.0] * len(answers) if tokens is None else tokens),
    )


def play(*pools, waves=(4, 4, 8), max_samples=16, num_replays=3, seed=0):
    return trajectories(pools, waves=waves, max_samples=max_samples, num_replays=num_replays, seed=seed)


def test_equal_answers_stop_after_the_first_wave():
    replayed = replay(play(recorded("a" * 16)), BetaRule())
    assert (replayed.samples[0], replayed.tokens[0], replayed.correct[0]) == (4.0, 40.0, 1.0)
    assert (replayed.full_samples[0], replayed.full_tokens[0]) == (16.0, 160.0)
    assert replayed.reasons[StopReason.ACCEPT][0] == 1.0


def test_the_whole_budget_is_the_vote_over_it():
    replayed = replay(play(recorded("a" * 9 + "b" * 7)), FixedBudgetRule())
    assert (replayed.correct[0], replayed.samples[0], replayed.reasons[StopReason.BUDGET][0]) == (1.0, 16.0, 1.0)


def test_ties_are_shared():
    assert replay(play(recorded("aabb"), max_samples=4), FixedBudgetRule()).correct[0] == 0.5


def test_without_an_answer_nothing_is_right():
    assert replay(play(recorded([None] * 4), max_samples=4), FixedBudgetRule()).correct[0] == 0.0


def test_unlabeled_answers_are_left_out():
    pool = RecordedAnswers(
        problem_id="p", group="g", answers=("a", "a"), correct=np.array([math.nan, 1.0]), tokens=np.ones(2)
    )
    assert replay(play(pool), FixedBudgetRule()).correct[0] == 1.0
    unknown = RecordedAnswers(
        problem_id="q", group="g", answers=("a", "a"), correct=np.full(2, math.nan), tokens=np.ones(2)
    )
    assert math.isnan(replay(play(unknown), FixedBudgetRule()).correct[0])


def test_tokens_are_those_of_the_samples_drawn():
    played = play(recorded("abcd", tokens=[1.0, 2.0, 4.0, 8.0]), waves=(1,), max_samples=4, num_replays=1)
    steps = np.diff(played.tokens[0], prepend=0.0)
    assert sorted(steps) == [1.0, 2.0, 4.0, 8.0]


def test_a_pool_smaller_than_the_budget_is_drawn_whole():
    assert replay(play(recorded("ab"), recorded("a" * 16, problem_id="q")), FixedBudgetRule()).samples.tolist() == [
        2.0,
        16.0,
    ]


def test_every_schedule_sees_the_same_orders():
    pool = recorded("abcdefgh", tokens=[2.0**power for power in range(8)])
    single, waves = play(pool, waves=(1,), max_samples=8), play(pool, waves=(4, 4), max_samples=8)
    assert single.tokens[:, 3].tolist() == waves.tokens[:, 0].tolist()


def test_orders_depend_on_the_seed_alone():
    pool = recorded("abcdefgh", tokens=[2.0**power for power in range(8)])
    assert play(pool).tokens.tolist() == play(pool).tokens.tolist()
    assert play(pool).tokens.tolist() != play(pool, seed=1).tokens.tolist()


def test_esc_sees_its_window():
    # Every window of two has two different answers or none.
    replayed = replay(play(recorded(["a", None]), waves=(2,), max_samples=2), UnanimousWaveRule())
    assert replayed.reasons[StopReason.BUDGET][0] == 1.0
    replayed = replay(play(recorded("aaaa"), waves=(2,), max_samples=4), UnanimousWaveRule())
    assert replayed.samples[0] == 2.0


def test_groups_of_a_problem_are_averaged():
    replayed = replay(play(recorded("aaaa"), recorded("bbbb", group="h")), FixedBudgetRule())
    assert (replayed.problem_ids, replayed.correct.tolist()) == (("p",), [0.5])


def test_cannot_be_overtaken_loses_nothing():
    rng = np.random.default_rng(0)
    pools = [recorded(rng.choice(list("aabc"), 16), problem_id=str(index)) for index in range(20)]
    replayed = replay(play(*pools, waves=(1,), num_replays=5), CannotBeOvertakenRule())
    assert replayed.correct.tolist() == replayed.full_correct.tolist()
    assert replayed.samples.mean() < 16


def test_a_threshold_on_recorded_leads_is_the_rule():
    rng = np.random.default_rng(1)
    pools = [recorded(rng.choice(list("aaabc"), 16), problem_id=str(index)) for index in range(10)]
    played = play(*pools)
    leads = lead_probabilities(played, SettledRule())
    for epsilon in (0.3, 0.1, 0.02):
        fast, plain = replay_threshold(played, leads, 1 - epsilon), replay(played, SettledRule(epsilon=epsilon))
        assert fast.samples.tolist() == plain.samples.tolist()
        assert fast.correct.tolist() == plain.correct.tolist()


def test_a_posterior_is_asked_about_every_state():
    def doubtful(state):
        # Nothing is ever right.
        return AnswerPosterior(probabilities=dict.fromkeys(state.votes, 0.0), none=1.0)

    replayed = replay(play(recorded("a" * 16)), SettledRule(tau_accept=0.9), posterior=doubtful)
    assert (replayed.reasons[StopReason.ABSTAIN][0], replayed.samples[0]) == (1.0, 4.0)


def test_problems_are_picked_and_joined():
    replayed = replay(play(recorded("aaaa"), recorded("bbbb", problem_id="q")), FixedBudgetRule())
    parts = joined([replayed.only(["q"]), replayed.only(["p"])])
    assert (parts.problem_ids, parts.correct.tolist()) == (("q", "p"), [0.0, 1.0])
    assert parts.reasons[StopReason.BUDGET].tolist() == [1.0, 1.0]


def test_a_row_is_paired_with_the_whole_budget():
    replayed = replay(play(recorded("a" * 16), recorded("b" * 16, problem_id="q")), BetaRule())
    row = stopping_row("Beta", replayed, Bootstrap.of(2, num_bootstrap=200, seed=0))
    assert (row.accuracy.value, row.difference.value, row.difference.low, row.difference.high) == (0.5, 0.0, 0.0, 0.0)
    assert (row.token_share.value, row.sample_share.value, row.mean_samples.value) == (0.25, 0.25, 4.0)
    assert row.reasons["accept"] == 1.0


def test_refuses_no_pools():
    with pytest.raises(PoolError, match="at least one pool"):
        play()


@pytest.mark.parametrize(("answers", "labels"), [((), 0), (("a",), 2)])
def test_refuses_columns_of_different_lengths(answers, labels):
    with pytest.raises(PoolError, match="as many labels"):
        RecordedAnswers(
            problem_id="p", group="g", answers=answers, correct=np.zeros(labels), tokens=np.zeros(len(answers))
        )


def test_rows_of_a_report(make_pool):
    pools = [
        make_pool(*((1, {"key": "a"}) for _ in range(8)), problem_id="p"),
        make_pool(*((int(key == "a"), {"key": key}) for key in "abcdefgh"), problem_id="q"),
    ]
    rows = {row.name: row for row in stopping_rows(Stack.of(pools), num_bootstrap=100, seed=0)}
    assert rows["whole pool"].mean_samples.value == 8.0
    # Four equal answers have a Beta probability of 0.969, three one of 0.9375.
    assert rows["Beta, 0.95"].mean_samples.value == (4 + 8) / 2
    assert rows["ESC, window 5"].mean_samples.value == (5 + 8) / 2


def test_rows_of_many_problems_are_of_the_first_by_their_ids(make_pool, monkeypatch):
    monkeypatch.setattr("raydebm.evaluation.results.stopping_rows.MAX_PROBLEMS", 1)
    agreeing = [
        make_pool(*((1, {"key": "a"}) for _ in range(size)), problem_id=name) for name, size in [("q", 3), ("p", 2)]
    ]
    rows = {row.name: row for row in stopping_rows(Stack.of(agreeing), num_bootstrap=100, seed=0)}
    assert (rows["whole pool"].accuracy.n, rows["whole pool"].mean_samples.value) == (1, 2.0)


def test_what_no_order_reaches_is_not_judged():
    """The rule accepts after the first answer, so that only the state of one vote is judged."""
    judged = []

    class AtOnce:
        def decide(self, state, posterior=None):
            judged.append(state.num_samples)
            return StopDecision(reason=StopReason.ACCEPT, leader="0", num_samples=1, remaining=state.max_samples - 1)

    replayed = replay(play(recorded("aaaaaaaa"), waves=(1,), max_samples=8), AtOnce())
    assert (replayed.samples.tolist(), judged) == ([1.0], [1])


def test_no_rows_where_answers_never_agree(make_pool):
    pool = make_pool((1, {"key": "a"}), (0, {"key": "b"}), (0, {"penalty": math.inf}))
    assert stopping_rows(Stack.of([pool]), num_bootstrap=10, seed=0) == []
