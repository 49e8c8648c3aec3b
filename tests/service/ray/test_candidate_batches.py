"""When candidates travel from the generators to the ingress, in virtual time."""

import asyncio

import pytest

from raydebm.config import OpenAIGenerator
from raydebm.generators.requests import answered
from raydebm.records import GenerationRequest, Sampling
from raydebm.service.ray import deployments
from raydebm.service.ray.deployments import LINGER_S, GeneratorDeployment


class Timed:
    """A generator that answers each request so many seconds after it was asked."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def stream(self, requests):
        for request, seconds in zip(requests, self.seconds, strict=True):
            await asyncio.sleep(seconds - asyncio.get_running_loop().time())
            yield answered(request, "text")

    async def aclose(self):
        pass


@pytest.fixture
def arrivals(monkeypatch, run_virtually):
    """(time in ms, number of candidates) of each message, where candidates are ready after so many ms."""

    def of(*milliseconds):
        monkeypatch.setattr(
            deployments, "build_generator", lambda *args, **options: Timed([ready / 1000 for ready in milliseconds])
        )
        config = OpenAIGenerator(name="ada", model="m", base_url="http://127.0.0.1:9/v1", api_key_env=None)
        requests = [
            GenerationRequest(
                task="gsm8k", problem_id="p", generator="ada", messages=(), sampling=Sampling(), seed=seed
            )
            for seed in range(len(milliseconds))
        ]

        async def run():
            clock = asyncio.get_running_loop().time
            batches = GeneratorDeployment([config], "nowhere").stream(requests)
            return [(round(1000 * clock(), 3), len(batch)) async for batch in batches]

        return run_virtually(run())

    return of


def test_the_last_candidates_wait_for_no_more(arrivals):
    assert arrivals(50, 51) == [(51, 2)]


def test_a_candidate_waits_a_moment_for_the_next_ones(arrivals):
    linger = 1000 * LINGER_S

    assert arrivals(50, 50 + linger / 2, 90) == [(50 + linger, 2), (90, 1)]
