"""Settings of one request: header > body > the model id's policy > the calibrated default."""

import pytest

from raydebm.errors import ConfigError, UnknownNameError
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle


@pytest.fixture
def bundle(write_run):
    policies = {
        "strict": {"theta_sigma": 0.25, "lambda": 3.0},
        "cheap": {"max_passes": 1, "num_samples": 1, "generators": ["bo"]},
    }
    return load_bundle(AppArgs(run_dir=write_run(), policies=policies))


def policy_of(client, puzzle, *, model="raydebm/knights_knaves", headers=None, **body):
    sent = {"model": model, "messages": [{"role": "user", "content": puzzle}], "raydebm": body}
    reply = client.post("/v1/chat/completions", sent, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()["raydebm"]["policy"]


def test_the_default_is_the_calibrated_policy(client, puzzle):
    assert policy_of(client, puzzle)["theta_sigma"] == 0.8


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


def test_a_header_goes_before_the_body(client, puzzle):
    headers = {"X-RayDEBM-Theta-Sigma": "0.1", "X-RayDEBM-Lambda": "2"}
    policy = policy_of(client, puzzle, model="raydebm/knights_knaves@strict", theta_sigma=0.5, headers=headers)
    assert (policy["theta_sigma"], policy["lambda"]) == (0.1, 2.0)


def test_a_policy_says_more_than_thresholds(client, puzzle, backend):
    policy_of(client, puzzle, headers={"X-RayDEBM-Policy": "cheap"})
    assert [request.generator for request in backend.requests] == ["bo"]


def test_the_triage_route_takes_the_same_headers(client, puzzle, backend):
    headers = {"x-raydebm-generators": "bo, ada", "x-raydebm-num-samples": "1", "x-raydebm-return-candidates": "true"}
    answer = client.post("/v1/triage", {"problem": puzzle}, headers=headers).json()
    assert [candidate["generator"] for candidate in answer["candidates"]] == ["ada", "bo"]


def test_on_abstain_by_header(client, puzzle, script, energies):
    script(energies=lambda text: energies["unsure"])
    body = {"model": "raydebm/knights_knaves", "messages": [{"role": "user", "content": puzzle}]}
    reply = client.post("/v1/chat/completions", body, headers={"X-RayDEBM-On-Abstain": "error"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "abstained")


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ({"X-RayDEBM-Theta-Sigma": "much"}, 400, "x-raydebm-theta-sigma"),
        ({"X-RayDEBM-Lamda": "1"}, 400, "x-raydebm-lamda"),
        ({"X-RayDEBM-Max-Passes": "1000"}, 400, "x-raydebm-max-passes"),
        ({"X-RayDEBM-Policy": "lax"}, 404, "policy"),
    ],
)
def test_bad_headers_are_named(client, puzzle, headers, status, param):
    reply = client.post("/v1/triage", {"problem": puzzle}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)


def test_models_are_listed_with_their_policies(client):
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [
        "raydebm/knights_knaves",
        "raydebm/knights_knaves@strict",
        "raydebm/knights_knaves@cheap",
    ]


def test_one_model_can_be_asked_for(client):
    model = client.get("/v1/models/raydebm/knights_knaves@strict").json()
    assert (model["id"], model["raydebm"]["policy"], model["raydebm"]["tasks"]) == (
        "raydebm/knights_knaves@strict",
        "strict",
        ["knights_knaves"],
    )
    reply = client.get("/v1/models/raydebm/knights_knaves@lax")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


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
