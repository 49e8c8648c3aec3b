"""``n``: the best distinct answers of the candidates, each with its confidence."""

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.service.core.triage import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle

CHAT = "/v1/chat/completions"
QUESTION = "How many apples are one apple?"
TEXTS = ("It is #### 1", "It is #### 1", "It is #### 2", "It is #### 3")
"""Of ada's two samples and bo's two, in this order: 1 has two votes of four, 2 and 3 one each."""


@pytest.fixture
def voting_client(write_run, recipe, backend, client):
    """A service that decides by votes about a task whose answers are numbers. Its candidates are ``TEXTS``."""
    backend.write = lambda request: TEXTS[2 * (request.generator == "bo") + request.sample_index]
    vote = Posterior(weights={"votes": 1.0}, context_weights={})
    policy = Policy(rule="posterior", posterior=vote, tau_accept=0.1, tau_answer=0.1, max_passes=1)
    run = write_run({**recipe, "task": {"name": "gsm8k"}}, policy)
    return type(client)(create_app(TriageService(load_bundle(AppArgs(run_dir=run)), backend)))


def asked(n, **changes):
    return {
        "model": "raydebm/gsm8k",
        "messages": [{"role": "user", "content": QUESTION}],
        "n": n,
        **changes,
    }


def test_the_most_probable_answers_come_first_with_their_confidence(voting_client):
    body = voting_client.post(CHAT, asked(2)).json()
    facts = [choice["raydebm"] for choice in body["choices"]]
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert [fact["answer"] for fact in facts] == ["#### 1", "#### 2"]
    assert [fact["num_candidates"] for fact in facts] == [2, 1]
    assert facts[0]["confidence"] == body["raydebm"]["confidence"] > facts[1]["confidence"]
    assert body["choices"][1]["message"]["content"] == "It is #### 2"
    assert body["raydebm"]["choices"] == {"asked": 2, "given": 2, "reason": None}


def test_fewer_answers_than_asked_for_are_said(voting_client):
    body = voting_client.post(CHAT, asked(5)).json()
    assert len(body["choices"]) == 3
    counted = body["raydebm"]["choices"]
    assert (counted["asked"], counted["given"]) == (5, 3)
    assert counted["reason"] == "of the distinct answers of the candidates, 3 may be given out"


def test_a_stream_has_them_one_after_the_other(voting_client, chunks_of):
    chunks = chunks_of(voting_client.post(CHAT, asked(3, stream=True)).text)
    texts = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] = texts.get(choice["index"], "") + (choice["delta"].get("content") or "")
    assert list(texts.values()) == ["It is #### 1", "It is #### 2", "It is #### 3"]
    ends = [chunk for chunk in chunks if chunk["choices"][0]["finish_reason"]]
    assert [end["choices"][0]["raydebm"]["answer"] for end in ends] == ["#### 1", "#### 2", "#### 3"]
    assert ["raydebm" in end for end in ends] == [False, False, True]


def test_they_come_in_the_form_that_is_asked_for(voting_client):
    body = voting_client.post(CHAT, asked(2, response_format={"type": "json_object"})).json()
    assert [choice["message"]["content"] for choice in body["choices"]] == [
        '{"answer": "#### 1"}',
        '{"answer": "#### 2"}',
    ]


def test_on_abstain_best_gives_them_all_the_same(voting_client):
    settings = {"tau_answer": 0.99, "tau_accept": 0.99, "on_abstain": "best"}
    body = voting_client.post(CHAT, asked(3, raydebm=settings)).json()
    assert [choice["raydebm"]["answer"] for choice in body["choices"]] == ["#### 1", "#### 2", "#### 3"]
    assert body["raydebm"]["decision"] == "abstain"


def test_an_answer_that_a_constraint_refutes_is_no_choice(client, script, puzzle, texts):
    """By the paper's rule there are no probabilities; the wrong answer breaks an exact constraint."""
    script(lambda request: texts["wrong"] if request.sample_index else texts["right"])
    messages = [{"role": "user", "content": puzzle}]
    body = client.post(CHAT, {"model": "raydebm/knights_knaves", "messages": messages, "n": 2}).json()
    assert [choice["message"]["content"] for choice in body["choices"]] == [texts["right"]]
    assert body["choices"][0]["raydebm"]["confidence"] is None
    assert body["choices"][0]["raydebm"]["proof"] is True


def test_without_a_posterior_the_lowest_energies_come_first(write_run, recipe, backend, client):
    backend.write = lambda request: TEXTS[2 * (request.generator == "bo") + request.sample_index]
    backend.energies = lambda text: {"1": (2.0, 2.0), "2": (-1.0, -1.0), "3": (-3.0, -3.0)}[text[-1]]
    run = write_run({**recipe, "task": {"name": "gsm8k"}}, Policy(max_passes=1))
    plain = type(client)(create_app(TriageService(load_bundle(AppArgs(run_dir=run)), backend)))
    body = plain.post(CHAT, asked(3)).json()
    assert [choice["raydebm"]["answer"] for choice in body["choices"]] == ["#### 3", "#### 2", "#### 1"]
