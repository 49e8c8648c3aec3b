"""The application on a real Ray Serve: official client, plain HTTP, batching, a killed replica."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from live_service import HEADERS, KEY
from upstream import MODELS

from raydebm.config import parse_recipe
from raydebm.errors import ResourceError
from raydebm.generators.requests import requests_for
from raydebm.run.directory import RunDir
from raydebm.service.ray.app import start_local
from raydebm.service.settings import AppArgs
from raydebm.tasks import get_task

pytestmark = [pytest.mark.ray, pytest.mark.slow]

MODEL = "raydebm/knights_knaves"
RECORDED = {"generators": ["recorded"]}


@pytest.fixture
def official(live_service):
    url = f"{live_service.url}/v1"
    return openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=240)


@pytest.fixture
def chat(official, puzzle):
    def create(*, stream=False, stream_options=None, **settings):
        messages, extra = [{"role": "user", "content": puzzle}], {"raydebm": {**RECORDED, **settings}}
        streamed = {"stream": True, "stream_options": stream_options} if stream else {}
        return official.chat.completions.create(model=MODEL, messages=messages, extra_body=extra, **streamed)

    return create


def test_health_names_the_generators_that_are_served(healthy):
    """All of the recipe's but one."""
    body = healthy()
    assert (body["status"], body["generators"]) == ("ok", ["recorded", *MODELS])


def test_the_service_draws_the_candidates_that_a_job_draws(live_service, puzzle):
    recipe = parse_recipe(RunDir(live_service.run_dir).read_json("recipe.json"))
    task = get_task("knights_knaves")
    problem = task.problem_from_text(puzzle)
    expected = requests_for(
        problem,
        task.messages(problem),
        generator="recorded",
        sampling=recipe.generation.sampling(max_tokens=64),
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
            url, body = f"{live_service.url}/v1/score", {"text_1": puzzle, "text_2": ["a", "b"]}
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


def test_progress_reaches_the_client_before_the_answer(live_service, puzzle):
    messages = [{"role": "user", "content": puzzle}]
    body = {"model": MODEL, "messages": messages, "stream": True, "raydebm": RECORDED}
    url = f"{live_service.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=HEADERS, timeout=240) as reply:
        lines = [line for line in reply.iter_lines() if line]
    first_data = next(index for index, line in enumerate(lines) if line.startswith("data:"))
    assert sum(line.startswith(": raydebm.progress") for line in lines[:first_data]) >= 5
    assert lines[-1] == "data: [DONE]"


def test_a_second_service_on_the_same_ray_is_refused(live_service, live_run, new_port):
    with pytest.raises(ResourceError, match="Serve is already running on this Ray"):
        start_local(AppArgs(run_dir=live_run), port=new_port())


def test_killing_a_scorer_replica_under_load_fails_no_request(local_ray, live_service, puzzle, healthy, eventually):
    """Six clients, each with answers before the replica is killed and with answers after it."""
    num_clients = 6
    statuses, stop = [[] for _ in range(num_clients)], threading.Event()

    def ask(codes):
        while not stop.is_set():
            codes.append(live_service.ask(puzzle).status_code)

    def wait_for_more():
        """Two more from each client: the first of them may have been on its way."""
        least = [len(codes) + 2 for codes in statuses]

        def came():
            assert not any(task.done() for task in running), [task.exception() for task in running if task.done()]
            return all(len(codes) >= wanted for codes, wanted in zip(statuses, least, strict=True))

        assert eventually(came), statuses

    def kill_one():
        names = [actor["name"] for actor in local_ray.util.list_named_actors(all_namespaces=True)]
        name = next(name for name in names if "ScorerDeployment#" in name)
        local_ray.kill(local_ray.get_actor(name, namespace="serve"), no_restart=True)

    with ThreadPoolExecutor(num_clients) as pool:
        running = [pool.submit(ask, codes) for codes in statuses]
        try:
            wait_for_more()
            kill_one()
            wait_for_more()
        finally:
            stop.set()
    assert {status for codes in statuses for status in codes} == {200}
    assert healthy()["scorer"]["calls"] > 0
