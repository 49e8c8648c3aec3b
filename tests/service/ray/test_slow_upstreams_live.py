"""Endpoints that are slow, hang or fail, over real sockets on real Serve. No test waits for time to pass."""

import json

import httpx
import pytest
from live_service import HEADERS

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def upstream(live_service):
    return live_service.upstream


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
