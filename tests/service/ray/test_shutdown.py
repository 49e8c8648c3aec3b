"""The end of a service: it refuses what is new, and finishes what runs."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from hand_written_run import session

from raydebm.service.access import Intake
from raydebm.service.core import TriageService
from raydebm.service.ray.app import QUIET_POLLS, drain
from raydebm.service.routes.application import create_app


def test_a_closed_service_finishes_what_runs_and_refuses_the_rest(bundle, backend, puzzle):
    intake = Intake()
    app = create_app(TriageService(bundle, backend), intake=intake)

    async def send():
        async with session(app) as client:
            backend.held = True
            running = asyncio.create_task(client.post("/v1/triage", json={"problem": puzzle}))
            while not backend.requests:
                await asyncio.sleep(0)
            intake.is_closed = True
            refused = [await client.post("/v1/triage", json={"problem": puzzle}), await client.get("/health")]
            num_open = intake.num_open
            backend.held = False
            return (await running).status_code, refused, num_open

    status, refused, num_open = asyncio.run(send())
    assert (status, num_open, intake.num_open) == (200, 1, 0)
    assert [reply.status_code for reply in refused] == [503, 503]
    assert refused[0].json()["error"]["code"] == "shutting_down"
    assert int(refused[0].headers["retry-after"]) >= 1


def test_draining_waits_for_the_last_request(monkeypatch):
    monkeypatch.setattr("raydebm.service.ray.app.POLL_S", 0)
    counts = iter([2, 1, 0, 1, *[0] * QUIET_POLLS])
    assert drain(lambda: next(counts), limit_s=60) == 0
    assert list(counts) == []


def test_draining_ends_at_its_limit(monkeypatch):
    monkeypatch.setattr("raydebm.service.ray.app.POLL_S", 0.01)
    assert drain(lambda: 3, limit_s=0.05) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [False, True], ids=["usual", "started with &"])
def test_both_signals_interrupt_also_where_they_arrive_ignored(number, ignored):
    program = textwrap.dedent("""
        import time
        from raydebm.service.ray.app import interrupted_by_signals
        try:
            with interrupted_by_signals():
                print("ready", flush=True)
                time.sleep(60)
        except KeyboardInterrupt as stop:
            print(stop, flush=True)
    """)

    def ignore():
        signal.signal(number, signal.SIG_IGN)

    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, preexec_fn=ignore if ignored else None
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}\n"
