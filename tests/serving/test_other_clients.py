"""Clients that teams have already: LiteLLM, Cohere, curl. What they send is recorded; they run themselves where
installed (`pip install litellm cohere`): the package does not need them, so it does not ask for them."""

import shutil
import subprocess

import pytest

PROVIDERS = {"cohere": "/v2/rerank", "jina_ai": "/v1/rerank"}
"""The path that it uses for each provider's name."""


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_rerank_request_that_litellm_sends(client, script, puzzle, texts, provider):
    """What LiteLLM 1.106 sends for ``litellm.rerank(..., top_n=1)``, whatever the provider."""
    right, wrong = texts["right"], texts["wrong"]
    script(energies=lambda text: (-2.0,) if text == right else (1.0,))
    body = {
        "model": "raydebm/knights_knaves",
        "query": puzzle,
        "top_n": 1,
        "documents": [right, wrong],
        "return_documents": True,
    }
    headers = {"User-Agent": "litellm/1.106.2", "Authorization": "Bearer x"}
    reply = client.post(PROVIDERS[provider], body, headers=headers).json()
    assert [(one["index"], one["relevance_score"], one["document"]) for one in reply["results"]] == [
        (0, 2.0, {"text": right})
    ]


def test_the_chat_request_that_litellm_sends(client, puzzle, texts):
    body = {
        "messages": [{"role": "user", "content": puzzle}],
        "model": "raydebm/knights_knaves",
        "raydebm": {"max_passes": 1},
    }
    headers = {"Authorization": "Bearer x", "X-Stainless-Raw-Response": "true", "x-stainless-retry-count": "0"}
    reply = client.post("/v1/chat/completions", body, headers=headers).json()
    assert reply["choices"][0]["message"]["content"] == texts["right"]


@pytest.fixture
def url(app, free_port, listening):
    with listening(app, free_port) as address:
        yield address


@pytest.fixture
def litellm(monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks another host for prices on import
    return pytest.importorskip("litellm", reason="LiteLLM is not installed: pip install litellm")


@pytest.fixture
def cohere():
    return pytest.importorskip("cohere", reason="Cohere's client is not installed: pip install cohere")


@pytest.fixture
def asked(url, puzzle):
    """What every call of ``litellm.completion`` has here."""
    messages = [{"role": "user", "content": puzzle}]
    return {"model": "openai/raydebm/knights_knaves", "api_base": f"{url}/v1", "api_key": "x", "messages": messages}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellms_own_rerank(url, script, litellm, provider):
    script(energies=lambda text: (-float(len(text)),))
    base = f"{url}/v1/rerank" if provider == "jina_ai" else url
    model = f"{provider}/raydebm/knights_knaves"
    reply = litellm.rerank(model=model, api_base=base, api_key="x", query="q", documents=["b", "aa"], top_n=1)
    assert (reply.results[0]["index"], reply.results[0]["relevance_score"]) == (1, 2.0)


def test_litellms_own_chat(litellm, asked, texts):
    reply = litellm.completion(**asked)
    assert (reply.choices[0].message.content, reply.raydebm["decision"]) == (texts["right"], "accept")


def test_litellms_own_stream(litellm, asked, texts):
    chunks = litellm.completion(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == texts["right"]


def test_litellm_counts_what_a_stream_used(litellm, asked):
    """Two generators write two candidates each, of 10 + 5 tokens."""
    chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.total_tokens == 60


def test_litellm_hands_on_fields_of_our_own(litellm, asked):
    """Two generators, one candidate each."""
    body = {"raydebm": {"num_samples": 1, "return_candidates": True}}
    assert len(litellm.completion(**asked, extra_body=body).raydebm["candidates"]) == 2


def test_litellm_shows_an_abstention_as_a_refusal(litellm, asked, script, energies):
    script(energies=lambda text: energies["unsure"])
    message = litellm.completion(**asked).choices[0].message
    assert message.content is None
    assert "sigma 2 of the selected candidate is above theta_abstain" in message.provider_specific_fields["refusal"]


@pytest.mark.parametrize("name", ["Client", "ClientV2"])
def test_coheres_own_rerank(url, script, cohere, name, puzzle, texts):
    """Both generations of the client, over HTTP; mu is -2, and the wrong answer has a penalty of 0.5."""
    script(energies=lambda text: (-2.0,))
    client = getattr(cohere, name)(api_key="x", base_url=url)
    documents = [texts["unreadable"], texts["wrong"], texts["right"]]
    reply = client.rerank(model="raydebm/knights_knaves", query=puzzle, documents=documents, top_n=2)
    assert [(one.index, one.relevance_score) for one in reply.results] == [(2, 2.0), (1, 1.5)]


def test_coheres_client_reads_our_errors(url, cohere):
    client = cohere.ClientV2(api_key="x", base_url=url)
    with pytest.raises(cohere.NotFoundError, match="model_not_found"):
        client.rerank(model="nothing", query="q", documents=["b"])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sees_a_stream_as_it_comes(url, puzzle, texts, read_events):
    body = '{"model": "raydebm/knights_knaves", "stream": true, "messages": [{"role": "user", "content": "PUZZLE"}]}'
    sent = body.replace("PUZZLE", puzzle.replace('"', '\\"'))
    command = ["curl", "-sN", "--max-time", "120", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, "-d", sent], capture_output=True, text=True, timeout=180, check=True)
    events = read_events(done.stdout)
    assert events[0][0] == "comment"
    assert events[-1] == (None, "[DONE]")
