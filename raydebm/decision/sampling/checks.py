"""Check one candidate without gold answers: parse it, run the task's constraints, sum the penalties (paper section
3.4)."""

import math
from dataclasses import replace
from typing import Any

from raydebm.records import Candidate, ConstraintReport, Problem, well_formed
from raydebm.tasks.base import Task
from raydebm.tasks.constraints import proof_of, violations_of
from raydebm.tasks.fields import HasFields, named_path, value_key


def check_candidate(task: Task, problem: Problem, candidate: Candidate) -> ConstraintReport:
    """E_constraint = sum_j w_j C_j of a candidate. Never raises.

    E_constraint is +inf if the candidate has no text, does not parse, or its checker crashed or returned an invalid
    penalty; the candidate cannot be selected then. ``error`` has the reason, except for text that does not parse.
    """
    if candidate.text is None:
        return unchecked(candidate.candidate_id, f"no text to check: {candidate.error}")
    try:
        return _check(task, problem, candidate.candidate_id, candidate.text)
    except Exception as error:  # noqa: BLE001 - a plug-in's checker may raise anything; one candidate must not end a run
        return unchecked(candidate.candidate_id, f"the checks of task {task.name!r} raised {error!r}")


def unchecked(candidate_id: str, error: str) -> ConstraintReport:
    """Report of a candidate that could not be checked. Not selectable."""
    return ConstraintReport(candidate_id=candidate_id, answer=None, vote_key=None, penalty=math.inf, error=error)


def _check(task: Task, problem: Problem, candidate_id: str, text: str) -> ConstraintReport:
    answer = task.parse(problem, text)
    if answer is None:
        return ConstraintReport(candidate_id=candidate_id, answer=None, vote_key=None, penalty=math.inf)
    # JSON can encode a lone surrogate, which cannot be written, stored or sent as UTF-8.
    violations = tuple(
        replace(
            violation,
            message=well_formed(violation.message),
            path=well_formed(named_path(violation.path, answer, getattr(task, "answer_schema", None))),
        )
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
        **_fields(task, problem, answer),
    )


def _fields(task: Task, problem: Problem, answer: Any) -> dict[str, Any]:
    if not isinstance(task, HasFields):
        return {}
    values = task.fields(problem, answer)
    fields = {well_formed(path): well_formed(value_key(value)) for path, value in values.items()}
    tolerance = getattr(task, "field_tolerance", None)
    return {"fields": fields, "field_tolerance": 0.0 if tolerance is None else tolerance(problem)}
