import asyncio

import pytest
from misbehaving_server import MisbehavingServer

from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
from raydebm.generators.requests import collect
from raydebm.records import GenerationRequest, Sampling


@pytest.fixture
def server():
    with MisbehavingServer() as running:
        yield running


@pytest.fixture
def drawn():
    """Ask an endpoint; gives the candidates of a generator that lives as long as they take."""

    def draw(config, *requests, **options):
        async def session():
            generator = OpenAIApiGenerator(config, **options)
            try:
                return await collect(generator, requests)
            finally:
                await generator.aclose()

        return asyncio.run(session())

    return draw


@pytest.fixture
def ask():
    """Make a request whose last message tells the server how to behave."""

    def make(content="p: ok", *, generator="g", sample_index=0, sampling=None, problem_id=None):
        return GenerationRequest(
            task="toy",
            problem_id=problem_id or content.partition(":")[0],
            generator=generator,
            messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": content}),
            sampling=sampling or Sampling(max_tokens=64),
            seed=1000 + sample_index,
            sample_index=sample_index,
        )

    return make
