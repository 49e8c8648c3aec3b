"""Labels: verdicts on candidates by the checkers of their tasks.

In:   a problem, its gold, a candidate.
Out:  always a Label. A candidate that could not be checked is unlabeled; it does not count as incorrect.
"""

from raydebm.records import Candidate, Gold, Label, Problem
from raydebm.tasks.base import Judgement, Task, unlabeled


def label_candidate(task: Task, problem: Problem, gold: Gold | None, candidate: Candidate) -> Label:
    """Label a candidate. Errors of the checker are not raised; they become the label's reason."""
    judgement = _judge(task, problem, gold, candidate)
    return Label(
        candidate_id=candidate.candidate_id,
        problem_id=candidate.problem_id,
        verdict=judgement.verdict,
        violation_score=judgement.violation_score,
        parts=dict(judgement.parts),
        severity=judgement.severity,
        reason=judgement.reason,
        fields=dict(judgement.fields),
    )


def _judge(task: Task, problem: Problem, gold: Gold | None, candidate: Candidate) -> Judgement:
    if candidate.error is not None or candidate.text is None:
        return unlabeled(f"no completion: {candidate.error or 'no text'}")
    if gold is None:
        return unlabeled("no reference answer for this problem")
    if not problem.problem_id == gold.problem_id == candidate.problem_id:
        return unlabeled(
            f"ids differ: problem {problem.problem_id!r}, gold {gold.problem_id!r}, candidate {candidate.problem_id!r}"
        )
    try:
        judgement = task.judge(problem, gold, candidate.text)
    except Exception as error:  # noqa: BLE001 - a checker that fails on one text must not end the run
        return unlabeled(f"the checker of {task.name} failed: {type(error).__name__}: {error}")
    fault = _fault(judgement)
    return judgement if fault is None else unlabeled(f"the checker of {task.name} gave {fault}, which is not in [0, 1]")


def _fault(judgement: Judgement) -> str | None:
    """The first number of a judgement that is out of range, with its name; None if all are in range."""
    score = judgement.violation_score
    named = {} if score is None else {"violation score": score}
    named |= {f"part {name!r} of the violation score as": value for name, value in judgement.parts.items()}
    return next((f"{name} {value}" for name, value in named.items() if not 0 <= value <= 1), None)  # NaN, too
