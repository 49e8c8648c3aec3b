"""POST /v1/verify: a disposition about candidates that somebody else sampled."""

import asyncio
import itertools

import pytest

from raydebm.decision.evidence.posterior import special_case
from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.serving.api.application import create_app
from raydebm.serving.core import verification
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle

PATH, QUESTION = "/v1/verify", "How many apples are one apple?"
ONE, TWO = "It is #### 1", "It is #### 2"


@pytest.fixture
def ask(client, puzzle):
    """Verify candidates of the puzzle, whose answers an exact constraint proves or refutes."""
    return lambda *candidates, **changes: client.post(PATH, {"problem": puzzle, "candidates": candidates, **changes})


@pytest.fixture
def vote(write_run, recipe, backend, client):
    """Verify candidates of a word problem by their votes: nothing proves anything there."""
    policy = Policy(rule="posterior", posterior=special_case("votes"), tau_accept=0.5, tau_answer=0.3)
    bundle = load_bundle(AppArgs(run_dir=write_run({**recipe, "task": {"name": "gsm8k"}}, policy)))
    voting = type(client)(create_app(TriageService(bundle, backend)))
    return lambda *candidates, **changes: voting.post(
        PATH, {"problem": QUESTION, "candidates": candidates, **changes}
    ).json()


def outline(body):
    return body["disposition"], body["reason_codes"], body["selected"], body["kind"]


def test_a_proven_answer_is_approved_and_a_refuted_one_is_flagged(ask, texts):
    body = ask(texts["wrong"], texts["right"]).json()
    assert outline(body) == ("approve", ["proven"], "1", "deterministic_outcome")
    assert [score["flags"] for score in body["scores"]] == [
        ["refuted", "constraint_violated"],
        ["selected", "proven"],
    ]
    assert (body["usage"]["total_tokens"], body["task"]) == (18, "knights_knaves")


def test_answers_that_are_all_refuted_are_rejected_whatever_is_left(ask, texts):
    for left in (0, 5):
        body = ask(texts["wrong"], texts["unreadable"], passes_left=left).json()
        assert outline(body) == ("reject", ["refuted"], body["selected"], "deterministic_outcome")


@pytest.mark.parametrize(("left", "disposition"), [(1, "redo"), (0, "reject")])
def test_texts_without_an_answer(ask, texts, left, disposition):
    body = ask(texts["unreadable"], passes_left=left).json()
    assert outline(body) == (disposition, ["no_answer"], None, "outcome_reward_model")
    assert body["scores"][0]["flags"] == ["no_answer"]


def test_enough_agreement_is_approved(vote):
    body = vote(ONE, ONE, ONE, ONE)
    assert outline(body) == ("approve", ["at_or_above_threshold"], body["selected"], "outcome_reward_model")
    assert body["confidence"] >= 0.5
    assert {score["confidence"] for score in body["scores"]} == {body["confidence"]}


@pytest.mark.parametrize(("left", "disposition"), [(1, "redo"), (0, "abstain")])
def test_too_little_agreement(vote, left, disposition):
    body = vote(ONE, ONE, TWO, passes_left=left, tau_accept=0.9, tau_answer=0.9)
    assert outline(body)[:2] == (disposition, ["below_threshold"])
    assert body["selected"] in ("0", "1")


def test_two_answers_that_are_equally_probable_are_a_tie(vote):
    body = vote(ONE, TWO)
    assert outline(body)[:2] == ("tie", ["tied"])
    assert all("tied" in score["flags"] for score in body["scores"])
    assert body["scores"][0]["confidence"] == body["scores"][1]["confidence"]


def test_answers_of_which_hardly_one_is_right_are_no_tie(vote):
    assert vote(ONE, TWO, tau_answer=0.9, tau_accept=0.9)["disposition"] == "redo"


def test_the_order_of_the_candidates_changes_nothing(vote):
    texts = {"a": ONE, "b": "So #### 1", "c": TWO}
    bodies = [vote(*({"id": name, "text": texts[name]} for name in order)) for order in itertools.permutations(texts)]
    assert len({(body["disposition"], body["selected"], body["confidence"]) for body in bodies}) == 1


