"""POST /v1/responses: OpenAI's Responses API as its own client reads it."""

import asyncio
import json

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


def test_an_earlier_refusal_is_a_turn(client, backend, puzzle):
    refused = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    turns = [{"role": "user", "content": "a"}, refused, {"role": "user", "content": puzzle}]
    assert client.post(PATH, {"model": MODEL, "input": turns}).status_code == 200
    assert "No." in [message["content"] for message in backend.requests[0].messages]


@pytest.mark.parametrize("refusal", ["\ud800", 7])
def test_an_earlier_refusal_that_is_no_text_is_the_clients_mistake(client, backend, puzzle, refusal):
    refused = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": refusal}]}
    body = json.dumps({"model": MODEL, "input": [refused, {"role": "user", "content": puzzle}]})

    reply = client.request("POST", PATH, content=body, headers={"Content-Type": "application/json"})

    assert (reply.status_code, reply.json()["error"]["code"], backend.requests) == (400, "invalid_request", [])


def test_a_text_that_was_cut_is_incomplete(client, backend, puzzle):
    backend.finish_reason = "length"
    body = client.post(PATH, {"model": MODEL, "input": puzzle}).json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"logprobs": True}, "logprobs"),
        ({"n": 2}, "n"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ],
)
def test_what_cannot_be_honoured_is_refused(client, backend, puzzle, change, param):
    reply = client.post(PATH, {"model": MODEL, "input": puzzle, **change})
    assert (reply.status_code, reply.json()["error"]["param"], backend.requests) == (400, param, [])


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "function_call_output", "call_id": "x", "output": "y"},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
        {"content": "x"},
    ],
)
def test_what_is_no_text_is_refused(client, entry):
    reply = client.post(PATH, {"model": MODEL, "input": [entry]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_content")


def test_neutral_values_that_clients_send_are_taken(client, puzzle):
    neutral = {
        "tools": [{"type": "web_search"}],
        "tool_choice": "auto",
        "store": False,
        "truncation": "disabled",
        "include": [],
        "user": "me",
    }
    assert client.post(PATH, {"model": MODEL, "input": puzzle, **neutral}).status_code == 200


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
