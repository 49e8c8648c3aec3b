"""POST /v1/chat/completions and GET /v1/models: OpenAI's shapes, as its own client reads them."""

import openai
import pytest
from hand_written_run import chat_body


@pytest.fixture
def ask(client, puzzle):
    return lambda **changes: client.post("/v1/chat/completions", chat_body(puzzle, **changes))


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


def test_the_official_client_reads_a_streamed_abstention(official, puzzle, energies, script):
    script(energies=lambda text: energies["unsure"])

    async def use(client):
        body = chat_body(puzzle, stream=True, stream_options={"include_usage": True})
        return [chunk async for chunk in await client.chat.completions.create(**body)]

    chunks = official(use)
    refusal = "".join(chunk.choices[0].delta.refusal or "" for chunk in chunks if chunk.choices)
    assert refusal.startswith("No answer can be trusted")
    assert chunks[-1].usage.total_tokens == 15 * 6  # two passes: four candidates and two


def test_a_failure_inside_a_stream_is_an_error_event_that_clients_raise(official, puzzle, script):
    script(lambda request: None)

    async def use(client):
        return [chunk async for chunk in await client.chat.completions.create(**chat_body(puzzle, stream=True))]

    with pytest.raises(openai.APIError, match="no generator answered"):
        official(use)
