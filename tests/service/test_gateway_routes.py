"""Several tasks behind one address, over HTTP."""

import pytest
from hand_written_run import chat_body
from two_runs import QUESTION

from raydebm.service.settings import load_gateway


@pytest.fixture
def gateway(two_runs):
    return load_gateway(two_runs(policies={"strict": {"theta_sigma": 0.1}}))


@pytest.fixture
def service(gateway, client_of):
    return client_of(gateway)


def test_every_task_and_every_named_policy_is_a_model(service):
    ids = [model["id"] for model in service.get("/v1/models").json()["data"]]
    names = ["knights_knaves", "gsm8k"]
    assert ids == [f"raydebm/{name}{policy}" for policy in ("", "@strict") for name in names]


def test_a_model_has_the_versions_of_its_own_run(service, gateway):
    model = service.get("/v1/models/raydebm/gsm8k").json()["raydebm"]
    assert model["versions"]["checkpoint"] == gateway.of("gsm8k").versions["checkpoint"]
    assert model["versions"]["checkpoint"] != gateway.versions["checkpoint"]


def test_a_request_names_its_task_where_several_are_served(service, puzzle):
    reply = service.post("/v1/triage", {"problem": puzzle})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "missing_task")
    assert "knights_knaves, gsm8k" in reply.json()["error"]["message"]


def test_a_question_is_decided_by_its_own_runs_policy_generators_and_adapters(service, script, gateway):
    backend = script(lambda request: "#### 84")
    body = service.post("/v1/triage", {"problem": QUESTION, "task": "gsm8k"}).json()
    assert (body["task"], body["answer"], body["policy"]["theta_sigma"]) == ("gsm8k", "#### 84", 0.5)
    assert [generator["name"] for generator in body["generators"]] == ["ada"]
    assert {bundle.checkpoint for bundle in backend.served} == {gateway.of("gsm8k").checkpoint}


def test_a_named_policy_holds_for_every_task(service, script):
    script(lambda request: "#### 84")
    chat = chat_body(QUESTION, model="raydebm/gsm8k@strict")
    body = service.post("/v1/chat/completions", chat).json()["raydebm"]
    assert body["policy"]["theta_sigma"] == 0.1


def test_options_and_health_name_every_run(service, gateway):
    options, health = service.get("/v1/options").json(), service.get("/health").json()
    assert options["generators_of"] == {"knights_knaves": ["ada", "bo"], "gsm8k": ["ada"]}
    assert list(options["policies"]) == health["tasks"] == ["knights_knaves", "gsm8k"]
    assert health["runs"]["gsm8k"] == gateway.of("gsm8k").versions
