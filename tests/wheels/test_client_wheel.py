"""`pip install raydebm-client` without Ray, torch and whatever else the service needs."""

import http.server
import json
import threading
import zipfile

import pytest

import raydebm
import raydebm_client

pytestmark = pytest.mark.slow

DECISION = {
    "request_id": "r", "record_id": "d", "task": "gsm8k", "problem_id": "p", "decision": "accept", "answer": "42",
    "text": "#### 42", "reason": "proven", "energy": -1.0, "mu": -1.0, "sigma": 0.1, "penalty": 0.0, "lambda": 1.0,
    "num_passes": 1,
}  # fmt: skip
PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"ray", "torch", "numpy", "pyarrow", "pydantic", "raydebm"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())

import asyncio
import raydebm_client
import raydebm_client.rewards
from raydebm_client import AsyncRaydebm, Raydebm, ServiceError

print(raydebm_client.__file__)
with Raydebm(sys.argv[1], max_retries=0) as client:
    print(client.triage("What is 6 x 7?").answer)
    try:
        client.triage("absent", task="absent")
    except ServiceError as error:
        print(error.status, error.code)

async def ask():
    async with AsyncRaydebm(sys.argv[1]) as client:
        return (await client.triage("What is 6 x 7?")).decision

print(asyncio.run(ask()))
print(sorted({"ray", "torch", "numpy", "pyarrow", "pydantic", "raydebm"} & set(sys.modules)))
"""


class Service(http.server.BaseHTTPRequestHandler):
    """Accepts every problem but those of the task `absent`."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("task") == "absent":
            self._answer(404, {"error": {"message": "task 'absent' is not served", "code": "unknown_task"}})
        else:
            self._answer(200, DECISION)

    def _answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        """Nothing."""


@pytest.fixture
def url():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_asks_a_service_with_httpx_alone(wheels, environment, httpx_alone, url, tmp_path):
    alone = environment(wheels["raydebm_client"], httpx_alone)
    done = alone.run("-c", PROGRAM, url, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    place, answer, refusal, decision, modules = done.stdout.splitlines()
    assert place.startswith(str(alone.folder))
    assert (answer, refusal, decision, modules) == ("42", "404 unknown_task", "accept", "[]")


def test_the_two_wheels_share_no_file(wheels):
    names = [set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels.values()]

    assert len(names) == 2
    assert not names[0] & names[1]
    assert {name.split("/")[0].split("-")[0] for name in names[0] | names[1]} == {"raydebm", "raydebm_client"}


def test_the_two_have_one_version():
    assert raydebm_client.__version__ == raydebm.__version__
