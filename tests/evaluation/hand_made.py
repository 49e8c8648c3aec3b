"""Small pools written by hand, one tuple per candidate, and what follows from them."""

import math
import random
import re
from dataclasses import dataclass

from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.evaluation.results.evaluation import EvaluationInputs, evaluate
from raydebm.evaluation.studies.study import Subject, study
from raydebm.records import Decision, Label, Outcome, PassRecord, Problem, Sampling, Verdict, Violation
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


@dataclass(frozen=True, kw_only=True)
class Pool:
    problem: Problem
    candidates: list
    greedy: list
    labels: dict
    scores: dict


def table_of(pools):
    """The table of one pool or several."""
    if isinstance(pools, PoolTable):
        return pools
    pools = [pools] if isinstance(pools, Pool) else list(pools)
    names = dict.fromkeys(name for pool in pools for name in pool.scores)
    return PoolTable.of(
        [pool.candidates for pool in pools],
        problems=[pool.problem for pool in pools],
        labels={name: label for pool in pools for name, label in pool.labels.items()},
        scores={name: {k: v for pool in pools for k, v in pool.scores.get(name, {}).items()} for name in names},
        greedy=[pool.greedy for pool in pools],
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
    return Pool(
        problem=problem,
        candidates=[scored for scored in items if not scored.candidate.is_greedy],
        greedy=[scored for scored in items if scored.candidate.is_greedy],
        labels=labels,
        scores={name: dict(zip(labels, values, strict=True)) for name, values in (scores or {}).items()},
    )


def random_pools(*, prefix="p", num_problems=40, continuous=False, seed=0):
    """Energies of three adapters lean towards the truth; four generators, a constraint, two judges, two groups."""
    rng = random.Random(seed)
    pools = []
    for index in range(num_problems):
        ease, rows, judged = rng.gauss(0, 1), [], []
        for _ in range(8):
            generator = rng.choice(["llama-3.1-8b", "qwen-2.5-7b", "gemma", "gpt-oss"])
            correct = int(rng.random() < 1 / (1 + math.exp(-ease)))
            mu, penalty = 1.0 - correct + rng.gauss(0, 0.8), 0.0 if correct else rng.choice([0.0, 0.5, 1.0, math.inf])
            fields = {
                "members": tuple(mu + rng.gauss(0, 0.2 + 0.3 * abs(ease)) for _ in range(3)),
                "penalty": penalty,
                "broken": [("budget", penalty)] if 0 < penalty < math.inf else (),
                "key": "right" if correct else rng.choice(["wrong", "other"]),
                "generator": generator,
                "text": "x" * rng.randint(10, 90),
            }
            rows.append((None if rng.random() < 0.02 else correct, fields))
            judged.append(correct + rng.gauss(0, 1))
        pools.append(
            make_pool(
                *rows,
                problem_id=f"{prefix}{index:03d}-",
                difficulty=f"{2 + index % 2 * 8} people",
                scores={"judge one": judged, "judge two": [score + rng.gauss(0, 1) for score in judged]},
                violations=[0.0 if label else rng.random() for label, _ in rows] if continuous else None,
            )
        )
    return pools


def outcome_of(pool, best, *, decision=Decision.ACCEPT, first=None, num_passes=1):
    """The loop selects ``first`` and then ``best``."""
    selected = [first or best] * (num_passes - 1) + [best]
    records = [
        PassRecord(
            pass_index=index,
            num_requested=1,
            num_failed=0,
            selected=scored.candidate.candidate_id,
            sigma=0.0,
            penalty=0.0,
            decision=decision if index == num_passes else Decision.REGENERATE,
        )
        for index, scored in enumerate(selected, start=1)
    ]
    return Outcome(
        problem=pool.problem, decision=decision, best=best, passes=tuple(records), pool=pool.candidates, reason=""
    )


def evaluated(pools, **inputs):
    """Evaluate pools by the paper's rule."""
    given = {"policy": Policy(), "task": "toy"} | inputs
    return evaluate(EvaluationInputs(pools=table_of(pools), **given))


def studied(pools, validation=(), *, name="", train=(), subject=None, **inputs):
    """Evaluate and study pools; ``subject`` holds further fields of ``Subject``."""
    evaluation = evaluated(pools, validation=table_of(validation), title=name, **inputs)
    return study(evaluation, table_of(pools), subject=Subject(name=name, **(subject or {})), train=table_of(train))


def cell(reproduced, label, row, column="GSM8K"):
    """Cell of a table of the paper."""
    table = next(table for table in reproduced.tables if table.label == label)
    return dict(table.rows)[row][table.columns.index(column)]


def cells(table):
    """Rows without the intervals, which are drawn at random."""
    return [tuple(re.sub(r" \[[^\]]*\]", "", text) for text in row) for row in table.rows]
