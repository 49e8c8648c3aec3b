"""Small pools written by hand, one tuple per candidate, and what follows from them."""

import math

from raydebm.evaluation.pools.pool import pool_of
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.evaluating import EvaluationInputs, evaluate
from raydebm.evaluation.studies.overview import example_of
from raydebm.evaluation.studies.study import Subject, study
from raydebm.records import Label, Problem, Sampling, Verdict, Violation
from raydebm.testing import scored_candidate

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
    return scored_candidate(
        None if math.isinf(penalty) else key,
        candidate_id=name,
        energies=members,
        penalty=penalty,
        violations=[
            Violation(constraint=constraint, penalty=amount, weight=1.0, message="broken")
            for constraint, amount in broken
        ],
        task="toy",
        problem_id=problem_id,
        generator=generator,
        text=text,
        pass_index=pass_index,
        sampling=Sampling(temperature=0.0) if greedy else Sampling(),
        finish_reason=finish_reason,
        cost_usd=cost_usd,
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
        [scored for scored in items if not scored.candidate.is_greedy],
        greedy=[scored for scored in items if scored.candidate.is_greedy],
        labels=labels,
        scores={name: dict(zip(labels, values, strict=True)) for name, values in (scores or {}).items()},
    )


def studied(pools, validation=(), *, name="", train=(), subject=None, **inputs):
    """Evaluate and study pools; ``subject`` holds further fields of ``Subject``."""
    stack = Stack.of(pools)
    evaluation = evaluate(EvaluationInputs(pools=stack, validation=Stack.of(validation), title=name, **inputs))
    return study(
        evaluation,
        stack,
        subject=Subject(name=name, **(subject or {})),
        train=Stack.of(train),
        example=example_of(pools, lambda_=evaluation.policy["lambda"]),
    )
