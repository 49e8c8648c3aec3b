"""Gold-free reports on candidates, by processes that are killed when a check hangs.

A check that never ends must fail its own candidate and no other. Python cannot interrupt such a check within its own
process, so a child process checks each candidate and is killed when it takes too long. Several children work
concurrently.

The protocol is JSON lines: ``{"task", "problem", "candidate", "deadline_s"}`` rows in, where ``task`` is the recipe's
section as JSON or null, and ``{"report"}`` rows out. A child checks for any number of tasks. Independent of: gold.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from raydebm.config import TaskConfig
from raydebm.cpus import usable_cpus
from raydebm.decision.sampling.checks import check_candidate, unchecked
from raydebm.errors import RaydebmError
from raydebm.records import Candidate, ConstraintReport, Problem
from raydebm.run.tables import CANDIDATES, PROBLEM, REPORTS
from raydebm.tasks import get_task, task_of
from raydebm.tasks.base import Task
from raydebm.tasks.child import ChildLostError, LastingChild, module_child, serve

DEADLINE_S = 30.0
"""Time limit of one candidate's checks in a service, public tests included."""
MAX_TASKS = 64
"""Maximum number of task definitions that a child caches."""


class Reporter:
    """Concurrent checker of candidates, each within a time limit. Thread-safe."""

    def __init__(self, *, deadline_s: float, max_children: int | None = None) -> None:
        """Args:
        deadline_s: time limit per candidate in seconds, from the start of its check.
        max_children: maximum number of children. Default: one per usable CPU.
        """
        self._deadline_s = deadline_s
        self.max_children = max_children or usable_cpus()
        self._threads = ThreadPoolExecutor(self.max_children, thread_name_prefix="raydebm-checks")
        self._own = threading.local()
        self._children: list[LastingChild] = []

    def start(self) -> "Future[None]":
        """Start the first child before the first candidate arrives."""
        return self._threads.submit(self._start_one)

    def submit(
        self, problem: Problem, candidate: Candidate, task: TaskConfig | None = None
    ) -> "Future[ConstraintReport]":
        """Future of the report. Never raises: if the check hung or crashed, the report has ``error``.

        Args:
            problem: problem that the candidate answers.
            candidate: candidate with or without text.
            task: recipe section of a user-defined task. Default: the task is found by its name.
        """
        return self._threads.submit(self._report, problem, candidate, task)

    def reports(
        self, problem: Problem, candidates: Sequence[Candidate], task: TaskConfig | None = None
    ) -> list[ConstraintReport]:
        """One report per candidate, in order."""
        return [report.result() for report in [self.submit(problem, candidate, task) for candidate in candidates]]

    def close(self) -> None:
        """Stop the children and drop the waiting candidates."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.close()

    def _start_one(self) -> None:
        try:
            self._child().start()
        except ChildLostError:
            return  # the first candidate tries again, and its report has the error if that fails too

    def _child(self) -> LastingChild:
        if not hasattr(self._own, "child"):
            self._own.child = LastingChild(lambda: module_child(__name__))
            self._children.append(self._own.child)
        child: LastingChild = self._own.child
        return child

    def _report(self, problem: Problem, candidate: Candidate, task: TaskConfig | None) -> ConstraintReport:
        request = {
            "task": None if task is None else task.model_dump_json(),
            "problem": PROBLEM.row(problem),
            "candidate": CANDIDATES.row(candidate),
            "deadline_s": self._deadline_s,
        }
        try:
            reply = self._child().ask(request, timeout_s=self._deadline_s)
        except ChildLostError as error:
            return unchecked(candidate.candidate_id, f"the checks of task {problem.task!r}: their process {error}")
        return REPORTS.record(reply["report"])


@lru_cache(maxsize=MAX_TASKS)
def _task(name: str, section: str | None) -> Task:
    """Task by name, or from the JSON of a recipe section."""
    return get_task(name) if section is None else task_of(TaskConfig.model_validate_json(section), name)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """The child's reply."""
    problem, candidate = PROBLEM.record(request["problem"]), CANDIDATES.record(request["candidate"])
    try:
        report = check_candidate(_task(problem.task, request["task"]), problem, candidate)
    except RaydebmError as error:  # for example, only the parent process has added the task
        report = unchecked(candidate.candidate_id, str(error))
    return {"report": REPORTS.row(report)}


if __name__ == "__main__":
    serve(lambda _: _answer)
