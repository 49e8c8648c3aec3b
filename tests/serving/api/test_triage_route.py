"""POST /v1/triage over the hand-written backend: real task, real checks, real loop."""

import pytest

from raydebm.identity import seed_for
from raydebm.serving.api.request_bodies import ProblemBody, TriageRequest
from raydebm.tasks import get_task

VIOLATION = 'Zoey said "Ava is a knave". With your answer that is true, but your answer makes Zoey a knave.'


def test_usage_and_cost_are_summed_over_all_candidates(client, puzzle):
    answer = client.post("/v1/triage", {"problem": puzzle}).json()
    assert answer["usage"] == {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}
    assert answer["cost_usd"] == 2.0
    assert [(generator["name"], generator["asked"], generator["failed"]) for generator in answer["generators"]] == [
        ("ada", 2, 0),
        ("bo", 2, 0),
    ]


def test_an_answer_that_cannot_be_read_was_not_checked(client, puzzle, texts, script):
    script(lambda request: texts["unreadable"])
    assert client.post("/v1/triage", {"problem": puzzle}).json()["checks"] == []


def test_a_second_pass_asks_the_regenerating_generator_alone(client, puzzle, texts, script):
    backend = script(lambda request: texts["wrong"])
    client.post("/v1/triage", {"problem": puzzle})
    assert [request.generator for request in backend.requests if request.pass_index == 2] == ["ada", "ada"]


def test_the_same_seeds_as_evaluation(client, puzzle, backend):
    client.post("/v1/triage", {"problem": puzzle})
    problem_id = get_task("knights_knaves").problem_from_text(puzzle).problem_id
    assert [request.seed for request in backend.requests] == [
        seed_for(7, problem_id, name, 1, index) for name in ("ada", "bo") for index in range(2)
    ]


def test_another_seed_draws_other_candidates(client, puzzle, backend):
    client.post("/v1/triage", {"problem": puzzle})
    client.post("/v1/triage", {"problem": puzzle, "seed": 8})
    ids = [request.candidate_id for request in backend.requests]
    assert len(set(ids)) == 8


def test_a_failing_generator_is_named_and_not_fatal(client, puzzle, texts, script):
    script(lambda request: None if request.generator == "ada" else texts["right"])
    answer = client.post("/v1/triage", {"problem": puzzle}).json()
    assert answer["decision"] == "accept"
    assert answer["generators"][0].items() >= {"name": "ada", "asked": 2, "failed": 2, "error": "HTTP 500"}.items()


@pytest.mark.parametrize("too_long", [True, False])
def test_a_failure_that_was_paid_for_is_not_asked_for_again(client, puzzle, script, too_long):
    """Every text is longer than the service takes, billed and useless; where nothing was billed, a retry may help."""
    script(lambda request: "x" * 2001 if too_long else None)
    reply = client.post("/v1/triage", {"problem": puzzle})

    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "generation_failed")
    assert ("retry-after" in reply.headers, reply.headers.get("x-should-retry")) == (
        (False, "false") if too_long else (True, None)
    )


def raises(self, problem, answer):
    raise ZeroDivisionError("of a plug-in")


def test_where_every_check_raises_nothing_more_is_paid_and_nothing_decided(
    client, puzzle, texts, script, monkeypatch, caplog
):
    backend = script(lambda request: texts["right"])
    monkeypatch.setattr(type(get_task("knights_knaves")), "vote_key", raises)
    reply = client.post("/v1/triage", {"problem": puzzle, "max_passes": 3})

    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "check_failed")
    assert "ZeroDivisionError" in reply.json()["error"]["message"]
    assert len(backend.requests) == 4
    reasons = [record.facts["reason"] for record in caplog.records if record.message == "check failed"]
    assert len(reasons) == 1
    assert "ZeroDivisionError" in reasons[0]


def test_where_no_candidate_can_be_scored_nothing_is_decided(client, puzzle, script):
    backend = script(energies=lambda text: None)
    reply = client.post("/v1/triage", {"problem": puzzle})

    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "scoring_failed")
    assert len(backend.requests) == 4


