"""Labels and gold-free reports of single candidates, in a process that can be ended when a checker hangs.

A time limit inside the process would depend on the checker's cooperation: signals reach only the main thread, and
only between Python's own steps. So a child process checks one candidate at a time; one that takes too long is killed,
its row says so, and a new child goes on with the next.

The child speaks JSON lines: ``{"problem", "gold", "candidate"}`` rows in, ``{"label", "report"}`` rows out.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from raydebm.labels import label_candidate
from raydebm.records import Candidate, Gold, Label, Problem, Verdict
from raydebm.store import (
    Row,
    candidate_of,
    candidate_row,
    gold_of,
    gold_row,
    label_row,
    problem_of,
    problem_row,
    report_row,
)
from raydebm.tasks import get_task
from raydebm.triage.constraints import check_candidate, unchecked

START_S = 60.0
"""Time for a child to come up and import its task's plug-in."""


class DeadlineChecker:
    """Checks candidates of one task, each within a time limit. Not for several threads at once."""

    def __init__(self, task: str, *, deadline_s: float) -> None:
        self._task, self._deadline_s = task, deadline_s
        self._child: _Child | None = None

    def check(self, problem: Problem, gold: Gold | None, candidate: Candidate) -> tuple[Row, Row]:
        """The label row and the report row. Never raises: what hung or broke down says so in both."""
        request = {
            "problem": problem_row(problem, ""),
            "gold": None if gold is None else gold_row(gold),
            "candidate": candidate_row(candidate),
        }
        try:
            if self._child is None:
                self._child = _Child(self._task)
            reply = self._child.ask(request, timeout_s=self._deadline_s)
        except _ChildLostError as error:
            self.close()
            return _unchecked_rows(candidate, f"the checker of task {self._task!r} {error}")
        return reply["label"], reply["report"]

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def _unchecked_rows(candidate: Candidate, reason: str) -> tuple[Row, Row]:
    label = Label(
        candidate_id=candidate.candidate_id, problem_id=candidate.problem_id, verdict=Verdict.UNLABELED, reason=reason
    )
    return label_row(label), report_row(unchecked(candidate.candidate_id, reason))


class _ChildLostError(Exception):
    """The child hung or died; the message goes on after "the checker of task 'x'"."""


class _Child:
    def __init__(self, task: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raydebm.distributed.checking", task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._receive(START_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _ChildLostError(f"is not reachable: {error}") from error
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise _ChildLostError(f"took longer than {timeout_s:g} s and was stopped") from None
        if not line:
            raise _ChildLostError(f"ended its process with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                _close_quietly(stream)


def _close_quietly(stream: IO[str]) -> None:
    try:
        stream.close()
    except OSError:  # what was still to be sent to a dead child
        return


def _serve(task_name: str) -> None:
    """The child: answer one line with one line until the input ends."""
    # Replies get a descriptor of their own; whatever a plug-in prints goes to stderr.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    task = get_task(task_name)
    print(json.dumps({"ready": task_name}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        problem = problem_of(request["problem"])
        gold = None if request["gold"] is None else gold_of(request["gold"])
        candidate = candidate_of(request["candidate"])
        reply = {
            "label": label_row(label_candidate(task, problem, gold, candidate)),
            "report": report_row(check_candidate(task, problem, candidate)),
        }
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
