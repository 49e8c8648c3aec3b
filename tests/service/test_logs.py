"""Structured logs: one JSON object a line, with the request's id and no secret."""

import json
import logging
import sys

import pytest

from raydebm.errors import ConfigError
from raydebm.generators.requests import unanswered
from raydebm.service.logs import configure_logs, redact

SECRET = "sk-or-v1-0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"Incorrect API key provided: {SECRET}.", "Incorrect API key provided: ***."),
        ('{"api_key": "abcdef123456"}', '{"api_key": "***"}'),
        ("password=hunter22&x=1", "password=***&x=1"),
        ("s3://bucket/records?secret_key=abcdef123456", "s3://bucket/records?secret_key=***"),
        ("max_tokens: 4096, the answer is 42", "max_tokens: 4096, the answer is 42"),
        ("policy key 'lambda' must be like 1.0", "policy key 'lambda' must be like 1.0"),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text, clean):
    assert redact(text) == clean


def test_every_request_leaves_one_line_with_its_id(client, puzzle, lines):
    client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": "r-1"})
    (line,) = [line for line in lines() if line["message"] == "request"]
    expected = {"request_id": "r-1", "route": "/v1/triage", "status": 200, "method": "POST"}
    assert line.items() >= expected.items()
    assert line["duration_ms"] >= 0


def test_a_decision_leaves_a_line_with_its_numbers(client, puzzle, lines):
    client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": "r-3"})
    line = next(line for line in lines() if line["message"] == "decision")
    expected = {"request_id": "r-3", "decision": "accept", "sigma": 0.0, "candidates": 4, "failed": 0, "cost_usd": 2.0}
    assert line.items() >= expected.items()


def test_problems_and_answers_are_not_logged(client, puzzle, texts, lines):
    client.post("/v1/triage", {"problem": puzzle})
    text = json.dumps(lines())
    assert "Zoey" not in text


def test_a_key_that_an_endpoint_quotes_does_not_reach_the_client(client, backend, puzzle):
    async def generate(requests, on_candidate, *, may_repeat):
        return [unanswered(request, f"HTTP 401: Incorrect API key provided: {SECRET}") for request in requests]

    backend.generate = generate
    reply = client.post("/v1/triage", {"problem": puzzle})
    assert reply.status_code == 503
    assert "sk-or" not in reply.text


def test_a_quoted_key_in_a_candidates_error_is_hidden(client, backend, puzzle, script):
    original = backend.generate

    async def generate(requests, on_candidate, *, may_repeat):
        first, *others = requests
        return [
            unanswered(first, f"HTTP 401: bad key {SECRET}"),
            *await original(others, on_candidate, may_repeat=may_repeat),
        ]

    backend.generate = generate
    reply = client.post("/v1/triage", {"problem": puzzle, "return_candidates": True})
    assert reply.status_code == 200
    assert "bad key ***" in reply.text
    assert "sk-or" not in reply.text


def test_an_unknown_level_is_refused():
    with pytest.raises(ConfigError, match="RAYDEBM_LOG_LEVEL 'LOUD' is not a level"):
        configure_logs(environ={"RAYDEBM_LOG_LEVEL": "LOUD"})


def test_logs_go_to_standard_error_once(monkeypatch):
    logger, root = logging.getLogger("raydebm"), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    configure_logs(environ={"RAYDEBM_LOG_LEVEL": "warning"})
    configure_logs(environ={})
    assert [handler.stream for handler in logger.handlers] == [sys.stderr]
    assert logger.level == logging.WARNING