def test_a_candidate_that_cannot_be_checked_leaves_the_decision_to_the_others(
    client, puzzle, texts, script, monkeypatch
):
    whole = type(get_task("knights_knaves")).vote_key

    def vote_key(self, problem, answer):
        return raises(self, problem, answer) if dict(answer)["Zoey"] == "knave" else whole(self, problem, answer)

    monkeypatch.setattr(type(get_task("knights_knaves")), "vote_key", vote_key)
    script(lambda request: texts["wrong"] if request.generator == "ada" else texts["right"])

    assert client.post("/v1/triage", {"problem": puzzle}).json()["decision"] == "accept"


def test_the_endpoints_own_words_are_logged_once_for_each_generator(client, puzzle, texts, script, caplog):
    script(lambda request: None if request.generator == "ada" else texts["right"])
    client.post("/v1/triage", {"problem": puzzle})

    failed = [record.facts for record in caplog.records if record.message == "generator failed"]
    assert failed == [{"generator": "ada", "reason": "HTTP 500"}]


def test_a_candidate_without_energy_is_left_out_of_the_selection(client, puzzle, texts, script):
    script(lambda request: f"{request.generator} {texts['right']}", lambda text: None if "ada" in text else (1.0, 1.0))
    answer = client.post("/v1/triage", {"problem": puzzle, "return_candidates": True}).json()
    assert answer["candidate"]["generator"] == "bo"
    assert [candidate["error"] for candidate in answer["candidates"][:2]] == ["the ensemble gave no finite energy"] * 2


def test_request_ids_are_the_clients_or_new(client, puzzle):
    given = client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": "mine-1"})
    assert given.headers["x-request-id"] == given.json()["request_id"] == "mine-1"
    bad = client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": "bad id\n".strip() + "!"})
    assert bad.json()["request_id"] != "bad id!"


def problem_of(**changes):
    return {"prompt": "p", "data": {"names": ["Ava"]}, **changes}


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"problem": "PUZZLE", "task": "gms8k"}, 404, "unknown_task", "served: knights_knaves"),
        ({"problem": "What is 2 + 2?"}, 422, "not_a_problem", "knights_knaves"),
        ({"problem": "  "}, 400, "missing_text", "empty"),
        ({"problem": "x" * 2001}, 413, "problem_too_long", "2001 characters; at most 2000"),
        ({"problem": problem_of()}, 422, "not_a_problem", "data is not what the task needs"),
        ({"problem": problem_of(data={"names": 3, "roles": [], "statements": 1})}, 422, "not_a_problem", "data"),
        ({}, 400, "invalid_request", "exactly one of 'problem' and 'messages'"),
        ({"problem": "p", "messages": []}, 400, "invalid_request", "exactly one"),
        ({"messages": []}, 400, "missing_text", "role 'user'"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "missing_text", "empty"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "unsupported_content",
            "image_url",
        ),
        ({"problem": "PUZZLE", "lamda": 1}, 400, "invalid_request", "lamda"),
        ({"problem": "PUZZLE", "lambda": -1}, 400, "invalid_request", "lambda"),
        ({"problem": "PUZZLE", "signal": "mean"}, 400, "invalid_request", "signal"),
        ({"problem": "PUZZLE", "theta_sigma": 5}, 400, "bad_override", "theta_sigma must be below theta_abstain"),
        ({"problem": "PUZZLE", "generators": ["eve"]}, 400, "unknown_generator", "served: ada, bo"),
        ({"problem": "PUZZLE", "generators": []}, 400, "invalid_request", "generators"),
        ({"problem": "PUZZLE", "num_samples": 1000}, 400, "invalid_request", "num_samples"),
        ({"problem": 3}, 400, "invalid_request", "problem"),
    ],
)
def test_bad_requests_say_what_is_wrong(client, puzzle, body, status, code, words):
    if body.get("problem") == "PUZZLE":
        body = {**body, "problem": puzzle}
    reply = client.post("/v1/triage", body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert words in error["message"]
    assert set(error) == {"message", "type", "code", "param"}


def test_the_fields_of_a_problem_may_come_as_an_object():
    given = TriageRequest.model_validate({"problem": {"message": "Größe?", "paid": 3}})
    assert given.problem == '{"message": "Größe?", "paid": 3}'
    assert TriageRequest.model_validate({"problem": {"prompt": "6 x 7?"}}).problem == ProblemBody(prompt="6 x 7?")


def test_fields_that_are_no_problem_of_the_task_are_named(client):
    reply = client.post("/v1/triage", {"problem": {"colour": "red"}})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "not_a_problem")
