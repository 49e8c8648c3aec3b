"""POST /v1/triage as server-sent events: what is told, in which order, with which fields."""

import asyncio
import json

import pytest

from raydebm.service.routes.streams import EventStream


@pytest.fixture
def events(client, puzzle, read_events):
    """(event name, JSON) of a streamed triage; ``[DONE]`` stays text."""

    def ask(**changes):
        reply = client.post("/v1/triage", {"problem": puzzle, "stream": True, **changes})
        assert reply.headers["content-type"].startswith("text/event-stream")
        return [(name, data if data == "[DONE]" else json.loads(data)) for name, data in read_events(reply.text)]

    return ask


def facts_of(events, kind):
    return [facts for name, facts in events if name == "raydebm.progress" and facts["event"] == kind]


def test_texts_come_only_on_request(events, texts):
    silent = events()
    assert all("text" not in facts for facts in facts_of(silent, "candidate"))
    assert {facts["candidate"]["text"] for facts in facts_of(silent, "scored")} == {None}
    spoken = events(return_candidates=True)
    assert {facts["text"] for facts in facts_of(spoken, "candidate")} == {texts["right"]}
    assert {facts["candidate"]["text"] for facts in facts_of(spoken, "scored")} == {texts["right"]}


def test_a_failed_candidate_is_told_with_its_reason(events, texts, script):
    script(lambda request: None if request.generator == "ada" else texts["right"])
    failed = [facts for facts in facts_of(events(), "candidate") if facts["failed"]]

    assert [(facts["generator"], facts["error"], facts["late"]) for facts in failed] == [("ada", "HTTP 500", False)] * 2


LINE_ENDS = "a\u2028b\u2029c\x85d"
"""Text in which many readers see the ends of lines."""


def test_whatever_is_streamed_ends_no_line(run_virtually):
    sent = []

    async def events():
        yield f"data: {json.dumps(LINE_ENDS, ensure_ascii=False)}\n\n"

    async def send(message):
        sent.append(message.get("body", b""))

    async def receive():
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    run_virtually(EventStream(events())({"type": "http"}, receive, send))
    (line, _) = b"".join(sent).decode().splitlines()
    assert json.loads(line.removeprefix("data: ")) == LINE_ENDS
