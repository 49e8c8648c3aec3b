"""Case studies of selections, by generator and difficulty (paper, confounding analysis, phase 6).

Two questions, answered from energies alone. Whose answers are selected on which kind of problem? And where was a wrong
answer selected although its pool has a right one: on which problems, whose was either, and by how much did the right
one lose? A scorer that recognises authors errs for one of them, on the problems where that one is wrong.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.report.table_cells import Table

MAX_SHOWN = 20
"""Cases in the table; the data has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A wrong selection from a pool that has a right answer."""

    problem_id: str
    difficulty: str
    picked: str
    """Generator of the selection."""
    right: str
    """Generator of the right answer with the lowest E."""
    num_right: int
    """Right answers in the pool."""
    num_candidates: int
    margin: float | None
    """E of that right answer minus E of the selection; None where no right answer can be selected."""
    margin_mu: float | None
    """The same of mu; None where the right answer was not scored."""
    sigma: float | None
    """Sigma of the selection; None with a single adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCount:
    """The selections of one generator's answers on problems of one difficulty."""

    generator: str
    difficulty: str
    num_picked: int
    num_right: int
    """Right ones among them."""
    num_avoidable: int
    """Wrong ones among them whose pool has a right answer."""
    num_hopeless: int
    """Wrong ones among them whose pool has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudies:
    counts: tuple[CaseCount, ...]
    """By generator, then by difficulty; only those that occur."""
    cases: tuple[Case, ...]
    """The right answer that lost by most first."""

    def by_generator(self) -> Counter[str]:
        """How many cases each generator's selected answers are."""
        return Counter(case.picked for case in self.cases)


def case_studies(pools: Sequence[EvaluatedPool], *, lambda_: float) -> CaseStudies:
    """Study the selections by E. Unlabeled selections, and pools where nothing can be selected, are left out.

    Args:
        pools: test pools with energies; "right" is what their labels say.
        lambda_: weight of E_constraint in the choice.
    """
    stack = Stack.of(pools)
    picked = stack.select(lambda_)
    energy = stack.energy(stack.mu(), lambda_)
    counted: Counter[tuple[str, str, str]] = Counter()
    cases: list[Case] = []
    for row, column in enumerate(picked):
        if column < 0 or math.isnan(stack.correct[row, column]):
            continue
        key = (stack.generators[stack.generator[row, column]], pools[row].problem.difficulty)
        if stack.correct[row, column] == 1:
            counted[(*key, "right")] += 1
        elif (stack.correct[row] == 1).any():
            counted[(*key, "avoidable")] += 1
            cases.append(_case(stack, row, int(column), energy[row]))
        else:
            counted[(*key, "hopeless")] += 1
    keys = sorted({(generator, difficulty) for generator, difficulty, _ in counted})
    return CaseStudies(
        counts=tuple(_count(counted, generator, difficulty) for generator, difficulty in keys),
        cases=tuple(sorted(cases, key=_lost_by_most)),
    )


def _case(stack: Stack, row: int, column: int, energy: Floats) -> Case:
    right = np.flatnonzero(stack.correct[row] == 1)
    best = int(right[np.argmin(energy[right])])
    mu, sigma = stack.mu()[row], stack.sigma()[row]
    problem = stack.problems[row]
    return Case(
        problem_id=problem.problem_id,
        difficulty=problem.difficulty,
        picked=stack.generators[stack.generator[row, column]],
        right=stack.generators[stack.generator[row, best]],
        num_right=len(right),
        num_candidates=int(stack.sizes[row]),
        margin=_finite(energy[best] - energy[column]),
        margin_mu=_finite(mu[best] - mu[column]),
        sigma=_finite(sigma[column]) if stack.num_members > 1 else None,
    )


def _lost_by_most(case: Case) -> tuple[float, str]:
    return (-math.inf if case.margin is None else -case.margin, case.problem_id)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _count(counted: Counter[tuple[str, str, str]], generator: str, difficulty: str) -> CaseCount:
    right, avoidable, hopeless = (counted[generator, difficulty, kind] for kind in ("right", "avoidable", "hopeless"))
    return CaseCount(
        generator=generator,
        difficulty=difficulty,
        num_picked=right + avoidable + hopeless,
        num_right=right,
        num_avoidable=avoidable,
        num_hopeless=hopeless,
    )


def case_tables(studies: CaseStudies) -> list[Table]:
    """Selections by generator and difficulty, and the cases; the latter only where there are any."""
    counts = Table(
        title="Selections by generator and difficulty",
        caption=(
            "Who wrote the selections, on problems of which difficulty. Avoidable: the selection is wrong and a right "
            "answer was there; hopeless: no answer of the pool is right."
        ),
        headers=("generator", "difficulty", "selected", "right", "wrong, avoidable", "wrong, hopeless"),
        rows=tuple(
            (
                row.generator, row.difficulty or "-", str(row.num_picked), str(row.num_right), str(row.num_avoidable),
                str(row.num_hopeless),
            )
            for row in studies.counts
        ),
    )  # fmt: skip
    return [counts, _case_table(studies)] if studies.cases else [counts]


def _case_table(studies: CaseStudies) -> Table:
    by_generator = ", ".join(f"{count} of {name}" for name, count in studies.by_generator().most_common())
    return Table(
        title="Wrong selections where a right answer was there",
        caption=(
            f"{len(studies.cases)} problems; the selections are {by_generator}. Shown are the {MAX_SHOWN} at most in "
            "which the best right answer lost by most. Lost by: its E minus that of the selection, and the same of mu."
        ),
        headers=(
            "problem", "difficulty", "selected", "best right answer", "right answers", "lost by E", "by mu", "sigma",
        ),
        rows=tuple(
            (
                case.problem_id, case.difficulty or "-", case.picked, case.right,
                f"{case.num_right} of {case.num_candidates}", _number(case.margin, "not selectable"),
                _number(case.margin_mu), _number(case.sigma),
            )
            for case in studies.cases[:MAX_SHOWN]
        ),
    )  # fmt: skip


def _number(value: float | None, absent: str = "-") -> str:
    return absent if value is None else f"{value:.3f}"
