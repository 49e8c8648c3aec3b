"""Gold-free checks of one candidate: parse it, run the task's constraints, add up the penalty (paper section 3.4)."""

import math
from dataclasses import replace

from raydebm.constraints import proof_of, violations_of
from raydebm.records import Candidate, ConstraintReport, Problem, well_formed
from raydebm.tasks.base import Task


def check_candidate(task: Task, problem: Problem, candidate: Candidate) -> ConstraintReport:
    """E_constraint = sum_j w_j C_j of a candidate. Never raises.

    A candidate without text, one that does not parse, and one whose checker crashed or returned something that is not
    a penalty all get +inf: none of them may be selected. ``error`` says why where it was not the candidate's words.
    """
    if candidate.text is None:
        return unchecked(candidate.candidate_id, f"no text to check: {candidate.error}")
    try:
        return _check(task, problem, candidate.candidate_id, candidate.text)
    except Exception as error:  # noqa: BLE001 - a plug-in's checker may raise anything; one candidate must not end a run
        return unchecked(candidate.candidate_id, f"the checks of task {task.name!r} raised {error!r}")


def unchecked(candidate_id: str, error: str) -> ConstraintReport:
    """The report of a candidate that could not be checked: never selectable."""
    return ConstraintReport(candidate_id=candidate_id, answer=None, vote_key=None, penalty=math.inf, error=error)


def _check(task: Task, problem: Problem, candidate_id: str, text: str) -> ConstraintReport:
    answer = task.parse(problem, text)
    if answer is None:
        return ConstraintReport(candidate_id=candidate_id, answer=None, vote_key=None, penalty=math.inf)
    # A plan in JSON can spell half a character; writing the answer down, storing it or asking again would raise.
    violations = tuple(
        replace(violation, message=well_formed(violation.message))
        for violation in violations_of(task.constraints, problem, answer)
    )
    proof = proof_of(task.constraints, problem, violations)
    return ConstraintReport(
        candidate_id=candidate_id,
        answer=well_formed(task.render(problem, answer)),
        vote_key=well_formed(task.vote_key(problem, answer)),
        penalty=math.fsum(violation.weight * violation.penalty for violation in violations),
        violations=violations,
        proof=proof.holds,
        note=well_formed(proof.note),
    )
