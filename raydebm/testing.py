"""Helpers for tests of a task, a term of evidence or a selector: candidates and pools in one line each.

- ``check(task, problem, text)``: constraint report of one answer
- ``scored_candidate("A", energies=...)``: a candidate with the answer A
- ``labelled_pool(right, wrong, right=["A"])``: a pool with labels; ``.of_pools([0] * 40)`` is 40 problems like it
- ``chances(weights, pool)``: a selector's probabilities, in the pool's order
- ``measured(term, candidates)``: a term's value by answer
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raydebm.decision.evidence.terms import PLAIN, Reference, Term, TermInputs
from raydebm.decision.sampling.checks import check_candidate
from raydebm.decision.table import PoolTable
from raydebm.evaluation.selectors import Weights
from raydebm.identity import content_id
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Label,
    Problem,
    ScoredCandidate,
    Verdict,
    Violation,
)
from raydebm.tasks import find_task
from raydebm.tasks.base import Task


def check(task: Task | str, problem: Problem | str, text: str) -> ConstraintReport:
    """Parse an answer and check it with the task's constraints, without gold.

    Args:
        task: a task, its name, or the path of a task file.
        problem: a problem, or its text as a client types it.
        text: the whole completion.

    Raises:
        UnknownNameError: no task has this name.
        ConfigError: the task file is missing or wrong.
        TaskDataError: the text is not a problem of the task.
    """
    loaded_task = find_task(task) if isinstance(task, str) else task
    asked = loaded_task.problem_from_text(problem) if isinstance(problem, str) else problem
    candidate = Candidate(
        candidate_id="candidate", task=loaded_task.name, problem_id=asked.problem_id, generator="author", text=text
    )
    return check_candidate(loaded_task, asked, candidate)


def scored_candidate(
    answer: str | None,
    *,
    energies: Iterable[float] | None = None,
    penalty: float = 0.0,
    violations: Sequence[Violation] = (),
    proof: bool | None = None,
    check_error: str | None = None,
    **fields: Any,
) -> ScoredCandidate:
    """A checked and scored candidate.

    Args:
        answer: the parsed answer; candidates with the same answer agree. None for a text without an answer.
        energies: one per adapter. Default: not scored.
        penalty: E_constraint; +inf without an answer.
        violations: violated constraints.
        proof: True or False if an exact constraint proves the answer right or wrong.
        check_error: error of the check.
        **fields: fields of ``raydebm.records.Candidate``, such as ``generator``, ``text=None`` (a failed request) or
            ``finish_reason``. The default id is derived from all arguments.
    """
    values = None if energies is None else tuple(energies)
    own = {"task": "task", "problem_id": "problem", "generator": "author", "text": answer or "text", **fields}
    if own["text"] is None:
        own = {"error": "HTTP 500", **own}
    name = str(own.pop("candidate_id", content_id(repr((answer, values, penalty, sorted(own.items()))))))
    return ScoredCandidate(
        candidate=Candidate(candidate_id=name, **own),
        report=ConstraintReport(
            candidate_id=name,
            answer=answer,
            vote_key=answer,
            penalty=math.inf if answer is None else penalty,
            violations=tuple(violations),
            proof=proof,
            error=check_error,
        ),
        energies=None if values is None else Energies(candidate_id=name, members=values),
    )


def labelled_pool(*candidates: ScoredCandidate, right: Sequence[str], problem: Problem | None = None) -> PoolTable:
    """One problem's candidates, in this order; those with an answer in ``right`` are correct, the others incorrect."""
    asked = problem or Problem(task="task", problem_id="problem", prompt="?")
    labels = {
        scored.candidate.candidate_id: Label(
            candidate_id=scored.candidate.candidate_id,
            problem_id=asked.problem_id,
            verdict=Verdict.CORRECT if scored.report.answer in right else Verdict.INCORRECT,
        )
        for scored in candidates
    }
    return PoolTable.of([candidates], problems=[asked], labels=labels)


def chances(weights: Weights, pool: PoolTable) -> list[float]:
    """Selection probability of each candidate of a pool, in the pool's order.

    Args:
        weights: weights of a selector (``Selector.weights``).
        pool: pool of candidates, without greedy ones.
    """
    return [float(chance) for _, chance in sorted(zip(pool.place_of_row, weights(pool), strict=True))]


def measured(
    term: Term, candidates: Sequence[ScoredCandidate], reference: Reference = PLAIN
) -> Mapping[str, float] | float:
    """A term's value by answer, or one value for a term about "none of them".

    Args:
        term: term of evidence to measure.
        candidates: pool of one problem.
        reference: known facts about authors. Default: none.
    """
    table = PoolTable.of([candidates]).answered
    values = [float(value) for value in term.measure(TermInputs(table=table, reference=reference))]
    if term.about == "none":
        return values[0]
    return dict(zip((cluster.key for cluster in table.clusters[0]), values, strict=True))
