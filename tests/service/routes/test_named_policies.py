"""Settings of one request: body > the model id's policy > the calibrated default."""

import pytest

from raydebm.errors import ConfigError, UnknownNameError
from raydebm.service.settings import AppArgs, load_bundle


@pytest.fixture
def bundle(write_run):
    policies = {
        "strict": {"theta_sigma": 0.25, "lambda": 3.0},
        "cheap": {"max_passes": 1, "num_samples": 1, "generators": ["bo"]},
    }
    return load_bundle(AppArgs(run_dir=write_run(), policies=policies))


def policy_of(client, puzzle, *, model="raydebm/knights_knaves", **body):
    sent = {"model": model, "messages": [{"role": "user", "content": puzzle}], "raydebm": body}
    reply = client.post("/v1/chat/completions", sent)
    assert reply.status_code == 200, reply.text
    return reply.json()["raydebm"]["policy"]


def test_the_model_id_names_a_policy(client, puzzle):
    policy = policy_of(client, puzzle, model="raydebm/knights_knaves@strict")
    assert (policy["theta_sigma"], policy["lambda"], policy["max_passes"]) == (0.25, 3.0, 2)


def test_the_body_goes_before_the_model_id(client, puzzle):
    policy = policy_of(client, puzzle, model="raydebm/knights_knaves@strict", theta_sigma=0.5)
    assert (policy["theta_sigma"], policy["lambda"]) == (0.5, 3.0)


def test_null_in_the_body_changes_nothing(client, puzzle):
    """Typed clients send absent fields so; a named policy keeps its limits."""
    policy = policy_of(
        client, puzzle, model="raydebm/knights_knaves@strict", theta_sigma=None, max_passes=None, **{"lambda": None}
    )
    assert (policy["theta_sigma"], policy["lambda"]) == (0.25, 3.0)


def test_a_policy_says_more_than_thresholds(client, puzzle, backend):
    policy_of(client, puzzle, policy="cheap")
    assert [request.generator for request in backend.requests] == ["bo"]


@pytest.mark.parametrize(
    ("policies", "error", "words"),
    [
        ({"a b": {}}, ConfigError, "must be letters"),
        ({"x": {"theta_sigma": 2.0}}, ConfigError, "policy 'x'.*theta_sigma"),
        ({"x": {"generators": ["eve"]}}, UnknownNameError, "eve"),
        ({"x": {"policy": "y"}}, ConfigError, "names another policy"),
    ],
)
def test_a_bad_named_policy_ends_the_start(write_run, policies, error, words):
    with pytest.raises(error, match=words):
        load_bundle(AppArgs(run_dir=write_run(), policies=policies))


def test_values_that_contradict_a_named_policy_are_refused(client, puzzle):
    reply = client.post("/v1/triage", {"problem": puzzle, "policy": "strict", "theta_abstain": 0.1})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "bad_override")
