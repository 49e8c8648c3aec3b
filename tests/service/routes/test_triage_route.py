"""POST /v1/triage over the hand-written backend: real task, real checks, real loop."""

import pytest

from raydebm.identity import seed_for
from raydebm.service.core import ProblemBody
from raydebm.service.routes.bodies import TriageRequest
from raydebm.tasks import get_task


def test_the_same_seeds_as_evaluation(client, puzzle, backend):
    client.post("/v1/triage", {"problem": puzzle})
    problem_id = get_task("knights_knaves").problem_from_text(puzzle).problem_id
    assert [request.seed for request in backend.requests] == [
        seed_for(7, problem_id, name, 1, index) for name in ("ada", "bo") for index in range(2)
    ]


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
    assert given.json()["request_id"] == "mine-1"
    bad = client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": "bad id\n".strip() + "!"})
    assert bad.json()["request_id"] != "bad id!"


def test_the_fields_of_a_problem_may_come_as_an_object():
    given = TriageRequest.model_validate({"problem": {"message": "Größe?", "paid": 3}})
    assert given.problem == '{"message": "Größe?", "paid": 3}'
    assert TriageRequest.model_validate({"problem": {"prompt": "6 x 7?"}}).problem == ProblemBody(prompt="6 x 7?")
