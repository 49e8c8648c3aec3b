"""Checks in child processes: one that hangs fails its own candidate and no other."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from raydebm.config import TaskConfig
from raydebm.decision.reporter import Reporter
from raydebm.records import Candidate, Problem

TASK = '''
"""A task whose constraint does what the answer says."""
import os
import sys
import time

from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks import add_task
from raydebm.tasks.base import TaskDefaults


def check(problem, answer):
    if answer == "sleep":
        time.sleep(600)
    while answer == "spin":
        pass
    if answer == "exit":
        os._exit(3)
    if answer == "crash":
        raise RuntimeError("no")
    return [Finding(penalty=1.0)] if answer == "bad" else []


class Restless:
    name = "restless"
    defaults = TaskDefaults(max_length=64, batch_size=4, patience=1)
    constraints = (Constraint(name="good", check=check, message="is bad", weight=0.5),)

    def parse(self, problem, text):
        print("plug-ins may print")
        return text

    def render(self, problem, answer):
        return answer

    def vote_key(self, problem, answer):
        return answer


add_task("restless", Restless)
'''
PROBLEM = Problem(task="restless", problem_id="p", prompt="?", data={"half": "\ud800"})


def candidate(text):
    return Candidate(candidate_id=text, task="restless", problem_id="p", generator="g", text=text)


@pytest.fixture(scope="module")
def plug_in(tmp_path_factory):
    """A module that child processes import."""
    folder = tmp_path_factory.mktemp("plug-in")
    (folder / "restless_task.py").write_text(TASK)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAYDEBM_EXTENSIONS", "restless_task")
        environment.setenv("PYTHONPATH", str(folder), prepend=":")
        yield


@pytest.fixture
def reporter_of(plug_in):
    """Makes reporters, and closes them."""
    made = []

    def make(deadline_s, max_children=1):
        made.append(Reporter(deadline_s=deadline_s, max_children=max_children))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()


@pytest.mark.parametrize("hanging", ["sleep", "spin"])
def test_a_check_that_hangs_fails_its_candidate_and_no_other(reporter_of, hanging):
    reporter = reporter_of(60.0)
    first = reporter.reports(PROBLEM, [candidate("good")])
    reporter._deadline_s = 0.5
    hung = reporter.reports(PROBLEM, [candidate(hanging)])
    reporter._deadline_s = 60.0
    last = reporter.reports(PROBLEM, [candidate("bad")])

    assert [report.penalty for report in (*first, *hung, *last)] == [0.0, float("inf"), 0.5]
    assert hung[0].error == "the checks of task 'restless': their process took longer than 0.5 s and was stopped"
    assert hung[0].answer is None


def test_a_check_that_ends_the_process_or_raises_fails_alone(reporter_of):
    reports = reporter_of(60.0).reports(PROBLEM, [candidate(text) for text in ("exit", "crash", "good")])

    assert reports[0].error == "the checks of task 'restless': their process ended with exit code 3"
    assert reports[1].error == "the checks of task 'restless' raised RuntimeError('no')"
    assert (reports[2].penalty, reports[2].answer) == (0.0, "good")


def test_others_are_checked_while_one_hangs(reporter_of):
    reporter = reporter_of(60.0, max_children=2)
    reporter.reports(PROBLEM, [candidate("good"), candidate("good")])  # both children are up, or one is
    hanging = reporter.submit(PROBLEM, candidate("sleep"))

    assert reporter.submit(PROBLEM, candidate("good")).result(timeout=50).penalty == 0.0
    assert not hanging.done()


def test_one_child_checks_for_several_tasks(reporter_of):
    config = TaskConfig(name="knights_knaves")  # of another task, which is then known by its name
    problem = Problem(task="gsm8k", problem_id="q", prompt="1 + 1?")
    reporter = reporter_of(60.0)
    (report,) = reporter.reports(
        problem, [Candidate(candidate_id="c", task="gsm8k", problem_id="q", generator="g", text="#### 2")], config
    )
    (other,) = reporter.reports(PROBLEM, [candidate("good")])

    assert (report.answer, other.answer) == ("#### 2", "good")
    assert len(reporter._children) == 1


def test_a_task_that_the_child_does_not_know_is_named(reporter_of):
    (report,) = reporter_of(60.0).reports(replace(PROBLEM, task="elsewhere"), [candidate("good")])

    assert report.error is not None
    assert "elsewhere" in report.error


def test_a_closed_reporter_leaves_no_process(reporter_of):
    reporter = reporter_of(60.0)
    reporter.reports(PROBLEM, [candidate("good")])
    (child,) = reporter._children
    process = child._child._process
    reporter.close()

    assert process.poll() is not None


ASKING = """
from raydebm.records import Candidate, Problem
from raydebm.decision.reporter import Reporter

reporter = Reporter(deadline_s=60.0, max_children=1)
for text in ("good", "spin"):
    candidate = Candidate(candidate_id=text, task="restless", problem_id="p", generator="g", text=text)
    reporter.submit(Problem(task="restless", problem_id="p", prompt="?"), candidate).result()
    print(reporter._children[0].pid, flush=True)
    reporter._deadline_s = 3.0
"""


def test_a_check_that_hangs_does_not_outlive_a_process_that_was_killed(plug_in):
    """What asks is killed while the check spins, so that nothing else keeps the deadline."""
    asking = subprocess.Popen([sys.executable, "-c", ASKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = Path("/proc", asking.stdout.readline().strip())
    time.sleep(1)
    asking.send_signal(signal.SIGKILL)
    asking.communicate()

    latest = time.monotonic() + 60
    while child.exists() and time.monotonic() < latest:
        time.sleep(0.2)
    assert not child.exists()
