"""Waves over many problems: the order of generators, who gets a further wave, and what is never sent."""

import math

import pytest

from raydebm.decision.stopping.wave_schedule import WaveSchedule, sampling_order
from raydebm.records import ConstraintReport, GenerationRequest, Sampling


def request(problem, generator, sample, *, temperature=0.7):
    return GenerationRequest(
        task="toy",
        problem_id=problem,
        generator=generator,
        messages=({"role": "user", "content": problem},),
        sampling=Sampling(temperature=temperature),
        seed=sample,
        sample_index=sample,
    )


def requests(problem="p", *, generators="abcd", each=4):
    return [request(problem, name, sample) for name in generators for sample in range(each)]


def schedule(asked, *, waves=(4, 4, 8), prices=None):
    known = dict.fromkeys({sample.generator for sample in asked}, 0.0)
    return WaveSchedule(asked, waves=waves, prices=known | (prices or {}))


def report(sample, key, *, proof=None):
    penalty = math.inf if key is None else 0.0
    return ConstraintReport(candidate_id=sample.candidate_id, answer=key, vote_key=key, penalty=penalty, proof=proof)


def play(plan, answer):
    """Run all waves; ``answer(request, number)`` is the key of a problem's n-th sample. Returns the sizes."""
    sizes, drawn = [], {}
    while wave := plan.next_wave():
        reports = {}
        for sample in wave:
            if not sample.sampling.is_greedy:
                drawn[sample.problem_id] = number = drawn.get(sample.problem_id, -1) + 1
                reports[sample.candidate_id] = report(sample, answer(sample, number))
        plan.record(reports)
        sizes.append(len(wave))
    return sizes


def test_generators_take_turns_the_cheapest_first():
    asked = [request("p", name, 0) for name in ("dear", "cheap", "free", "also free")] + [request("p", "dear", 1)]
    order = sampling_order(asked, {"dear": 2.0, "cheap": 1.0, "free": 0.0, "also free": 0.0})
    assert [(sample.generator, sample.sample_index) for sample in order] == [
        ("free", 0), ("also free", 0), ("cheap", 0), ("dear", 0), ("dear", 1)
    ]  # fmt: skip


def test_equal_answers_end_a_problem_after_the_first_wave():
    # Four equal votes of 16: P(the lead stays) is 0.97 under the uniform prior on the grid.
    plan = schedule(requests(), waves=(4, 12))
    assert play(plan, lambda sample, number: "x") == [4]
    assert (plan.num_problems, plan.num_settled, len(plan.unsent)) == (1, 1, 12)


def test_different_answers_are_sampled_to_the_end():
    plan = schedule(requests())
    assert play(plan, lambda sample, number: str(number)) == [4, 4, 8]
    assert (plan.num_settled, plan.unsent) == (0, [])


def test_each_problem_ends_on_its_own():
    plan = schedule([*requests("easy"), *requests("hard")])
    sizes = play(plan, lambda sample, number: "x" if sample.problem_id == "easy" else str(number))
    assert sizes == [8, 4, 8]
    assert {sample.problem_id for sample in plan.unsent} == {"easy"}
    assert (plan.num_problems, plan.num_settled) == (2, 1)


def test_greedy_requests_come_with_the_first_wave_and_do_not_vote():
    greedy = [request("p", name, 0, temperature=0.0) for name in "abcd"]
    plan = schedule([*requests(), *greedy], waves=(2, 14))
    first = plan.next_wave()
    assert [sample.sampling.is_greedy for sample in first] == [True] * 4 + [False] * 2
    plan.record({sample.candidate_id: report(sample, "x") for sample in first[4:]})
    assert len(plan.next_wave()) == 14


def test_a_proven_answer_ends_a_problem():
    plan = schedule(requests())
    wave = plan.next_wave()
    plan.record({sample.candidate_id: report(sample, str(n), proof=n == 2 or None) for n, sample in enumerate(wave)})
    assert (plan.next_wave(), plan.num_settled, len(plan.unsent)) == ([], 1, 12)


def test_a_refuted_answer_settles_nothing():
    plan = schedule(requests())
    plan.record({sample.candidate_id: report(sample, "x", proof=False) for sample in plan.next_wave()})
    assert len(plan.next_wave()) == 4


def test_a_missing_report_is_an_error():
    plan = schedule(requests())
    plan.next_wave()
    with pytest.raises(KeyError):
        plan.record({})
