"""The deployments' own code behind real handles, in this process: Serve's local testing mode, no Ray."""

import asyncio

import httpx
import pytest
from ray import serve

from raydebm.config import ModelBaseline
from raydebm.generators.requests import requests_for
from raydebm.records import Sampling
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.texts import TextToScore
from raydebm.service.core import TriageService
from raydebm.service.ray.deployments import (
    BaselineDeployment,
    ConstraintDeployment,
    GeneratorDeployment,
    ScorerDeployment,
)
from raydebm.service.ray.handles import HandleBackend
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.tasks import get_task


def local(kind, *args):
    return serve.run(serve.deployment(kind).bind(*args), name=kind.__name__, _local_testing_mode=True)


@pytest.fixture(scope="module")
def live_backend(live_run):
    bundle = load_bundle(AppArgs(run_dir=live_run))
    return HandleBackend(
        local(GeneratorDeployment, bundle.generator_configs(), live_run),
        # Serve's batching needs a replica; the batched work itself does not.
        local(ScorerDeployment, bundle.checkpoint, "cpu", "float32"),
        local(ConstraintDeployment),
    )


@pytest.fixture
def live_client(live_run, live_backend):
    app = create_app(TriageService(load_bundle(AppArgs(run_dir=live_run)), live_backend))

    def post(path, body):
        async def send():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
                return await client.post(path, json=body)

        return asyncio.run(send())

    return post


def test_scores_are_the_ensembles_own(live_client, live_run, puzzle, texts):
    scorer = EnsembleScorer.load(f"{live_run}/scorer", device="cpu", dtype="float32")
    direct = scorer.score([(puzzle, texts["right"])])[0]
    entry = live_client("/v1/score", {"problem": puzzle, "candidates": [texts["right"]]}).json()["data"][0]
    assert entry["members"] == pytest.approx(direct.members, abs=1e-5)
    assert entry["score"] == pytest.approx(-sum(direct.members) / 2, abs=1e-5)
    assert entry["num_tokens"] == direct.num_tokens


def test_a_request_for_a_generator_that_is_not_loaded_is_a_row_with_an_error(live_backend, puzzle):
    task = get_task("knights_knaves")
    problem = task.problem_from_text(puzzle)
    requests = requests_for(
        problem, task.messages(problem), generator="eve", sampling=Sampling(), samples=range(2), run_seed=0
    )
    candidates = asyncio.run(live_backend.generate(requests, lambda candidate: None, may_repeat=True))
    assert [candidate.candidate_id for candidate in candidates] == [request.candidate_id for request in requests]
    assert all("'eve' is not loaded; loaded: recorded, babbler" in candidate.error for candidate in candidates)


def test_a_reader_scores_in_its_own_deployment(live_run, tiny_models, puzzle, texts):
    reader = ModelBaseline(kind="reader", name="reader", model=str(tiny_models[1]))
    backend = HandleBackend(None, None, None, baselines=local(BaselineDeployment, (reader,), "runs/none"))
    asked = [TextToScore(name, puzzle, text) for name, text in texts.items()]

    all_scores = asyncio.run(backend.baseline_scores(asked))

    assert [set(scores) for scores in all_scores] == [{"reader", "reader.logprob", "reader.worst"}] * len(texts)
    assert len({scores["reader"] for scores in all_scores}) > 1
