"""Two processes and one run directory."""

import json
import os
import subprocess
import sys
import threading

import pytest
from tiny_run import recipe_of

from raydebm.errors import ConfigError
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.writing_lock import locked, write_lock
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import STAGES

HOLDER = """
import sys
from raydebm.pipeline.writing_lock import write_lock
from raydebm.run.directory import RunDir
with write_lock(RunDir(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


@pytest.fixture
def holder(run):
    """Another process that makes something in the run directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, run.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_run_that_another_process_writes_is_refused_with_its_name(run, holder):
    refused = pytest.raises(ConfigError, match=rf"run is being written by process {holder.pid} on .*another run_dir")
    with refused, write_lock(run):
        pass


def test_a_killed_process_holds_nothing(run, holder):
    holder.kill()
    holder.wait()

    with write_lock(run):
        assert json.loads(run.read_bytes(".lock"))["pid"] != holder.pid


def test_a_finished_run_is_read_while_another_process_writes(run, holder):
    pipeline, reports = Pipeline(recipe=recipe_of(run.root)), []
    for stage in STAGES:
        run.finish(stage.name, new_manifest(stage.name, pipeline.recipe, run, facts={}))

    Pipeline(recipe=pipeline.recipe, on_stage=reports.append).make("evaluation")

    assert {report.reused for report in reports} == {True}


def test_a_place_behind_a_url_has_no_lock():
    with write_lock(RunDir("s3://bucket/run")):
        pass


def test_a_run_directory_that_cannot_be_made_is_named():
    with pytest.raises(ConfigError, match="run_dir '/proc/raydebm' cannot be written"):
        write_lock(RunDir("/proc/raydebm")).__enter__()


@pytest.fixture
def held(tmp_path):
    """A descriptor that holds the lock on ``.lock``."""
    return locked(tmp_path / ".lock", wait=False)


def test_who_waits_gets_the_lock_when_it_is_free(held, tmp_path):
    got = []
    waiting = threading.Thread(target=lambda: got.append(locked(tmp_path / ".lock", wait=True)))
    waiting.start()
    waiting.join(timeout=0.2)
    assert got == []

    os.close(held)
    waiting.join(timeout=30)
    (descriptor,) = got
    os.close(descriptor)


def test_where_no_file_can_be_there_is_no_lock(tmp_path):
    (tmp_path / "file").write_text("x")

    assert locked(tmp_path / "file" / ".lock", wait=False) is None
