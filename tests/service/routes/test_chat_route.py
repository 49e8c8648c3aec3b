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


def test_a_text_that_was_cut_says_so(ask, backend, chunks_of):
    backend.finish_reason = "length"
    assert ask().json()["choices"][0]["finish_reason"] == "length"
    assert chunks_of(ask(stream=True).text)[-1]["choices"][0]["finish_reason"] == "length"


def test_a_refusal_is_whole_also_where_the_candidate_was_cut(ask, backend, energies, script):
    script(energies=lambda text: energies["unsure"])
    backend.finish_reason = "length"
    assert ask().json()["choices"][0]["finish_reason"] == "stop"
    assert ask(raydebm={"on_abstain": "best"}).json()["choices"][0]["finish_reason"] == "length"


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


@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"model": "raydebm/gms8k"}, 404, "model_not_found", "model"),
        ({"raydebm": {"task": "gsm8k"}}, 400, "invalid_request", "raydebm.task"),
        ({"num_samples": 4}, 400, "misplaced_parameter", "num_samples"),
        ({"tool_choice": "required"}, 400, "unsupported_parameter", "tool_choice"),
        ({"function_call": {"name": "f"}}, 400, "unsupported_parameter", "function_call"),
        ({"response_format": {"type": "xml"}}, 400, "invalid_request", "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, 400, "invalid_request", "response_format"),
        ({"raydebm": {"lamda": 1}}, 400, "invalid_request", "raydebm.lamda"),
        ({"raydebm": {"theta_abstain": 0.1}}, 400, "bad_override", None),
    ],
)
def test_bad_requests_come_back_in_openais_error_form(ask, changes, status, code, param):
    reply = ask(**changes)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}])
def test_tools_that_are_offered_are_not_called(ask, choice):
    """Chat applications offer theirs with every question."""
    clock = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    choices = ask(tools=[clock], **choice).json()["choices"]
    assert [(each["finish_reason"], "tool_calls" in each["message"]) for each in choices] == [("stop", False)]


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
