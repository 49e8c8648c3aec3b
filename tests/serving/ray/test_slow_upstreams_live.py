"""Endpoints that are slow, hang or fail, over real sockets on real Serve. No test waits for time to pass."""

import json

import httpx
import pytest
from live_service import HEADERS
from upstream import TEXT

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def upstream(live_service):
    return live_service.upstream


@pytest.fixture
def triage(live_service, puzzle):
    def ask(*generators, **changes):
        return live_service.ask(puzzle, None, generators=list(generators), max_passes=1, **changes)

    return ask


def named(answer):
    return {generator["name"]: generator for generator in answer["generators"]}


def test_a_broken_endpoint_is_named_and_not_fatal(triage):
    answer = triage("prompt", "broken").json()

    assert (answer["decision"], answer["candidate"]["generator"]) == ("accept", "prompt")
    assert (named(answer)["broken"]["failed"], named(answer)["prompt"]["failed"]) == (1, 0)
    assert "HTTP 500" in named(answer)["broken"]["error"]


def test_numbers_of_the_first_candidate_are_out_while_the_second_is_written(live_service, puzzle, upstream):
    """The gate opens only when they are: without pipelining nobody would ever open it."""
    body = {"problem": puzzle, "generators": ["prompt", "gated"], "max_passes": 1, "stream": True}
    told = []
    with httpx.stream("POST", f"{live_service.url}/v1/triage", json=body, headers=HEADERS, timeout=600) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            facts = json.loads(line.removeprefix("data: "))
            told.append(facts)
            if facts.get("event") == "scored" and facts["candidate"]["generator"] == "prompt":
                assert facts["candidate"]["sigma"] >= 0
                upstream.gate.set()

    kinds = [(facts.get("event"), facts.get("generator")) for facts in told]
    assert kinds.index(("scored", None)) < kinds.index(("candidate", "gated"))
    assert told[-1]["decision"] == "accept"


def test_a_late_endpoint_is_left_out_named_and_its_request_cancelled(triage, upstream, eventually):
    answer, deadline_ms = None, 2_000
    while answer is None or answer.status_code == 504:  # however slow the machine is, some deadline is long enough
        answer, deadline_ms = triage("prompt", "hanging", deadline_ms=deadline_ms), 2 * deadline_ms
    body = answer.json()

    assert (body["decision"], body["candidate"]["generator"]) == ("accept", "prompt")
    assert (named(body)["hanging"]["late"], named(body)["prompt"]["late"]) == (1, 0)
    assert eventually(lambda: not upstream.waiting_for("hanging"))


def test_a_proven_answer_ends_a_wave_and_the_request_in_flight_is_dropped(triage, upstream, eventually):
    answer = triage("prompt", "hanging", waves=[4]).json()

    assert (answer["decision"], answer["stop_reason"], answer["num_cancelled"]) == ("accept", "accept", 1)
    assert (named(answer)["hanging"]["cancelled"], named(answer)["hanging"]["failed"]) == (1, 0)
    assert eventually(lambda: not upstream.waiting_for("hanging"))


def test_a_deadline_that_nothing_meets_is_a_504(triage, upstream, eventually):
    reply = triage("hanging", deadline_ms=300)

    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert eventually(lambda: not upstream.waiting_for("hanging"))


def test_energies_do_not_depend_on_when_candidates_came(live_service, puzzle):
    """Scored one by one or all at once by the served ensemble: the tolerance that docs/service.md states."""
    texts = [f"{'It follows. ' * place}{TEXT}" for place in range(8)]

    def members(answers):
        reply = live_service.post("/v1/score", {"text_1": puzzle, "text_2": answers})
        return [entry["members"] for entry in reply.json()["data"]]

    together, apart = members(texts), [members([text])[0] for text in texts]
    differences = [abs(a - b) for one, two in zip(together, apart, strict=True) for a, b in zip(one, two, strict=True)]
    assert max(differences) < 1e-4
