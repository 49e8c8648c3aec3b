"""POST /v1/score, GET /health, and what surrounds every route."""

import asyncio
import time
from dataclasses import replace

import pytest
from hand_written_run import PUZZLE

from raydebm.errors import (
    ConfigError,
    MissingKeyError,
    ScoringError,
    ServiceError,
    TaskDataError,
    UnknownNameError,
    as_service_error,
)
from raydebm.service import access as guard
from raydebm.service.core import TriageService
from raydebm.service.routes.scoring import ScoreRequest, get_scores, within_deadline


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownNameError("task", "x", ["y"]), 404),
        (ConfigError("c"), 400),
        (MissingKeyError("g", "V"), 503),
        (TaskDataError("t"), 422),
        (ScoringError("s"), 503),
        (ServiceError("s", 418, "teapot"), 418),
    ],
)
def test_every_error_of_ours_has_an_http_meaning(error, status):
    service_error = as_service_error(error)
    assert service_error.status == status
    assert str(service_error) == str(error)


# ---- time and size of a request to score -----------------------------------------------------------------------------


def test_a_scorer_that_times_out_is_no_deadline_of_the_request(run_virtually):
    async def scored():
        raise TimeoutError("the scorer's own")

    with pytest.raises(TimeoutError, match="the scorer's own"):
        run_virtually(within_deadline(scored(), None, received=None))


@pytest.mark.parametrize(("own_ms", "most_s", "ended_s"), [(2000, 240.0, 2.0), (None, 3.0, 3.0), (9000, 3.0, 3.0)])
def test_scoring_has_a_deadline(backend, run_virtually, own_ms, most_s, ended_s, bundle_of, puzzle):
    backend.score = lambda texts: asyncio.sleep(10)
    service = TriageService(bundle_of(max_deadline_s=most_s), backend)
    request = ScoreRequest(problem=puzzle, candidates=["a"], deadline_ms=own_ms)

    async def work():
        with pytest.raises(ServiceError, match="were not scored within") as caught:
            await get_scores(service, request, request_id="r")
        return caught.value.status, caught.value.code, asyncio.get_running_loop().time()

    assert run_virtually(work()) == (504, "deadline_exceeded", ended_s)


def test_the_texts_of_a_request_are_limited_together(bundle_of, client_of, puzzle):
    size = 10 * (len(puzzle) + 10)
    limited = client_of(replace(bundle_of(), max_score_tokens=size // 4))
    body = {"problem": puzzle, "candidates": ["a" * 10] * 10}
    assert limited.post("/v1/score", body).status_code == 200
    reply = limited.post("/v1/score", {**body, "candidates": ["a" * 10] * 9 + ["a" * 14]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_many_tokens")
    assert f"about {size // 4 + 1} tokens; at most {size // 4}" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": PUZZLE, "documents": ["good", "bad"]}),
        ("/v1/score", {"problem": PUZZLE, "candidates": ["good", "bad"]}),
        ("/get_reward", {"query": ["good", "bad"], "prompts": [PUZZLE, f"{PUZZLE} 2"]}),
    ],
)
def test_the_time_before_the_route_counts_for_its_deadline(backend, client_of, monkeypatch, path, body, bundle_of):
    class Late:
        """The guard's clock: each request came an hour ago."""

        @staticmethod
        def perf_counter():
            return time.perf_counter() - 3600

    backend.score = lambda texts: asyncio.sleep(60)
    monkeypatch.setattr(guard, "time", Late)
    reply = client_of(bundle_of()).post(path, body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
