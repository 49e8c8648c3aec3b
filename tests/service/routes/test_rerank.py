"""POST /v1/rerank in the shapes of Cohere, Jina and vLLM."""

import asyncio
import time

import pytest

from raydebm.service import access as guard
from raydebm.service.core.triage import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle

ENERGY = {"good": (-3.0, -1.0), "fair": (-1.0, -1.0), "bad": (2.0, 2.0)}


@pytest.fixture
def rerank(client, script):
    script(energies=lambda text: ENERGY.get(text, (0.0, 0.0)))

    def ask(**body):
        return client.post("/v1/rerank", {"query": "which?", "documents": ["bad", "good", "fair"], **body})

    return ask


def test_objects_are_read_and_returned_with_their_other_fields(rerank):
    documents = [{"text": "bad"}, {"text": "good", "title": "T"}]
    body = rerank(documents=documents, return_documents=True, rank_fields=["text"], max_tokens_per_doc=9).json()
    assert [entry["document"] for entry in body["results"]] == [{"text": "good", "title": "T"}, {"text": "bad"}]


def test_equal_scores_keep_the_order_of_the_request(rerank):
    assert [entry["index"] for entry in rerank(documents=["a", "b", "c"]).json()["results"]] == [0, 1, 2]


def test_constraints_count_when_a_task_reads_the_query(client, puzzle, texts):
    body = {
        "query": puzzle,
        "documents": [texts["unreadable"], texts["wrong"], texts["right"]],
        "raydebm": {"lambda": 2},
    }
    reply = client.post("/v1/rerank", body).json()
    assert reply["task"] == "knights_knaves"
    assert [result["index"] for result in reply["results"]] == [2, 1, 0]
    assert [result["relevance_score"] for result in reply["results"]] == [2.0, 1.0, -1e6]
    assert reply["results"][1]["violations"][0]["constraint"]
    assert reply["results"][2]["energy"] is None


def test_a_document_is_scored_without_its_thinking_and_comes_back_with_it(rerank):
    body = rerank(documents=["fair", "<think>bad</think>good"], return_documents=True).json()
    assert [entry["document"]["text"] for entry in body["results"]] == ["<think>bad</think>good", "fair"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"model": "rerank-v3.5"}, 404, "model_not_found"),
        ({"model": "raydebm/knights_knaves"}, 422, "not_a_problem"),
        ({"documents": []}, 400, "invalid_request"),
        ({"top_n": 0}, 400, "invalid_request"),
        ({"documents": ["x" * 2001]}, 413, "text_too_long"),
        ({"query": "x" * 2001}, 413, "problem_too_long"),
        ({"documents": [{"image": "x"}]}, 400, "invalid_request"),
    ],
)
def test_bad_requests(rerank, changes, status, code):
    reply = rerank(**changes)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_the_request_that_coheres_client_sends(client, puzzle):
    """Recorded from ``cohere.ClientV2(...).rerank(...)``, version 7.3."""
    body = {"model": "raydebm/knights_knaves", "query": puzzle, "documents": ["a", "b"], "top_n": 2}
    headers = {"Authorization": "Bearer x", "X-Client-Name": "t", "X-Fern-Language": "Python"}
    reply = client.post("/v2/rerank", body, headers=headers).json()
    assert reply["id"].startswith("rerank-")
    assert reply["meta"]["api_version"]["version"] == "2"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": "which?", "documents": ["good", "bad"]}),
        ("/v1/score", {"text_1": "which?", "text_2": ["good", "bad"]}),
        ("/get_reward", {"query": ["good", "bad"], "prompts": ["which?", "what?"]}),
    ],
)
def test_the_time_before_the_route_counts_for_its_deadline(write_run, backend, client_of, monkeypatch, path, body):
    class Late:
        """The guard's clock: each request came an hour ago."""

        @staticmethod
        def perf_counter():
            return time.perf_counter() - 3600

    async def slow(texts):
        await asyncio.sleep(60)

    monkeypatch.setattr(backend, "score", slow)
    monkeypatch.setattr(guard, "time", Late)
    client = client_of(create_app(TriageService(load_bundle(AppArgs(run_dir=write_run())), backend)))
    reply = client.post(path, body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
