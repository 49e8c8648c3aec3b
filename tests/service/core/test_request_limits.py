"""A request's own limits: time, money, number of candidates. In virtual time, over the service without its network."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hand_written_run import PRICES, HandWritten

from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide
from raydebm.errors import ServiceError
from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.service.core import TriageService
from raydebm.service.routes.bodies import triage_answer
from raydebm.service.store.record import record_of, record_row


class Slow(HandWritten):
    """A backend whose candidates take their time, all at once."""

    def __init__(self):
        super().__init__()
        self.seconds = lambda request: 0.0
        self.cost_usd = lambda request: 0.25
        self.asked = []

    async def generate(self, requests, on_candidate, *, may_repeat):
        self.asked += requests

        async def write(request):
            await asyncio.sleep(self.seconds(request))
            text, usage = self.write(request), TokenUsage(cost_usd=self.cost_usd(request))
            candidate = unanswered(request, "HTTP 500") if text is None else answered(request, text, usage=usage)
            on_candidate(candidate)
            return candidate

        tasks = [asyncio.create_task(write(request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def priced(bundle_of, recipe):
    """A served run whose second generator's completions cost a dollar each, and the first one's half of it."""
    half = {"usd_per_million_tokens": [price / 2 for price in PRICES["usd_per_million_tokens"]]}
    ada, bo = recipe["generators"]
    tree = {**recipe, "generators": [{**ada, **half}, {**bo, **PRICES}]}
    return bundle_of(tree, policies={"wide": {"num_regenerate": 8}})


@pytest.fixture
def triage(slow, bundle, context_of, run_virtually):
    """Asks with overrides; returns the answer, and when it came."""

    def run(served=bundle, *, received=None, **overrides):
        context = replace(context_of(served, **overrides), received=received)

        async def work():
            answer = await TriageService(served, slow).triage(context)
            return triage_answer(answer), asyncio.get_running_loop().time()

        return run_virtually(work())

    return run


def named(answer):
    return {generator.name: generator for generator in answer.generators}


# ---- time ------------------------------------------------------------------------------------------------------------


def test_a_late_generator_is_left_out_and_named(triage, slow):
    slow.seconds = lambda request: 60.0 if request.generator == "bo" else 0.1

    answer, ended_s = triage(deadline_ms=2000)

    assert (answer.decision, answer.candidate.generator, ended_s) == ("accept", "ada", 1.8)
    assert (named(answer)["ada"].late, named(answer)["ada"].failed) == (0, 0)
    assert (named(answer)["bo"].asked, named(answer)["bo"].failed, named(answer)["bo"].late) == (2, 2, 2)
    assert named(answer)["bo"].error == "it had not arrived after 1800 ms of the deadline of 2000 ms"


def test_a_request_without_a_deadline_has_the_services(triage, slow, bundle_of):
    slow.seconds = lambda request: 1e6 if request.generator == "bo" else 0.1

    answer, ended_s = triage(bundle_of(max_deadline_s=2))

    assert (answer.decision, answer.candidate.generator, ended_s) == ("accept", "ada", 1.8)
    assert (named(answer)["bo"].late, answer.policy["deadline_ms"]) == (2, 2000)


def test_candidates_that_cannot_be_scored_in_time_are_a_504(triage, slow):
    async def endless(texts):
        await asyncio.sleep(1e6)

    slow.score = endless
    with pytest.raises(ServiceError, match="4 candidates failed") as caught:
        triage(deadline_ms=2000)
    assert caught.value.status == 504


def test_an_abstention_for_want_of_candidates_is_a_504_and_not_stored(slow, bundle, context_of, texts, run_virtually):
    slow.write = lambda request: texts["unreadable"]
    slow.seconds = lambda request: 60.0 if request.generator == "bo" else 0.1
    stored = []
    service = TriageService(bundle, slow, records=SimpleNamespace(put=stored.append))

    with pytest.raises(ServiceError, match="2 of 4 candidates came too late") as caught:
        run_virtually(service.triage(context_of(bundle, deadline_ms=2000)))

    assert (caught.value.status, caught.value.code, stored) == (504, "deadline_exceeded", [])


def test_time_in_the_queue_counts(triage, slow):
    slow.seconds = lambda request: 0.1

    with pytest.raises(ServiceError) as caught:
        triage(deadline_ms=2000, received=time.perf_counter() - 60)

    assert caught.value.status == 504
    assert slow.asked == []  # nothing is paid for that nobody would wait for


def test_a_second_pass_that_cannot_end_in_time_is_not_begun(triage, slow, texts):
    slow.write, slow.seconds = lambda request: texts["wrong"], lambda request: 1.2

    answer, ended_s = triage(deadline_ms=2000)

    assert ended_s == 1.2
    assert "pass 2 was not started (800 ms of the deadline of 2000 ms are left" in answer.reason
    assert len(slow.asked) == 4


@pytest.fixture
def guaranteed(bundle_of):
    """A guarantee, served with a deadline of two seconds."""
    guarantee = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500}
    policy = Policy(max_passes=2, num_regenerate=2, guarantee=guarantee)
    return bundle_of(policy=policy, max_deadline_s=2)


def test_the_services_deadline_voids_a_guarantee_where_it_binds(triage, slow, guaranteed, texts):
    slow.seconds = lambda request: 0.1
    assert triage(guaranteed)[0].guarantee["certified"] is True

    slow.seconds = lambda request: 60.0 if request.generator == "bo" else 0.1
    guarantee = triage(guaranteed)[0].guarantee
    assert (guarantee["certified"], guarantee["reason"]) == (False, "the deadline left candidates out")

    slow.write, slow.seconds = lambda request: texts["wrong"], lambda request: 1.2
    guarantee = triage(guaranteed)[0].guarantee
    assert (guarantee["certified"], guarantee["reason"]) == (False, "a limit kept a further pass from being sampled")


# ---- money -----------------------------------------------------------------------------------------------------------


def test_what_might_cost_too_much_is_not_asked_and_named(triage, priced, slow):
    # Worst costs in turn: ada 0.5, bo 1, ada 0.5, bo 1. Of 2.2 dollars 0.2 are left for the last one.
    answer, _ = triage(priced, max_usd=2.2)

    assert [(request.generator, request.sample_index) for request in slow.asked] == [("ada", 0), ("ada", 1), ("bo", 0)]
    assert (named(answer)["bo"].asked, named(answer)["bo"].over_budget, named(answer)["bo"].failed) == (1, 1, 0)
    assert (named(answer)["ada"].over_budget, answer.decision) == (0, "accept")


def test_no_candidate_that_can_be_paid_is_a_400(triage, priced):
    with pytest.raises(ServiceError, match=r"at least 0\.1 US dollars are left, and .* may cost 0\.5"):
        triage(priced, max_usd=0.1)


def test_a_later_pass_spends_what_the_first_left(triage, priced, slow, texts):
    slow.write = lambda request: texts["wrong"]

    # Pass 1 may cost 3 and costs 4 x 0.25, so 2.2 - 1 = 1.2 are left: two of ada's at 0.5.
    answer, _ = triage(priced, max_usd=3.2, policy="wide")

    assert [request.pass_index for request in slow.asked] == [1] * 4 + [2] * 4
    assert named(answer)["ada"].over_budget == 4


def test_a_candidate_without_a_stated_cost_counts_its_worst(triage, priced, slow, texts):
    slow.write = lambda request: None if request.generator == "bo" else texts["wrong"]
    slow.cost_usd = lambda request: 0.0

    # Both of bo's failed, and may have been billed 1 each: of 3 dollars 1 is left.
    triage(priced, max_usd=3.0, policy="wide")

    assert [request.pass_index for request in slow.asked] == [1] * 4 + [2] * 2


# ---- what fails ------------------------------------------------------------------------------------------------------


def test_a_backend_that_breaks_after_the_first_candidate_is_not_fatal(triage, slow):
    original = slow.generate

    async def generate(requests, on_candidate, *, may_repeat):
        await original(requests[:1], on_candidate, may_repeat=may_repeat)
        raise ServiceError("generator replicas died 6 times in a row", 503, "unavailable")

    slow.generate = generate
    answer, _ = triage()

    assert answer.decision == "accept"
    assert (named(answer)["ada"].failed, named(answer)["bo"].failed) == (1, 2)
    assert named(answer)["bo"].error == "generator replicas died 6 times in a row"


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [{"deadline_ms": 2000}, {"budget": 4}, {"max_usd": 3.0}], ids=lambda limits: next(iter(limits))
)
def test_a_stored_decision_that_a_limit_ended_is_made_again_as_it_was(
    slow, priced, context_of, texts, run_virtually, limits
):
    slow.write, slow.seconds, slow.cost_usd = lambda request: texts["wrong"], lambda request: 1.2, lambda _: 0.7
    context = context_of(priced, **limits)
    made = run_virtually(TriageService(priced, slow).triage(context)).record
    record = record_of(record_row(made))
    again = redecide(record.outcome, record.policy)

    assert len(slow.asked) == 4  # without the limit there would have been a second pass
    assert record.policy == context.policy
    assert (again.decision, again.selected) == (made.outcome.decision, made.outcome.best.candidate.candidate_id)
