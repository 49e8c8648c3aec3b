"""Case studies of selections, by generator and difficulty (paper, confounding analysis, phase 6).

Computed from energies only. The counts show whose answers are selected at which difficulty. The cases are wrong
selections from pools with a right answer: the problem, both generators, and the difference in energy. A scorer that
recognises authors makes its errors in favour of one of them.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydebm.decision.table import PoolTable
from raydebm.evaluation.report.document import Table, decimal, table_of

MAX_SHOWN = 20
"""Maximum number of cases in the table. The data has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Wrong selection from a pool with a right answer."""

    problem_id: str
    difficulty: str
    picked: str
    right: str
    """Generator of the right answer with the lowest E."""
    num_right: int
    """Number of right answers in the pool."""
    num_candidates: int
    margin: float | None
    """E of that right answer minus E of the selection. None if no right answer can be selected."""
    margin_mu: float | None
    """mu of that right answer minus mu of the selection. None if the right answer was not scored."""
    sigma: float | None
    """Sigma of the selection. None with a single adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCount:
    """Selections of one generator's answers on problems of one difficulty."""

    generator: str
    difficulty: str
    num_picked: int = 0
    num_right: int = 0
    num_avoidable: int = 0
    """Number of wrong selections from pools with a right answer."""
    num_hopeless: int = 0
    """Number of wrong selections from pools without a right answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudies:
    counts: tuple[CaseCount, ...]
    """Non-zero counts by generator, then by difficulty."""
    cases: tuple[Case, ...]
    """Cases, by decreasing margin. Those without a margin are first."""


def case_studies(pools: PoolTable, *, lambda_: float) -> CaseStudies:
    """Study the selections by E. Unlabelled selections, and pools where nothing can be selected, are excluded.

    Args:
        pools: Labelled test pools with energies.
        lambda_: Weight of E_constraint in the selection.
    """
    energy = pools.energy(lambda_)
    counts: dict[tuple[str, str], Counter[str]] = {}
    cases: list[Case] = []
    for pool, row in enumerate(pools.select(lambda_)):
        if row < 0 or math.isnan(pools.correct[row]):
            continue
        problem, picked = pools.problems[pool], pools.candidates[row].candidate.generator
        start, end = pools.offsets[[pool, pool + 1]]
        right = start + np.flatnonzero(pools.correct[start:end] == 1)
        outcome = "num_right" if pools.correct[row] == 1 else "num_avoidable" if len(right) else "num_hopeless"
        counts.setdefault((picked, problem.difficulty), Counter()).update(("num_picked", outcome))
        if outcome == "num_avoidable":
            best = right[np.argmin(energy[right])]
            cases.append(
                Case(
                    problem_id=problem.problem_id,
                    difficulty=problem.difficulty,
                    picked=picked,
                    right=pools.candidates[best].candidate.generator,
                    num_right=len(right),
                    num_candidates=int(pools.sizes[pool]),
                    margin=_finite(energy[best] - energy[row]),
                    margin_mu=_finite(pools.mu[best] - pools.mu[row]),
                    sigma=_finite(pools.sigma[row]) if pools.num_members > 1 else None,
                )
            )
    by_margin = sorted(cases, key=lambda case: (-math.inf if case.margin is None else -case.margin, case.problem_id))
    return CaseStudies(
        counts=tuple(
            CaseCount(generator=generator, difficulty=difficulty, **own)
            for (generator, difficulty), own in sorted(counts.items())
        ),
        cases=tuple(by_margin),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def case_tables(studies: CaseStudies) -> list[Table]:
    """Selections by generator and difficulty, and the cases if there are any."""
    by_generator = Counter(case.picked for case in studies.cases).most_common()
    counts = table_of(
        "Selections by generator and difficulty",
        "Selections of each generator's answers, by difficulty of the problem. Avoidable: the selection is wrong and "
        "the pool has a right answer; hopeless: no answer of the pool is right.",
        studies.counts,
        {
            "generator": lambda row: row.generator,
            "difficulty": lambda row: row.difficulty or "-",
            "selected": lambda row: row.num_picked,
            "right": lambda row: row.num_right,
            "wrong, avoidable": lambda row: row.num_avoidable,
            "wrong, hopeless": lambda row: row.num_hopeless,
        },
    )
    cases = table_of(
        "Wrong selections from pools with a right answer",
        f"{len(studies.cases)} problems; the selections are "
        f"{', '.join(f'{count} of {name}' for name, count in by_generator)}. At most {MAX_SHOWN} are shown, "
        "the largest difference first. Lost by: E (mu) of the best right answer minus that of the selection.",
        studies.cases[:MAX_SHOWN],
        {
            "problem": lambda case: case.problem_id,
            "difficulty": lambda case: case.difficulty or "-",
            "selected": lambda case: case.picked,
            "best right answer": lambda case: case.right,
            "right answers": lambda case: f"{case.num_right} of {case.num_candidates}",
            "lost by E": lambda case: "not selectable" if case.margin is None else decimal(case.margin),
            "by mu": lambda case: decimal(case.margin_mu),
            "sigma": lambda case: decimal(case.sigma),
        },
    )
    return [counts, cases] if studies.cases else [counts]
