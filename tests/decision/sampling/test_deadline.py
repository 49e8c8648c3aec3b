"""A loop with little time: what is taken, what is left out, which pass still begins. All in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.deadline import Deadline, is_late, now_s
from raydebm.decision.sampling.one_pass import Parts
from raydebm.records import Decision, FailureKind

SURE, UNSURE = (-0.1, 0.1), (-1.0, 1.0)
"""Sigma 0.1 and 1 around mu 0, against theta_sigma 0.8."""


class TimedSource:
    """Passes of (seconds after which it arrives, candidate). Keeps to the deadline as sources must."""

    def __init__(self, *passes, deadline, unanswered):
        self.passes, self.deadline, self.unanswered = passes, deadline, unanswered
        self.begun_at = []

    async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
        self.begun_at.append(now_s())
        drawn = self.passes[pass_index - 1]
        by_id = {}

        async def write(seconds, candidate):
            await asyncio.sleep(seconds)
            by_id[candidate.candidate_id] = candidate
            arrived(candidate)

        tasks = [asyncio.create_task(write(*timed_candidate)) for timed_candidate in drawn]
        await asyncio.wait(tasks, timeout=self.deadline.sample_until_s - now_s())
        for task in tasks:
            task.cancel()
        return [
            by_id.get(candidate.candidate_id, self.unanswered(candidate, self.deadline.not_sampled()))
            for _, candidate in drawn
        ]


class TimedScorer:
    """Takes so long for a call, whatever it holds."""

    def __init__(self, scorer, seconds):
        self.scorer, self.seconds = scorer, seconds

    async def score(self, problem, candidates):
        await asyncio.sleep(self.seconds)
        return await self.scorer.score(problem, candidates)


@pytest.fixture
def decide(task, problem, checker, make_scorer, make_candidate, run_virtually):
    """Runs the loop over passes of (seconds, id, text, members): the outcome, its time, and when passes began."""

    def run(*passes, deadline_ms=1000, scoring_s=0.0, max_passes=2):
        async def work():
            deadline = Deadline.starting_now(deadline_ms)
            source = TimedSource(
                *(
                    [(s, make_candidate(name, text, pass_index=i)) for s, name, text, _ in drawn]
                    for i, drawn in enumerate(passes, start=1)
                ),
                deadline=deadline,
                unanswered=lambda candidate, error: replace(
                    make_candidate(candidate.candidate_id, None, pass_index=candidate.pass_index, error=error),
                    failure=FailureKind.LATE,
                ),
            )
            members = {name: energies for drawn in passes for _, name, _, energies in drawn}
            outcome = await solve(
                problem,
                parts=Parts(
                    task=task,
                    source=source,
                    checker=checker,
                    scorer=TimedScorer(make_scorer(members), scoring_s),
                    deadline=deadline,
                ),
                policy=Policy(max_passes=max_passes),
            )
            return outcome, now_s(), source.begun_at

        return run_virtually(work())

    return run


def test_a_late_candidate_is_left_out_and_the_others_decide(decide):
    outcome, ended_s, _ = decide([(0.1, "a", "42", SURE), (60.0, "b", "41", SURE)])

    assert (outcome.decision, outcome.answer) == (Decision.ACCEPT, "42")
    assert ended_s == 0.9  # nine tenths of the time are for drawing
    assert [is_late(scored.candidate) for scored in outcome.pool] == [False, True]
    assert outcome.pool[1].candidate.error == "it had not arrived after 900 ms of the deadline of 1000 ms"
    assert (outcome.passes[0].num_requested, outcome.passes[0].num_failed) == (2, 1)


def test_what_is_not_scored_in_time_is_left_out(decide):
    outcome, ended_s, _ = decide([(0.1, "a", "42", SURE), (0.85, "b", "41", SURE)], scoring_s=0.3)

    assert outcome.answer == "42"  # scored at 0.4; "b" would have been at 1.15
    assert ended_s == 1.0
    assert outcome.pool[1].candidate.error == "it was not checked and scored by the deadline of 1000 ms"


def test_a_request_that_waited_has_less_time_left(run_virtually):
    async def left():
        return Deadline.starting_now(1000, spent_s=0.25).left_s()

    assert run_virtually(left()) == 0.75


def test_a_second_pass_ends_at_the_same_deadline(decide):
    outcome, ended_s, begun_at = decide([(0.1, "a", "41!1", SURE)], [(0.4, "b", "42", SURE)], scoring_s=0.3)

    assert begun_at == [0.0, 0.4]
    assert (outcome.answer, ended_s) == ("41!1", 1.0)  # "b" would have been scored at 1.1


def test_the_last_tenth_is_for_scoring_the_last_candidates(decide):
    outcome, ended_s, _ = decide([(0.8, "a", "42", SURE)], scoring_s=0.1)

    assert (outcome.answer, round(ended_s, 6)) == ("42", 0.9)


def test_a_second_pass_begins_while_there_is_time_for_one_as_long_as_the_first(decide):
    outcome, ended_s, begun_at = decide([(0.4, "a", "41!1", SURE)], [(0.3, "b", "42", SURE)])

    assert outcome.answer == "42"
    assert begun_at == [0.0, 0.4]  # 0.6 s are left, and the first took 0.4
    assert round(ended_s, 6) == 0.7


def test_a_second_pass_that_could_not_end_in_time_does_not_begin(decide):
    outcome, ended_s, begun_at = decide([(0.6, "a", "41!1", SURE)], [(0.3, "b", "42", SURE)])

    assert (outcome.answer, begun_at, ended_s) == ("41!1", [0.0], 0.6)
    assert [record.decision for record in outcome.passes] == [Decision.REGENERATE, Decision.ACCEPT]
    assert (outcome.passes[1].num_requested, outcome.passes[1].num_failed) == (0, 0)
    assert outcome.reason.endswith(
        "; pass 2 was not started (400 ms of the deadline of 1000 ms are left, and an earlier pass took 600 ms), "
        "so the decision uses earlier passes only"
    )


def test_the_longest_pass_counts_and_not_the_last(decide):
    passes = [(0.4, "a", "41!1", SURE)], [(0.25, "b", "43!1", SURE)], [(0.1, "c", "42", SURE)]
    _, ended_s, begun_at = decide(*passes, max_passes=3)

    assert begun_at == [0.0, 0.4]  # 0.35 s are left, and the first took 0.4
    assert round(ended_s, 6) == 0.65


def test_a_source_that_ignores_the_deadline_is_left_behind(
    task, problem, checker, make_scorer, make_candidate, run_virtually
):
    class Deaf:
        async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
            arrived(make_candidate("a", "42"))
            await asyncio.sleep(60)

    async def work():
        outcome = await solve(
            problem,
            parts=Parts(
                task=task,
                source=Deaf(),
                checker=checker,
                scorer=make_scorer({"a": SURE}),
                deadline=Deadline.starting_now(1000),
            ),
            policy=Policy(),
        )
        return outcome, now_s()

    outcome, ended_s = run_virtually(work())
    assert (outcome.answer, ended_s) == ("42", 1.0)