def test_what_is_no_problem_is_abstained_from(client):
    body = client.post(PATH, {"problem": "Hello", "candidates": ["Hi"]}).json()
    assert outline(body) == ("abstain", ["not_a_problem"], None, "outcome_reward_model")
    assert (body["scores"], body["confidence"], body["task"]) == ([], None, None)


def authored(author):
    return {"id": "x", "text": ONE, "author": author}


def test_blind_takes_authors_neither_as_evidence_nor_gives_them_back(vote):
    bodies = [vote(authored(author), TWO, TWO) for author in ("ada", "bo", None)]
    for body in bodies:
        body.pop("id"), body.pop("created"), body.pop("latency_ms")
    assert bodies[0] == bodies[1] == bodies[2]
    assert bodies[0]["scores"][0]["author"] is None


def test_authors_are_given_back_where_the_request_says_so(vote):
    assert vote(authored("ada"), blind=False)["scores"][0]["author"] == "ada"


def test_authors_reach_the_evidence_only_where_the_request_says_so(ask, texts, monkeypatch):
    seen = []

    def spy(pool, **others):
        seen.append([scored.candidate.generator for scored in pool])
        return real(pool, **others)

    real = verification.decide_pool
    monkeypatch.setattr(verification, "decide_pool", spy)
    for blind in (True, False):
        ask({"text": texts["right"], "author": "ada"}, blind=blind)
    assert seen == [["client"], ["ada"]]


def test_it_is_triages_decision_about_the_same_candidates(ask, client, puzzle, script, texts, energies):
    """An uncertain scorer: triage refuses after its last pass, and so does this."""
    script(write=lambda request: texts["right"], energies=lambda text: energies["unsure"])
    triaged = client.post("/v1/triage", {"problem": puzzle, "max_passes": 1, "lambda": 1.0}).json()
    body = ask(texts["right"], passes_left=0).json()
    assert (triaged["decision"], body["disposition"], body["reason"]) == ("abstain", "abstain", triaged["reason"])
    assert body["reason_codes"] == ["sigma_above_threshold"]


def test_earlier_turns_are_read_as_context(client, backend, puzzle, texts):
    turns = [{"role": "user", "content": "hello"}, {"role": "user", "content": puzzle}]
    assert client.post(PATH, {"messages": turns, "candidates": [texts["right"]]}).status_code == 200
    assert backend.scored[0].prompt == f"user: hello\n\nuser: {puzzle}"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"candidates": []}, 400, "no_candidate"),
        ({"candidates": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}, 400, "duplicate_id"),
        ({"candidates": [{"id": "1", "text": "x"}, "y"]}, 400, "duplicate_id"),
        ({"candidates": ["x" * 2001]}, 413, "text_too_long"),
        ({"messages": [{"role": "user", "content": "x"}]}, 400, "invalid_request"),
        ({"task": "nothing"}, 404, "unknown_task"),
        ({"policy": "strct"}, 404, "unknown_policy"),
        ({"tau_answer": 2}, 400, "invalid_request"),
    ],
)
def test_requests_that_are_wrong(ask, change, status, code):
    reply = ask("x", **change)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_a_deadline_is_a_timeout(ask, backend, texts, monkeypatch):
    async def slow(texts):
        await asyncio.sleep(5)

    monkeypatch.setattr(backend, "score", slow)
    reply = ask(texts["right"], deadline_ms=20)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")


def test_a_scorer_without_numbers_gives_malformed_output(ask, script, texts):
    script(energies=lambda text: None)
    reply = ask(texts["right"])
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "malformed_output")


def test_a_part_that_is_down_is_unavailable(ask, backend, texts, monkeypatch):
    async def down(texts):
        raise ServiceError("no scorer", 503, "not_ready")

    monkeypatch.setattr(backend, "score", down)
    reply = ask(texts["right"])
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
