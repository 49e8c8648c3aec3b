"""Errors of the builder that Serve calls: one line, and the end of the command that waits for it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray
import yaml
from ray.serve.exceptions import RayServeException

from raydebm.service.ray.app import build, end_serve_run

BUILDER = "raydebm.service.ray.app:build"


def unknown_key(run):
    file = run / "recipe.json"
    file.write_text(file.read_text().replace('"seed"', '"sead"', 1))
    return r"recipe\.json .*sead.*\. If another version made the run, run its recipe again"


def torn_policy(run):
    (run / "calibration" / "policy.json").write_text('{"rule": ')
    return r"policy\.json"


def policy_of_another_version(run):
    (run / "calibration" / "policy.json").write_text('{"tau_sure": 0.9}')
    return r"policy\.json is not a policy: .*unknown key\(s\) tau_sure; .*\. If another version wrote it, calibrate"


def unreadable_ensemble(run):
    (run / "scorer" / "ensemble.json").write_text('{"format": 2, "members": []}')
    return r"ensemble\.json is not a valid EnsembleRecord"


@pytest.mark.parametrize("break_it", [unknown_key, torn_policy, policy_of_another_version, unreadable_ensemble])
def test_a_broken_run_is_one_line(write_run, break_it):
    run = Path(write_run())
    words = break_it(run)

    with pytest.raises(RayServeException, match=words) as caught:
        build({"run_dir": str(run)})
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_misspelt_argument_is_one_line():
    with pytest.raises(RayServeException, match="the application's args do not define a service: run_dri"):
        build({"run_dir": "demo", "run_dri": "demo"})


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """Starts processes like ``serve run FILE``, each with other arguments of the application."""
    script = tmp_path / "serve"
    script.write_text("import time; print(flush=True); time.sleep(600)")
    started = []

    def start(args):
        file = tmp_path / f"{len(started)}.yaml"
        file.write_text(yaml.safe_dump({"applications": [{"import_path": BUILDER, "args": args}]}))
        command = [sys.executable, str(script), "run", file.name]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        process.stdout.readline()
        return process

    def jobs():
        own = {"DriverIPAddress": ray.util.get_node_ip_address(), "IsDead": False}
        return [{"DriverPid": process.pid, **own} for process in started]

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray._private.state, "jobs", jobs)
    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_that_waits_for_the_application_ends_with_the_message(waiting):
    process = waiting({"run_dir": "none"})
    end_serve_run({"run_dir": "none"}, "words", import_path=BUILDER)

    assert process.communicate(timeout=60) == ("", "raydebm: error: words\n")
    ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # below nohup, which children inherit
    assert process.returncode == -(signal.SIGKILL if ignores else signal.SIGHUP)


def test_a_command_with_other_arguments_goes_on(waiting):
    process = waiting({"run_dir": "other"})
    end_serve_run({"run_dir": "none"}, "words", import_path=BUILDER)

    assert process.poll() is None
