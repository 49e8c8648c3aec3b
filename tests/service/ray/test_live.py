"""The application on a real Ray Serve: its candidates, its batches, and a second service beside it."""

import asyncio

import httpx
import pytest
from live_service import HEADERS

from raydebm.config import parse_recipe
from raydebm.errors import ResourceError
from raydebm.generators.requests import requests_for
from raydebm.records import Sampling
from raydebm.run.directory import RunDir
from raydebm.service.ray.app import start_local
from raydebm.service.settings import AppArgs
from raydebm.tasks import get_task

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_the_service_draws_the_candidates_that_a_job_draws(live_service, puzzle):
    recipe = parse_recipe(RunDir(live_service.run_dir).read_json("recipe.json"))
    task = get_task("knights_knaves")
    problem = task.problem_from_text(puzzle)
    expected = requests_for(
        problem,
        task.messages(problem),
        generator="recorded",
        sampling=Sampling(temperature=recipe.generation.temperature, top_p=recipe.generation.top_p, max_tokens=64),
        samples=range(2),
        run_seed=recipe.seed,
    )
    answer = live_service.ask(puzzle, return_candidates=True).json()
    drawn = [candidate["candidate_id"] for candidate in answer["candidates"] if candidate["pass_index"] == 1]
    assert drawn == [request.candidate_id for request in expected]


def test_concurrent_requests_are_scored_in_fewer_batches(live_service, puzzle, healthy):
    """Which of them meet in the scorer is chance, and rare where they come slowly: so they are asked until some do."""

    async def ask_together(count):
        async with httpx.AsyncClient(timeout=240, headers=HEADERS) as client:
            url, body = f"{live_service.url}/v1/score", {"problem": puzzle, "candidates": ["a", "b"]}
            return await asyncio.gather(*(client.post(url, json=body) for _ in range(count)))

    for _ in range(20):
        before = healthy()["scorer"]
        replies = asyncio.run(ask_together(24))
        after = healthy()["scorer"]
        assert {reply.status_code for reply in replies} == {200}
        assert after["calls"] - before["calls"] == 24
        members = [reply.json()["data"][1]["members"] for reply in replies]
        assert all(energies == pytest.approx(members[0], abs=1e-4) for energies in members)
        if after["batches"] - before["batches"] < 24:
            return
    pytest.fail("no two requests were ever scored together")


def test_a_second_service_on_the_same_ray_is_refused(live_service, live_run, new_port):
    with pytest.raises(ResourceError, match="Serve is already running on this Ray"):
        start_local(AppArgs(run_dir=live_run), port=new_port())
