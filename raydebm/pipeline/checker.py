"""Labels of and gold-free reports on single candidates, by a process that is killed when a checker hangs.

A time limit inside the process would depend on the checker's cooperation: signals reach only the main thread, and only
between Python's own steps. So a child process checks one candidate at a time; one that takes too long is killed, its
row has the error, and a new child continues with the next.

The protocol is JSON lines. In: the recipe's ``task`` section, then ``{"problem", "gold", "candidate"}`` rows with their
``deadline_s``. Out: ``{"label", "report"}`` rows.
"""

from collections.abc import Callable
from typing import Any

from raydebm.config import TaskConfig
from raydebm.decision.sampling.checks import check_candidate, unchecked
from raydebm.records import Candidate, ConstraintReport, Gold, Label, Problem, Verdict
from raydebm.run.tables import CANDIDATES, GOLDS, LABELS, PROBLEM, REPORTS
from raydebm.tasks import task_of
from raydebm.tasks.child import ChildLostError, LastingChild, module_child, serve
from raydebm.tasks.labels import label_candidate


class DeadlineChecker:
    """Checker of one task's candidates, each within a time limit. Not thread-safe."""

    def __init__(self, task: TaskConfig, *, deadline_s: float) -> None:
        self._task, self._deadline_s = task, deadline_s
        self._child = LastingChild(lambda: module_child(__name__, task.model_dump(mode="json")))

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
            reason, name = f"the checker of task {self._task.name!r} {error}", candidate.candidate_id
            verdict = Verdict.UNLABELED
            label = Label(candidate_id=name, problem_id=candidate.problem_id, verdict=verdict, reason=reason)
            return label, unchecked(name, reason)
        return LABELS.record(reply["label"]), REPORTS.record(reply["report"])

    def close(self) -> None:
        """End the child process; a later check starts another one."""
        self._child.close()


def _answers(section: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The child's function, for the recipe's ``task`` section."""
    task = task_of(TaskConfig.model_validate(section))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        problem, candidate = PROBLEM.record(request["problem"]), CANDIDATES.record(request["candidate"])
        gold = None if request["gold"] is None else GOLDS.record(request["gold"])
        return {
            "label": LABELS.row(label_candidate(task, problem, gold, candidate)),
            "report": REPORTS.row(check_candidate(task, problem, candidate)),
        }

    return answer


if __name__ == "__main__":
    serve(_answers)
