"""POST /v1/responses: OpenAI's Responses API as its own client reads it."""

import asyncio

import httpx
import openai
import pytest

PATH, MODEL = "/v1/responses", "raydebm/knights_knaves"


@pytest.fixture
def call(app):
    """Call the official client's ``responses``."""

    def run(use):
        async def inside():
            http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
            return await use(
                openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=http).responses
            )

        return asyncio.run(inside())

    return run


def test_the_official_client_reads_the_stream(call, puzzle, texts):
    async def use(api):
        async with api.stream(model=MODEL, input=puzzle) as stream:
            events = [event async for event in stream]
            return events, await stream.get_final_response()

    events, final = call(use)
    assert final.output_text == texts["right"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == texts["right"]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))


def test_an_error_in_a_stream_ends_it_as_failed(call, puzzle, script):
    script(write=lambda request: None)

    async def use(api):
        return [event async for event in await api.create(model=MODEL, input=puzzle, stream=True)]

    last = call(use)[-1]
    assert (last.type, last.response.status, last.response.error.code) == (
        "response.failed",
        "failed",
        "generation_failed",
    )
