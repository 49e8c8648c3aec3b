"""POST /v1/chat/completions and GET /v1/models: OpenAI's shapes, as its own client reads them."""

import asyncio

import httpx
import openai
import pytest

MODEL = "raydebm/knights_knaves"


@pytest.fixture
def ask(client, puzzle):
    def send(**changes):
        body = {"model": MODEL, "messages": [{"role": "user", "content": puzzle}], **changes}
        return client.post("/v1/chat/completions", body)

    return send


def test_sampling_fields_reach_the_generators(ask, backend):
    ask(temperature=0.3, top_p=0.5, max_completion_tokens=32, seed=3, stop="END")
    sampling = backend.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.stop) == (0.3, 0.5, 32, ("END",))


def test_clients_cannot_ask_for_longer_candidates_than_the_recipe_allows(ask, backend):
    ask(max_tokens=100_000)
    assert backend.requests[0].sampling.max_tokens == 64


def test_temperature_zero_keeps_the_candidates_different(ask, backend):
    ask(temperature=0)
    assert backend.requests[0].sampling.temperature == 0.7


def test_the_raydebm_seed_goes_before_the_top_level_one(ask):
    assert ask(seed=3, raydebm={"seed": 4}).json()["raydebm"]["seed"] == 4
    assert ask(seed=3).json()["raydebm"]["seed"] == 3


def test_the_official_client_reads_a_streamed_abstention(app, puzzle, energies, script):
    script(energies=lambda text: energies["unsure"])

    async def call():
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=http)
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": puzzle}],
            stream=True,
            stream_options={"include_usage": True},
        )
        return [chunk async for chunk in stream]

    chunks = asyncio.run(call())
    refusal = "".join(chunk.choices[0].delta.refusal or "" for chunk in chunks if chunk.choices)
    assert refusal.startswith("No answer can be trusted")
    assert chunks[-1].usage.total_tokens == 15 * 6  # two passes: four candidates and two


def test_a_failure_inside_a_stream_is_an_error_event_that_clients_raise(app, puzzle, script):
    script(lambda request: None)

    async def call():
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=http)
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": puzzle}], stream=True
        )
        return [chunk async for chunk in stream]

    with pytest.raises(openai.APIError, match="no generator answered"):
        asyncio.run(call())
