"""The end of Serve, on a Ray of its own."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


STOP = """
import ray, time
from ray import serve
from raydebm.service.ray.app import stop_serve

ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(proxy_location="Disabled")
stop_serve()
names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
time.sleep(3)
print("left:", names)
stop_serve()
print("ended")
"""


def test_the_end_of_serve_is_silent_and_leaves_no_controller():
    """``serve.shutdown`` makes Ray print that a task of the controller failed."""
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", STOP], env=environ, capture_output=True, text=True, timeout=600, check=True
    )

    assert "left: []" in done.stdout
    assert "graceful_shutdown" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ended"
