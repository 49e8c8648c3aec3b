"""The span of an HTTP request and what stands below it, on the application without Ray."""

import pytest
from hand_written_run import chat_body

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "r-7"}


@pytest.fixture
def spans(ended_spans):
    return lambda: {span.name: span for span in ended_spans()}


def test_a_request_is_one_trace_of_the_clients(client, puzzle, spans):
    assert client.post("/v1/triage", {"problem": puzzle}, headers=HEADERS).status_code == 200
    by_name = spans()
    assert {"POST /v1/triage", "triage", "pass", "generate", "check", "score"} <= set(by_name)
    assert {span.context.trace_id for span in by_name.values()} == {int(TRACE, 16)}
    request = by_name["POST /v1/triage"]
    assert request.parent.span_id == int(PARENT, 16)
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["raydebm.request_id"] == "r-7"


def test_the_decision_is_told_and_the_problem_is_not(client, puzzle, spans, texts):
    client.post("/v1/triage", {"problem": puzzle})
    triage = spans()["triage"].attributes
    told = {"task": "knights_knaves", "decision": "accept", "sigma": 0.0, "num_candidates": 4, "num_passes": 1}
    assert {name: triage[f"raydebm.{name}"] for name in told} == told
    assert "Zoey" not in " ".join(span.to_json() for span in spans().values())


def test_a_stream_is_traced_to_its_end(client, puzzle, spans):
    assert client.post("/v1/chat/completions", chat_body(puzzle, stream=True), headers=HEADERS).status_code == 200
    by_name = spans()
    assert by_name["triage"].context.trace_id == int(TRACE, 16)
    assert by_name["POST /v1/chat/completions"].end_time >= by_name["triage"].end_time


def test_a_failure_of_the_service_is_an_error_and_a_mistake_of_the_client_is_none(client, puzzle, spans, backend):
    client.post("/v1/triage", {"problem": "x"})
    assert spans()["POST /v1/triage"].status.is_unset
    backend.ready = False
    backend.write = lambda request: None
    client.post("/v1/triage", {"problem": puzzle})
    failed = spans()["POST /v1/triage"]
    assert (failed.status.is_ok, failed.attributes["error.type"]) == (False, "503")


def test_probes_are_not_traced(client, spans):
    assert client.get("/health").status_code == 200
    assert spans() == {}


def test_log_lines_carry_the_trace(client, puzzle, spans, lines):
    client.post("/v1/triage", {"problem": puzzle}, headers=HEADERS)
    assert {line["message"] for line in lines()} >= {"decision", "request"}
    assert {(line["trace_id"], line["request_id"]) for line in lines()} == {(TRACE, "r-7")}
