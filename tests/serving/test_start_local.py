"""What `raydebm serve` does, on a real Ray Serve: no configuration file, a local model, plain HTTP."""

import httpx
import pytest

from raydebm.serving.app import AppArgs, start_local, stop_local

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_start_local_answers_at_the_url_that_it_returns(local_ray, live_run, puzzle, free_port):
    url = start_local(AppArgs(run_dir=live_run, threads=1, device="cpu"), port=free_port)
    try:
        answer = httpx.post(f"{url}/v1/triage", json={"problem": puzzle}, timeout=60).json()
    finally:
        stop_local()
    assert url == f"http://127.0.0.1:{free_port}"
    assert [(found["name"], found["asked"]) for found in answer["generators"]] == [("recorded", 4), ("babbler", 1)]
    assert answer["decision"] == "accept"
