"""The deployments' own code behind real handles, in this process: Serve's local testing mode, no Ray."""

import asyncio
from dataclasses import replace

import pytest
from ray import serve

from raydebm.config import ModelBaseline
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.texts import TextToScore
from raydebm.service.ray.deployments import BaselineDeployment
from raydebm.service.ray.handles import HandleBackend
from raydebm.service.settings import AppArgs, load_bundle


@pytest.fixture(scope="module")
def live_backend(live_run, local_backend):
    return local_backend(load_bundle(AppArgs(run_dir=live_run)), "live")


def test_scores_are_the_ensembles_own(live_backend, live_run, client_of, puzzle, texts):
    scorer = EnsembleScorer.load(f"{live_run}/scorer", device="cpu", dtype="float32")
    direct = scorer.score([(puzzle, texts["right"])])[0]
    client = client_of(load_bundle(AppArgs(run_dir=live_run)), backend=live_backend)
    entry = client.post("/v1/score", {"problem": puzzle, "candidates": [texts["right"]]}).json()["data"][0]
    assert entry["members"] == pytest.approx(direct.members, abs=1e-5)
    assert entry["score"] == pytest.approx(-sum(direct.members) / 2, abs=1e-5)
    assert entry["num_tokens"] == direct.num_tokens


def test_a_request_for_a_generator_that_is_not_loaded_is_a_row_with_an_error(live_backend, bundle, context_of):
    requests = [replace(request, generator="eve") for request in context_of(bundle).requests(1, None)]
    candidates = asyncio.run(live_backend.generate(requests, lambda candidate: None, may_repeat=True))
    assert [candidate.candidate_id for candidate in candidates] == [request.candidate_id for request in requests]
    assert all("'eve' is not loaded; loaded: recorded, babbler" in candidate.error for candidate in candidates)


def test_a_reader_scores_in_its_own_deployment(live_run, tiny_models, puzzle, texts):
    reader = ModelBaseline(kind="reader", name="reader", model=str(tiny_models[1]))
    bound = serve.deployment(BaselineDeployment).bind((reader,), "runs/none")
    backend = HandleBackend(None, None, None, baselines=serve.run(bound, name="reader", _local_testing_mode=True))
    asked = [TextToScore(name, puzzle, text) for name, text in texts.items()]

    all_scores = asyncio.run(backend.baseline_scores(asked))

    assert [set(scores) for scores in all_scores] == [{"reader", "reader.logprob", "reader.worst"}] * len(texts)
    assert len({scores["reader"] for scores in all_scores}) > 1
