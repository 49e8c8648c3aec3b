"""The second request for a slow answer, in virtual time, and over a real socket."""

import asyncio

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators import EndpointAccess, Hedging
from raydebm.generators.endpoint.api_keys import Secret
from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.endpoint.transports import LateReplyError
from raydebm.generators.protocol import collect
from raydebm.generators.replies import HttpReply


class Endpoint:
    """Each call takes its seconds and gives its result; an exception is raised."""

    def __init__(self, *calls):
        self.calls = iter(calls)
        self.num_called = self.num_cancelled = 0

    async def __call__(self):
        seconds, result = next(self.calls)
        self.num_called += 1
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def race(run_virtually):
    """Runs one request; returns its result, its time and the endpoint."""

    def run(*calls, after=1.0, has_place=True, hedging=None):
        endpoint, repeats = Endpoint(*calls), []
        hedging = hedging or Hedging(after, on_repeat=repeats.append)

        async def work():
            answer = await hedging.first_of(endpoint, has_place=lambda: has_place)
            return answer, asyncio.get_running_loop().time()

        answer, ended_s = run_virtually(work())
        return answer, ended_s, endpoint, repeats

    return run


def test_a_quick_request_is_sent_once(race):
    answer, ended_s, endpoint, repeats = race((0.5, "first"))

    assert (answer, ended_s, endpoint.num_called, repeats) == ("first", 0.5, 1, [])


def test_a_slow_request_is_sent_again_and_the_first_answer_counts(race):
    answer, ended_s, endpoint, repeats = race((60, "first"), (2, "second"))

    assert (answer, ended_s, repeats) == ("second", 3.0, [True])
    assert endpoint.num_cancelled == 1


def test_the_first_request_may_still_win(race):
    answer, ended_s, endpoint, repeats = race((1.5, "first"), (60, "second"))

    assert (answer, ended_s, endpoint.num_cancelled, repeats) == ("first", 1.5, 1, [False])


def test_of_answers_at_the_same_moment_the_first_requests_counts(race):
    answer, _, _, _ = race((3, "first"), (2, "second"))

    assert answer == "first"


def test_a_failure_counts_only_when_the_other_one_failed_too(race):
    answer, ended_s, _, _ = race((1.5, OSError("first")), (2, "second"))
    assert (answer, ended_s) == ("second", 3.0)

    with pytest.raises(OSError, match="first"):
        race((60, OSError("first")), (2, OSError("second")))


def test_a_quick_failure_is_not_repeated(race):
    with pytest.raises(OSError, match="first"):
        race((0.1, OSError("first")))


def test_no_second_request_without_a_free_place(race):
    _, ended_s, endpoint, _ = race((5, "first"), has_place=False)

    assert (ended_s, endpoint.num_called) == (5.0, 1)


def test_at_most_every_tenth_request_is_sent_again(race):
    hedging, num_called = Hedging(1.0), 0
    for _ in range(30):
        num_called += race((5, "first"), (60, "second"), hedging=hedging)[2].num_called

    assert num_called == 33


def test_the_95th_percentile_of_the_last_requests_is_the_limit(race):
    hedging = Hedging("p95")
    for seconds in range(1, 20):
        race((seconds, "x"), hedging=hedging)
    assert hedging.wait_s() is None  # 19 are known, and 20 are needed
    race((20, "x"), hedging=hedging)

    assert hedging.wait_s() == 19.0  # 19 of the 20 took at most so long
    _, ended_s, _, _ = race((60, "first"), (3, "second"), hedging=hedging)
    assert ended_s == 22.0


def test_failed_requests_say_nothing_about_times(race):
    hedging = Hedging("p95")
    for _ in range(40):
        with pytest.raises(OSError, match="down"):
            race((0, OSError("down")), hedging=hedging)

    assert hedging.wait_s() is None


class TwoSpeeds:
    """A transport whose first request takes a minute; the others take a second."""

    def __init__(self):
        self.bodies = []

    async def post(self, body):
        self.bodies.append(body)
        await asyncio.sleep(60 if len(self.bodies) == 1 else 1)
        content = b'{"choices": [{"message": {"content": "42"}}], "usage": {"cost": 0.25}}'
        return HttpReply(status=200, headers={}, content=content)

    async def aclose(self):
        pass


def generator_on(transport, *, after_s=5.0):
    """One that sends a request again after so long."""
    return OpenAIApiGenerator(
        OpenAIGenerator(name="g", model="m", api_key_env=None),
        access=EndpointAccess(key=Secret(None), hedging=Hedging(after_s)),
        transport=lambda config, key: transport,
    )


@pytest.mark.parametrize(("hedge", "ended_s", "num_sent"), [(True, 6.0, 2), (False, 60.0, 1)])
def test_a_candidate_is_the_same_whichever_request_answered(ask, run_virtually, hedge, ended_s, num_sent):
    transport, request = TwoSpeeds(), ask("p: ok", generator="g")

    async def work():
        generator = generator_on(transport)
        candidates = [candidate async for candidate in generator.stream([request], hedge=hedge)]
        return candidates, asyncio.get_running_loop().time()

    (candidate,), time_s = run_virtually(work())
    assert (candidate.text, candidate.candidate_id, candidate.cost_usd) == ("42", request.candidate_id, 0.25)
    assert (time_s, len(transport.bodies)) == (ended_s, num_sent)
    assert len({body["seed"] for body in transport.bodies}) == 1


def test_a_repeated_request_is_not_repeated_again_when_its_reply_is_late(ask, run_virtually):
    class Late(TwoSpeeds):
        async def post(self, body):
            self.bodies.append(body)
            await asyncio.sleep(60)
            raise LateReplyError("no reply within 60 s")

    transport = Late()

    async def work():
        generator = generator_on(transport)
        return await collect(generator, [ask("p: ok", generator="g")])

    (candidate,) = run_virtually(work())
    assert "no reply within 60 s" in candidate.error
    assert len(transport.bodies) == 2


def test_both_costs_count_when_both_are_known(ask, run_virtually):
    class Even(TwoSpeeds):
        async def post(self, body):
            self.bodies.append(body)
            await asyncio.sleep(6 - len(self.bodies))  # sent at 0 and 1, both answered at 5
            content = b'{"choices": [{"message": {"content": "42"}}], "usage": {"cost": 0.25}}'
            return HttpReply(status=200, headers={}, content=content)

    async def work():
        generator = generator_on(Even(), after_s=1.0)
        return await collect(generator, [ask("p: ok", generator="g")])

    (candidate,) = run_virtually(work())
    assert candidate.cost_usd == 0.5
