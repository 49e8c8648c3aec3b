"""Several servers of one model: the least busy one is asked, and another when it takes nothing."""

import asyncio

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators.endpoint.openai_api import EndpointAccess
from raydebm.generators.endpoint.rate_limits import Backoff
from raydebm.generators.endpoint.transports import LateReplyError, Replicas, Secret, TransportError
from raydebm.generators.replies import HttpReply


class Server:
    """Answers with a status, or raises; ``asked`` counts its requests."""

    def __init__(self, outcome=200):
        self.outcome, self.asked, self.closed = outcome, 0, False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def post(self, body):
        self.asked += 1
        await self.may_answer.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return HttpReply(status=self.outcome, headers={}, content=b"")

    async def aclose(self):
        self.closed = True


def over(*servers, **options):
    return Replicas({f"http://{index}": server for index, server in enumerate(servers)}, **options)


async def post(replicas):
    return (await replicas.post({})).status


@pytest.mark.parametrize("outcome", [TransportError("refused"), 502, 503])
def test_another_is_asked_when_one_takes_nothing(outcome):
    failing, other = Server(outcome), Server()
    assert asyncio.run(post(over(failing, other))) == 200


@pytest.mark.parametrize("status", [429, 500, 504])
def test_any_other_status_is_the_generators_affair(status):
    first, other = Server(status), Server()
    assert (asyncio.run(post(over(first, other))), other.asked) == (status, 0)


def test_a_late_reply_is_not_paid_twice():
    late, other = Server(LateReplyError("no reply within 1 s")), Server()
    with pytest.raises(LateReplyError):
        asyncio.run(post(over(late, other)))
    assert other.asked == 0


def test_the_least_busy_is_asked():
    first, second = Server(), Server()

    async def session():
        first.may_answer.clear()
        replicas = over(first, second)
        waiting = asyncio.create_task(post(replicas))
        await asyncio.sleep(0)
        await post(replicas)
        first.may_answer.set()
        await waiting

    asyncio.run(session())
    assert (first.asked, second.asked) == (1, 1)


def test_one_that_failed_is_left_out_for_a_while():
    failing, other, now = Server(TransportError("refused")), Server(), [0.0]
    replicas = over(failing, other, rest_s=30.0, clock=lambda: now[0])

    async def session():
        for second in (0.0, 29.0, 30.0):
            now[0] = second
            await post(replicas)

    asyncio.run(session())
    assert (failing.asked, other.asked) == (2, 3)


def test_where_all_fail_the_last_one_is_named():
    with pytest.raises(TransportError, match=r"none of 2 servers took the request; last http://1: refused"):
        asyncio.run(post(over(Server(TransportError("reset")), Server(TransportError("refused")))))


def test_a_generator_answers_over_a_dead_server(server, ask, drawn):
    config = OpenAIGenerator(
        name="g", model="m", base_url="http://127.0.0.1:9/v1", replica_urls=(server.url,), timeout_s=60.0, max_retries=0
    )

    requests = [ask("p: ok", sample_index=index) for index in range(3)]
    candidates = drawn(config, *requests, access=EndpointAccess(key=Secret(None)), backoff=Backoff(base_s=0.01))
    assert [candidate.error for candidate in candidates] == [None, None, None]
