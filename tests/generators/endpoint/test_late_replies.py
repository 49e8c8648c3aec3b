"""Replies that do not come in time: an endpoint may bill them, so they are neither repeated nor forgotten lightly."""

import asyncio
import socket

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators.endpoint.openai_api import EndpointAccess, OpenAIApiGenerator
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.endpoint.transports import (
    AiohttpTransport,
    LateReplyError,
    LostReplyError,
    Secret,
    TransportError,
)
from raydebm.generators.journal import Journal
from raydebm.generators.replies import HttpReply
from raydebm.generators.requests import worst_cost

LATE, LOST = LateReplyError("no reply within 120 s"), TransportError("connection failed")
ANSWER = HttpReply(status=200, headers={}, content=b'{"choices": [{"message": {"content": "four"}}]}')
BUSY = HttpReply(status=429, headers={}, content=b"")
PRICES = {"usd_per_million_tokens": (1e6, 2e6)}
LIMITS = [{"budget": Budget(1e9)}, {"may_repeat": False}]
"""Of the run, and of the request."""


class Script:
    """A transport that gives these results one after the other; the last one stays."""

    def __init__(self, *results):
        self.results = results
        self.num_posted = 0

    async def post(self, body):
        result = self.results[min(self.num_posted, len(self.results) - 1)]
        self.num_posted += 1
        if isinstance(result, Exception):
            raise result
        return result

    async def aclose(self):
        pass


@pytest.fixture
def played(run_virtually, ask):
    """Asks once; returns the candidate and how often the request was sent."""

    def play(*results, budget=None, may_repeat=True, **settings):
        transport = Script(*results)
        config = OpenAIGenerator(name="g", model="m", api_key_env=None, **settings)

        async def work():
            generator = OpenAIApiGenerator(
                config, access=EndpointAccess(key=Secret(None), budget=budget), transport=lambda config, key: transport
            )
            return [candidate async for candidate in generator.stream([ask()], may_repeat=may_repeat)]

        (candidate,) = run_virtually(work())
        return candidate, transport.num_posted

    return play


@pytest.mark.parametrize(
    ("results", "text", "num_posted"),
    [
        ((LATE,), None, 2),
        ((LATE, ANSWER), "four", 2),
        ((LOST,), None, 7),
        ((BUSY,), None, 7),
        ((LOST, BUSY, LATE, LOST, BUSY, ANSWER), "four", 6),
        ((LOST, LATE, BUSY, LATE, ANSWER), None, 4),
    ],
)
def test_a_late_reply_is_asked_for_once_more_and_other_failures_oftener(played, results, text, num_posted):
    candidate, num_sent = played(*results)
    assert (candidate.text, num_sent) == (text, num_posted)


@pytest.mark.parametrize("limit", LIMITS)
def test_under_a_limit_in_dollars_a_late_reply_is_not_asked_for_again(played, limit):
    candidate, num_posted = played(LATE, ANSWER, **limit)
    assert (candidate.error.partition(": ")[2], candidate.cost_usd, num_posted) == (str(LATE), None, 1)
    assert played(LOST, ANSWER, **limit)[1] == 2


BROKEN = {
    "cut": LostReplyError("connection failed: ServerDisconnectedError"),
    "corrupt": HttpReply(status=200, headers={}, content=b'{"choices": [{"mess'),
    "list": HttpReply(status=200, headers={}, content=b"[]"),
    "502": HttpReply(status=502, headers={}, content=b"bad gateway"),
    "504": HttpReply(status=504, headers={}, content=b"upstream timed out"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("limit", LIMITS)
def test_under_a_limit_in_dollars_no_reply_that_may_be_billed_is_asked_for_again(played, limit, name):
    candidate, num_posted = played(BROKEN[name], ANSWER, **limit, **PRICES)
    assert (candidate.text, candidate.cost_usd, num_posted) == (None, None, 1)
    assert played(BROKEN[name], BROKEN[name], ANSWER)[1] == 3


@pytest.mark.parametrize("name", BROKEN)
def test_every_reply_that_may_be_billed_counts_its_worst_cost(played, ask, name):
    budget = Budget(None)
    worst_usd = worst_cost(OpenAIGenerator(name="g", model="m", **PRICES), ask())
    played(BROKEN[name], BROKEN[name], ANSWER, budget=budget, **PRICES)
    assert budget.spent_usd == 2 * worst_usd


async def failure_at(port, timeout_s=60.0):
    """The kind of error of a request to a server on this port."""
    carrier = AiohttpTransport(f"http://127.0.0.1:{port}/v1", api_key=None, headers={}, timeout_s=timeout_s)
    with pytest.raises(TransportError) as caught:
        await carrier.post({"model": "m", "messages": [{"role": "user", "content": "?"}]})
    await carrier.aclose()
    return type(caught.value)


def test_it_tells_a_reply_that_broke_off_from_a_refused_connection(refusing_port):
    async def cut(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()

    async def work():
        async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
            return await failure_at(server.sockets[0].getsockname()[1]), await failure_at(refusing_port)

    assert asyncio.run(work()) == (LostReplyError, TransportError)


def test_what_costs_nothing_is_asked_for_again_under_any_limit(played):
    free = {"usd_per_million_tokens": (0.0, 0.0)}
    assert played(LATE, ANSWER, budget=Budget(100.0), may_repeat=False, **free)[0].text == "four"


def test_every_late_reply_counts_its_worst_cost_now_and_in_later_runs(played, ask, tmp_path):
    budget = Budget(None, Journal(tmp_path))
    worst_usd = worst_cost(OpenAIGenerator(name="g", model="m", **PRICES), ask())
    candidate, _ = played(LATE, LATE, budget=budget, **PRICES)
    assert (candidate.cost_usd, budget.spent_usd) == (None, 2 * worst_usd)

    candidate, num_posted = played(ANSWER, budget=Budget(2 * worst_usd, Journal(tmp_path)), **PRICES)
    assert num_posted == 0
    assert candidate.error.startswith("budget of ")


def test_the_cost_of_a_late_reply_is_not_the_answers(played):
    usage = b'{"choices": [{"message": {"content": "four"}}], "usage": {"cost": 0.25}}'
    budget = Budget(None)
    candidate, _ = played(LATE, HttpReply(status=200, headers={}, content=usage), budget=budget, **PRICES)
    assert candidate.cost_usd == 0.25
    assert budget.spent_usd > 0.25


@pytest.fixture
def full_port():
    """A port whose queue of connections is full, so that a further one is neither taken nor refused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        try:
            for _ in range(8):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(listening.getsockname())
            yield int(listening.getsockname()[1])
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize("connects", [True, False])
def test_it_tells_a_late_reply_from_a_late_connection(connects, full_port):
    async def silent(reader, writer):
        await asyncio.sleep(60)

    async def work():
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        kind = await failure_at(server.sockets[0].getsockname()[1] if connects else full_port, timeout_s=2.0)
        server.close()
        return kind

    assert asyncio.run(work()) is (LateReplyError if connects else TransportError)
