"""POST /v1/rerank in the shapes of Cohere, Jina and vLLM."""

import asyncio
import time

import pytest

from raydebm.service import access as guard


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": "which?", "documents": ["good", "bad"]}),
        ("/v1/score", {"text_1": "which?", "text_2": ["good", "bad"]}),
        ("/get_reward", {"query": ["good", "bad"], "prompts": ["which?", "what?"]}),
    ],
)
def test_the_time_before_the_route_counts_for_its_deadline(backend, client_of, monkeypatch, path, body, bundle_of):
    class Late:
        """The guard's clock: each request came an hour ago."""

        @staticmethod
        def perf_counter():
            return time.perf_counter() - 3600

    async def slow(texts):
        await asyncio.sleep(60)

    monkeypatch.setattr(backend, "score", slow)
    monkeypatch.setattr(guard, "time", Late)
    client = client_of(bundle_of())
    reply = client.post(path, body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
