"""What `raydebm serve` does, on a real Ray Serve: no configuration file, a local model, plain HTTP, an orderly end."""

import pytest

from raydebm.service.store.reader import DecisionReader

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_start_local_answers_at_the_url_that_it_returns(local_service):
    assert local_service.url == f"http://127.0.0.1:{local_service.port}"
    assert local_service.typed["decision"] == "accept"


def test_a_local_model_is_asked_beside_the_recorded_one(local_service):
    counts = [(each["name"], each["asked"], each["failed"]) for each in local_service.typed["generators"]]
    assert counts == [("scripted", 2, 0), ("babbler", 1, 0)]


def test_decisions_that_wait_are_written_when_the_service_ends(local_service):
    assert not local_service.was_written
    written = {record.request_id: record for record in DecisionReader(str(local_service.records)).records()}
    answers = {answer["request_id"]: answer for answer in (local_service.typed, local_service.prompted)}
    assert written.keys() == answers.keys()
    for name, record in written.items():
        assert record.outcome.best.report.answer == answers[name]["answer"]
