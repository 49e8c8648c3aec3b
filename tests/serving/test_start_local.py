"""What `raydebm serve` does, on a real Ray Serve: no configuration file, a local model, plain HTTP, an orderly end."""

import httpx
import pytest

from raydebm.serving.app import AppArgs, start_local, stop_local
from raydebm.serving.records_reader import DecisionReader

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(local_ray, live_run, puzzle, new_port, tmp_path_factory):
    """One question to a service that writes decisions an hour later: what was known before, during and after."""
    folder, port = tmp_path_factory.mktemp("local") / "records", new_port()
    records = {"folder": str(folder), "flush_s": 3600}
    found = {"port": port, "folder": folder}
    found["url"] = start_local(AppArgs(run_dir=live_run, threads=1, device="cpu", records=records), port=port)
    try:
        found["answer"] = httpx.post(f"{found['url']}/v1/triage", json={"problem": puzzle}, timeout=240).json()
        found["was_written"] = folder.exists()
    finally:
        stop_local()
    return found


def test_start_local_answers_at_the_url_that_it_returns(served):
    answer = served["answer"]
    assert served["url"] == f"http://127.0.0.1:{served['port']}"
    assert [(found["name"], found["asked"]) for found in answer["generators"]] == [("recorded", 4), ("babbler", 1)]
    assert answer["decision"] == "accept"


def test_decisions_that_wait_are_written_when_the_service_ends(served):
    assert not served["was_written"]
    (record,) = DecisionReader(str(served["folder"])).records()
    assert record.request_id == served["answer"]["request_id"]
    assert record.outcome.best.report.answer == served["answer"]["answer"]
