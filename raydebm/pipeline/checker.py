"""Labels and gold-free reports of single candidates, in a process that is killed when a checker hangs.

A time limit inside the process would depend on the checker's cooperation: signals reach only the main thread, and only
between Python's own steps. So a child process checks one candidate at a time; one that takes too long is killed, its
row has the error, and a new child continues with the next.

The protocol is JSON lines. In: the recipe's ``task`` section, then ``{"problem", "gold", "candidate"}`` rows with their
``deadline_s``. Out: ``{"label", "report"}`` rows.
"""

import json
import os
import sys

from raydebm.config import TaskConfig
from raydebm.decision.sampling.checks import check_candidate, unchecked
from raydebm.records import Candidate, ConstraintReport, Gold, Label, Problem, Verdict
from raydebm.run.tables import CANDIDATES, GOLDS, LABELS, PROBLEM, REPORTS
from raydebm.tasks import task_of
from raydebm.tasks.child import Child, ChildLostError, LastingChild, ending_itself
from raydebm.tasks.labels import label_candidate

START_S = 60.0
"""Time limit for a child to start and import its task's plug-in."""


class DeadlineChecker:
    """Checker of one task's candidates, each within a time limit. Not thread-safe."""

    def __init__(self, task: TaskConfig, *, deadline_s: float) -> None:
        self._task, self._deadline_s = task, deadline_s
        self._child = LastingChild(lambda: _start(task))

    def check(self, problem: Problem, gold: Gold | None, candidate: Candidate) -> tuple[Label, ConstraintReport]:
        """Label and report of a candidate. Never raises: a hang or crash is an error in both."""
        request = {
            "problem": PROBLEM.row(problem),
            "gold": None if gold is None else GOLDS.row(gold),
            "candidate": CANDIDATES.row(candidate),
            "deadline_s": self._deadline_s,
        }
        try:
            reply = self._child.ask(request, timeout_s=self._deadline_s)
        except ChildLostError as error:
            return _unchecked(candidate, f"the checker of task {self._task.name!r} {error}")
        return LABELS.record(reply["label"]), REPORTS.record(reply["report"])

    def close(self) -> None:
        """End the child process; a later check starts another one."""
        self._child.close()


def _unchecked(candidate: Candidate, reason: str) -> tuple[Label, ConstraintReport]:
    label = Label(
        candidate_id=candidate.candidate_id, problem_id=candidate.problem_id, verdict=Verdict.UNLABELED, reason=reason
    )
    return label, unchecked(candidate.candidate_id, reason)


def _start(task: TaskConfig) -> Child:
    child = Child([sys.executable, "-m", "raydebm.pipeline.checker"])
    child.ask(task.model_dump(mode="json"), timeout_s=START_S)
    return child


def _serve() -> None:
    """Main loop of the child: read the task, then answer one line per line until the input ends."""
    # Replies have their own descriptor; a plug-in's prints go to stderr.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with ending_itself(START_S):
        task = task_of(TaskConfig.model_validate_json(sys.stdin.readline()))
    print(json.dumps({"ready": task.name}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        problem = PROBLEM.record(request["problem"])
        gold = None if request["gold"] is None else GOLDS.record(request["gold"])
        candidate = CANDIDATES.record(request["candidate"])
        with ending_itself(request["deadline_s"]):
            reply = {
                "label": LABELS.row(label_candidate(task, problem, gold, candidate)),
                "report": REPORTS.row(check_candidate(task, problem, candidate)),
            }
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    _serve()
