"""A guarantee holds for decisions that are made as the labelled ones were; for others the answer says why not."""

import asyncio
from dataclasses import replace

import pytest
from hand_written_run import chat_body, priced

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.service.core import TriageService

VOTES = Posterior(weights={"votes": 1.0}, context_weights={})

GUARANTEE = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500}
GUARANTEED = Policy(max_passes=2, num_regenerate=2, guarantee=GUARANTEE)
"""Pass 1 has two candidates of each of the two generators, so both passes have six at most."""


@pytest.fixture
def ask(bundle_of, puzzle, client_of):
    """Asks a service with these arguments, or this one; returns whether the guarantee is claimed, and why not."""

    def post(body=None, *, path="/v1/triage", bundle=None, **args):
        client = client_of(bundle or bundle_of(policy=GUARANTEED, **args))
        reply = client.post(path, {"problem": puzzle, **(body or {})} if path == "/v1/triage" else body)
        assert reply.status_code == 200, reply.text
        answer = reply.json()
        guarantee = answer.get("raydebm", answer)["guarantee"]
        assert (guarantee["max_error"], guarantee["suspended"]) == (0.1, False)
        return guarantee["certified"], guarantee["reason"]

    return post


@pytest.mark.parametrize("body", [{}, {"seed": 7}, {"return_candidates": True}, {"generators": ["ada", "bo"]}], ids=str)
def test_a_request_that_samples_as_calibration_did_has_the_guarantee(ask, body):
    assert ask(body) == (True, None)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({"num_samples": 1}, "num_samples"),
        ({"generators": ["ada"]}, "generators"),
        ({"num_samples": 1, "generators": ["bo"], "seed": 7}, "generators, num_samples"),
    ],
    ids=str,
)
def test_a_request_for_other_candidates_loses_it(ask, body, changed):
    assert ask(body) == (False, f"the request changed {changed}")


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"temperature": 0.1}, "temperature"),
        ({"max_tokens": 20, "top_p": 0.5}, "max_tokens, top_p"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
    ids=str,
)
def test_a_chat_that_is_sampled_otherwise_loses_it(ask, puzzle, settings, changed):
    body = chat_body(puzzle, **settings)

    assert ask(body, path="/v1/chat/completions") == (False, f"the request changed {changed}")


def test_a_service_of_some_of_the_generators_does_not_claim_it(ask):
    assert ask(generators=("ada",)) == (False, "the service does not ask bo, which calibration did")


def test_a_policy_that_was_calibrated_with_another_scorer_does_not_claim_it(ask, bundle_of):
    def bundle(checkpoint):
        posterior = replace(VOTES, checkpoint=checkpoint)
        return bundle_of(policy=GUARANTEED.replaced(rule="posterior", posterior=posterior))

    own = bundle_of(policy=GUARANTEED).versions["checkpoint"]
    reason = f"checkpoint {own} scores, and the policy was calibrated with another"

    assert ask(bundle=bundle(own)) == (True, None)
    assert ask(bundle=bundle("another")) == (False, reason)


def test_a_ceiling_of_candidates_voids_it_where_it_can_bind(ask):
    reason = "a ceiling of the service allows 5 candidates, and all passes may sample 6"

    assert ask(limits={"request": {"candidates": 5}}) == (False, reason)
    assert ask(limits={"request": {"candidates": 6}}) == (True, None)


@pytest.mark.parametrize("request_limits", [{"candidates": 64}, {"usd": 5.0}])
def test_a_ceiling_leaves_a_decision_among_those_of_the_guaranteed_policy(
    recipe, backend, context_of, request_limits, bundle_of
):
    prices = {"usd_per_million_tokens": (0.0, 1.0)}
    bundle = bundle_of(priced(recipe, prices), policy=GUARANTEED, limits={"request": request_limits})

    record = asyncio.run(TriageService(bundle, backend).triage(context_of(bundle))).record

    assert record.policy.guarantee["certified"]
    assert list(bundle.answering) == [policy_id(record.policy)]


def test_a_decision_without_the_evidence_of_a_baseline_has_no_guarantee(recipe, backend, ask, bundle_of):
    reader = {"kind": "reader", "name": "reader", "model": "m", "evidence": True}
    bundle = bundle_of({**recipe, "baselines": [reader]}, policy=GUARANTEED)

    async def works(texts):
        return [{"reader": 1.0} for _ in texts]

    async def is_broken(texts):
        raise RuntimeError("out of memory")

    backend.baseline_scores = works
    assert ask(bundle=bundle) == (True, None)
    backend.baseline_scores = is_broken
    assert ask(bundle=bundle) == (False, "baselines that are evidence did not work")
