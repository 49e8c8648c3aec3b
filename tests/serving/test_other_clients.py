"""Clients that teams have already: LiteLLM, curl. What they send is recorded; they run themselves where installed."""

import shutil
import subprocess

import pytest

LITELLM_RERANK = {
    "model": "raydebm/auto",
    "query": "q",
    "top_n": 1,
    "documents": ["aa", "b"],
    "return_documents": True,
}
"""What LiteLLM 1.106 sends for ``litellm.rerank(..., top_n=1)``, whatever the provider."""
PROVIDERS = {"cohere": "/v2/rerank", "hosted_vllm": "/rerank", "jina_ai": "/v1/rerank"}
"""The path that it uses for each provider's name."""


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_rerank_request_that_litellm_sends(client, script, provider):
    script(energies=lambda text: (-float(len(text)),))
    headers = {"User-Agent": "litellm/1.106.2", "Authorization": "Bearer x"}
    found = client.post(PROVIDERS[provider], LITELLM_RERANK, headers=headers).json()
    assert [(one["index"], one["relevance_score"], one["document"]) for one in found["results"]] == [
        (0, 2.0, {"text": "aa"})
    ]


def test_the_chat_request_that_litellm_sends(client, puzzle, texts):
    body = {"messages": [{"role": "user", "content": puzzle}], "model": "raydebm/auto", "raydebm": {"max_passes": 1}}
    headers = {"Authorization": "Bearer x", "X-Stainless-Raw-Response": "true", "x-stainless-retry-count": "0"}
    found = client.post("/v1/chat/completions", body, headers=headers).json()
    assert found["choices"][0]["message"]["content"] == texts["right"]


@pytest.fixture
def url(app, free_port, listening):
    with listening(app, free_port) as address:
        yield address


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellms_own_rerank(url, script, monkeypatch, provider):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    script(energies=lambda text: (-float(len(text)),))
    base = f"{url}/v1/rerank" if provider == "jina_ai" else url
    model = f"{provider}/raydebm/auto"
    found = litellm.rerank(model=model, api_base=base, api_key="x", query="q", documents=["b", "aa"], top_n=1)
    assert (found.results[0]["index"], found.results[0]["relevance_score"]) == (1, 2.0)


def test_litellms_own_chat(url, puzzle, texts, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    asked = {"model": "openai/raydebm/auto", "api_base": f"{url}/v1", "api_key": "x"}
    messages = [{"role": "user", "content": puzzle}]
    assert litellm.completion(**asked, messages=messages).choices[0].message.content == texts["right"]
    chunks = litellm.completion(**asked, messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == texts["right"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sees_a_stream_as_it_comes(url, puzzle, texts, read_events):
    body = '{"model": "raydebm/auto", "stream": true, "messages": [{"role": "user", "content": "PUZZLE"}]}'
    sent = body.replace("PUZZLE", puzzle.replace('"', '\\"'))
    command = ["curl", "-sN", "--max-time", "120", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, "-d", sent], capture_output=True, text=True, timeout=180, check=True)
    events = read_events(done.stdout)
    assert events[0][0] == "comment"
    assert events[-1] == (None, "[DONE]")
