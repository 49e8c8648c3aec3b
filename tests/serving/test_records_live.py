"""Records of a real Serve application: a replica that is taken down in order writes what waits."""

import socket
from pathlib import Path

import pytest

from raydebm.client import Raydebm
from raydebm.serving.launch import deployed
from raydebm.serving.records_reader import DecisionReader

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_decisions_that_wait_are_written_when_the_service_ends(local_ray, live_run, repository, tmp_path, puzzle):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / "kept"
    args = {
        "run_dir": live_run,
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "records": {"folder": str(folder), "flush_s": 3600},
    }
    with (
        deployed(Path(repository) / "serve_config.yaml", port=port, args=args, timeout_s=240) as address,
        Raydebm(address) as client,
    ):
        answer = client.triage(puzzle)
        assert not folder.exists()

    (record,) = DecisionReader(str(folder)).records()
    assert record.request_id == answer.request_id
    assert record.outcome.best.report.answer == answer.answer
