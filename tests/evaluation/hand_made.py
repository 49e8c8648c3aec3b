"""Small pools written by hand, one tuple per candidate, and what follows from them."""

import math

from raydebm.evaluation.pools.pool import pool_of
from raydebm.evaluation.results.evaluate import EvaluationInputs, evaluate
from raydebm.evaluation.studies.study import Subject, study
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Label,
    Problem,
    Sampling,
    ScoredCandidate,
    Verdict,
    Violation,
)

VERDICTS = {1: Verdict.CORRECT, 0: Verdict.INCORRECT, None: Verdict.UNLABELED}


def make_item(
    name,
    *,
    members=None,
    penalty=0.0,
    key="k",
    generator="g",
    text="text",
    problem_id="p",
    greedy=False,
    pass_index=1,
    broken=(),
    finish_reason=None,
    cost_usd=None,
):
    parsed = not math.isinf(penalty)
    return ScoredCandidate(
        candidate=Candidate(
            candidate_id=name,
            task="toy",
            problem_id=problem_id,
            generator=generator,
            text=text,
            error=None if text is not None else "HTTP 500",
            pass_index=pass_index,
            sampling=Sampling(temperature=0.0) if greedy else Sampling(),
            finish_reason=finish_reason,
            cost_usd=cost_usd,
        ),
        report=ConstraintReport(
            candidate_id=name,
            answer=key if parsed else None,
            vote_key=key if parsed else None,
            penalty=penalty,
            violations=tuple(
                Violation(constraint=constraint, penalty=amount, weight=1.0, message="broken")
                for constraint, amount in broken
            ),
        ),
        energies=None if members is None else Energies(candidate_id=name, members=members),
    )


def make_pool(*rows, problem_id="p", difficulty="", violations=None, scores=None, dimensions=None):
    """Rows are (correct: 1, 0 or None, fields of ``make_item``); names are a, b, c, ..., prefixed with the problem.

    ``scores`` holds one list per scorer, ``dimensions`` one mapping per candidate, both in the order of the rows.
    """
    items, labels = [], {}
    for index, (correct, fields) in enumerate(rows):
        name = f"{problem_id}{chr(ord('a') + index)}"
        items.append(make_item(name, problem_id=problem_id, **fields))
        labels[name] = Label(
            candidate_id=name,
            problem_id=problem_id,
            verdict=VERDICTS[correct],
            violation_score=None if violations is None else violations[index],
            parts={} if dimensions is None else dimensions[index],
        )
    problem = Problem(task="toy", problem_id=problem_id, prompt="?", difficulty=difficulty)
    return pool_of(
        problem,
        [found for found in items if not found.candidate.is_greedy],
        greedy=[found for found in items if found.candidate.is_greedy],
        labels=labels,
        scores={name: dict(zip(labels, values, strict=True)) for name, values in (scores or {}).items()},
    )


def studied(pools, validation=(), *, name="", grid=(), train=(), subject=None, **inputs):
    """Evaluate and study pools; ``subject`` holds further fields of ``Subject``."""
    evaluation = evaluate(EvaluationInputs(pools=pools, validation=validation, title=name, **inputs))
    return study(evaluation, pools, subject=Subject(name=name, **(subject or {})), grid=grid, train=train)
