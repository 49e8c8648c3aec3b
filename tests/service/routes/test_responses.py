"""POST /v1/responses: OpenAI's Responses API as its own client reads it."""

MODEL = "raydebm/knights_knaves"


def test_the_official_client_reads_the_stream(official, puzzle, texts):
    async def use(client):
        async with client.responses.stream(model=MODEL, input=puzzle) as stream:
            events = [event async for event in stream]
            return events, await stream.get_final_response()

    events, final = official(use)
    assert final.output_text == texts["right"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == texts["right"]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_an_error_in_a_stream_ends_it_as_failed(official, puzzle, script):
    script(write=lambda request: None)

    async def use(client):
        return [event async for event in await client.responses.create(model=MODEL, input=puzzle, stream=True)]

    last = official(use)[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.code == "generation_failed"
