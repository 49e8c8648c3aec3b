"""Whatever JSON a client sends, the answer is never a 5xx and errors have OpenAI's form.

But for 504, which is no failure: a client may ask for a decision within a millisecond.
"""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raydebm.service.routes.bodies import TriageRequest
from raydebm.service.settings import MAX_DEPTH
from raydebm.tasks import get_task

SURROGATE = "\ud800"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(SURROGATE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.integers(-2, 10) | st.floats(-2, 10) | st.just(1e308)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "x"])},
        optional={"content": st.sampled_from(["PUZZLE", SURROGATE, None, [{"type": "text", "text": "PUZZLE"}]]) | JSON},
    ),
    max_size=2,
)
OVERRIDES = {
    **dict.fromkeys(["max_passes", "num_samples", "budget", "deadline_ms"], NUMBERS),
    **dict.fromkeys(["lambda", "theta_sigma", "theta_abstain", "max_usd"], NUMBERS | JSON),
    "generators": st.lists(st.sampled_from(["ada", "bo", "eve", SURROGATE]), max_size=2) | JSON,
    "seed": st.integers(-(2**70), 2**70),
    "stream": st.booleans() | JSON,
    "task": st.sampled_from(["knights_knaves", "gsm8k", SURROGATE]) | JSON,
}
PROBLEM = {
    "prompt": st.sampled_from(["PUZZLE", "x", ""]) | JSON,
    "data": JSON | st.fixed_dictionaries({"names": JSON, "roles": JSON, "statements": JSON}),
}
PROBLEMS = st.just("PUZZLE") | st.fixed_dictionaries({}, optional=PROBLEM) | JSON
TRIAGE = st.fixed_dictionaries({}, optional={"problem": PROBLEMS, **OVERRIDES})
CHAT = st.fixed_dictionaries(
    {"model": st.sampled_from(["raydebm/knights_knaves", SURROGATE]), "messages": MESSAGES},
    optional={
        "raydebm": st.fixed_dictionaries({}, optional=OVERRIDES) | JSON,
        "stream": st.booleans() | JSON,
        "temperature": NUMBERS,
        **dict.fromkeys(["stop", "n", "tools"], JSON),
    },
)
CANDIDATES = st.lists(st.text(max_size=5) | st.just(SURROGATE), max_size=3) | JSON
SCORE = st.fixed_dictionaries({}, optional={"problem": PROBLEMS, "candidates": CANDIDATES, "lambda": NUMBERS})
BODIES = (
    st.tuples(st.just("/v1/triage"), TRIAGE)
    | st.tuples(st.just("/v1/chat/completions"), CHAT)
    | st.tuples(st.just("/v1/score"), SCORE)
    | st.tuples(st.sampled_from(["/v1/triage", "/v1/chat/completions", "/v1/score"]), JSON)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(BODIES)
def test_no_input_is_a_server_error(client, puzzle, body):
    path, value = body
    text = json.dumps(value).replace('"PUZZLE"', json.dumps(puzzle))
    reply = client.request("POST", path, content=text, headers={"Content-Type": "application/json"})
    assert reply.status_code < 500 or reply.status_code == 504, reply.text
    if reply.status_code != 200:
        assert set(reply.json()["error"]) == {"message", "type", "code", "param"}


def nested(depth):
    tree = []
    for _ in range(depth):
        tree = [tree]
    return tree


@pytest.mark.parametrize("depth", [MAX_DEPTH, 300, 5000])
def test_data_that_is_nested_too_deeply_is_refused(depth):
    with pytest.raises(ValidationError, match="is nested more than 64 deep"):
        TriageRequest.model_validate({"problem": {"prompt": "p", "data": {"x": nested(depth)}}})


@pytest.mark.parametrize("extra", ['"\\ud800"', "NaN", "[" * 300 + "]" * 300])
def test_fields_of_a_document_that_cannot_be_given_back_are_refused(client, puzzle, extra):
    body = f'{{"query": {json.dumps(puzzle)}, "documents": [{{"text": "a", "x": {extra}}}], "return_documents": true}}'
    reply = client.request("POST", "/v1/rerank", content=body, headers={"Content-Type": "application/json"})

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


def test_what_a_task_finds_nested_too_deeply_is_no_problem(client, puzzle, monkeypatch):
    def problem_from_text(self, text):
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(type(get_task("knights_knaves")), "problem_from_text", problem_from_text)
    reply = client.post("/v1/triage", {"problem": puzzle})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "not_a_problem")
