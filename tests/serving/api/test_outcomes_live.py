"""Outcomes on real Ray Serve: reported through the proxy to an ingress replica, stored, shown and counted."""

import pytest
from live_service import KEY

from raydebm.decisions.outcomes.log import OutcomeLog
from raydebm_client import Raydebm, ServiceError

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def client(live_service):
    with Raydebm(live_service.url, api_key=KEY, timeout_s=600) as raydebm:
        yield raydebm


def test_an_outcome_is_stored_shown_and_counted(live_service, client, puzzle):
    answer = client.triage(puzzle, policy="recorded-only")
    before = live_service.get("/v1/outcomes").json()["with_outcome"]

    first = client.report_outcome(answer.record_id, correct=True, by="live", note="checked")
    again = client.report_outcome(answer.record_id, correct=True, by="live", note="checked")

    assert (first.status, again.status, again.reports) == ("created", "unchanged", 1)
    decision = live_service.get(f"/v1/decisions/{answer.record_id}").json()
    assert (decision["outcome"], decision["request_id"]) == ("right", answer.request_id)
    assert [(each["by"], each["key"], each["note"]) for each in decision["outcomes"]] == [("live", "team", "checked")]
    assert live_service.get("/v1/outcomes").json()["with_outcome"] == before + 1
    assert answer.record_id in {report.record_id for report in OutcomeLog(str(live_service.folder / "kept")).reports()}


def test_an_unknown_decision_is_an_error_with_its_remedy(client):
    with pytest.raises(ServiceError, match="give the `record_id` of an answer") as caught:
        client.report_outcome("0" * 24, correct=True, by="live")
    assert (caught.value.status, caught.value.code) == (404, "unknown_record")
