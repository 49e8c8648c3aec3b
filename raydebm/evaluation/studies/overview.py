"""Description of a pool of candidates: sizes, labels, constraints, difficulty, and an example (paper, dataset
overview)."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydebm.decision.table import PoolTable
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.studies.generators import BEST_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    num_problems: int
    fewest: int
    """Candidates of the smallest pool."""
    most: int
    generators: tuple[str, ...]
    accuracy: Estimate
    """Share correct, mean over problems."""
    mean_violation: Estimate
    mixed: Estimate
    """Share of problems with both a correct and an incorrect candidate. Selection matters only for these."""
    solvable: Estimate
    """Share of problems with at least one correct candidate (oracle)."""
    prompt_characters: float
    text_characters: float | None
    constraints: dict[str, int]
    """Number of candidates that break each constraint."""
    difficulties: dict[str, int]
    """Problems per group."""


def overview(pools: PoolTable, bootstrap: Bootstrap) -> PoolOverview:
    """Describe pools: sizes, random accuracy, oracle, and share of problems where selection matters."""
    chance = pools.by_chance()
    best = np.where(pools.labelled, pools.any(pools.correct == 1), np.nan)
    mixed = np.where(np.isnan(chance), np.nan, (chance > 0) & (chance < 1))
    return PoolOverview(
        num_problems=pools.num_pools,
        fewest=int(pools.sizes.min()),
        most=int(pools.sizes.max()),
        generators=pools.authors,
        accuracy=bootstrap.proportion(chance),
        mean_violation=bootstrap.mean(pools.mean_of(pools.violation)),
        mixed=bootstrap.proportion(mixed),
        solvable=bootstrap.proportion(best),
        prompt_characters=float(np.mean([len(problem.prompt) for problem in pools.problems])),
        text_characters=float(pools.length.mean()) if len(pools.length) else None,
        constraints={name: int((~np.isnan(column)).sum()) for name, column in sorted(pools.broken.items())},
        difficulties=dict(sorted(Counter(problem.difficulty for problem in pools.problems).items())),
    )


MAX_RESAMPLES = 500
"""Maximum number of resamples. A training pool is large: more resamples cost memory and change no printed digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPool:
    """Labelled candidates of the training problems, including validation, as in the paper's data tables."""

    num_problems: int
    accuracy: Estimate
    """Share correct, mean over problems."""
    by_generator: dict[str, Estimate]
    """Share correct by generator, mean over problems."""
    best_quarter: dict[str, Estimate]
    """Share of each generator's candidates among the best quarter of their pool. Empty without violation scores."""
    num_all_correct: int
    """Problems whose labelled candidates are all correct."""


def training_pool(pools: PoolTable, *, num_bootstrap: int, seed: int) -> TrainingPool | None:
    """Quality of the candidates by generator. None without pools."""
    if not pools.num_pools:
        return None
    num_problems = pools.num_pools
    bootstrap = Bootstrap.of(num_problems, num_bootstrap=min(num_bootstrap, MAX_RESAMPLES), seed=seed)
    within = {name: pools.author_of_row == index for index, name in enumerate(pools.authors)}
    best = np.where(np.isnan(pools.violation), np.nan, pools.lowest_share(BEST_SHARE))
    return TrainingPool(
        num_problems=num_problems,
        accuracy=bootstrap.proportion(pools.by_chance()),
        by_generator={name: bootstrap.proportion(pools.by_chance(mask)) for name, mask in within.items()},
        best_quarter={name: bootstrap.proportion(pools.mean_of(best, mask)) for name, mask in within.items()}
        if not np.isnan(best).all()
        else {},
        num_all_correct=int((pools.by_chance() == 1).sum()),
    )


EXCERPT = 240
"""Length of a text's excerpt in an example, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolExample:
    """Problem and its selection by E, as one-line excerpts."""

    problem_id: str
    prompt: str
    """The beginning of the problem."""
    text: str
    """End of the candidate, where the answer is."""
    generator: str
    correct: bool | None
    """Correctness. None if unlabelled."""
    violation: float | None
    """Violation score of the label. None if the task has none."""
    energy: float


def example_of(pools: PoolTable, *, lambda_: float) -> PoolExample | None:
    """First pool with right and wrong candidates, else the first with a selection by E. None without energies.

    The choice is independent of the selection's correctness.
    """
    picked = pools.select(lambda_)
    is_mixed = pools.any(pools.correct == 1) & pools.any(pools.correct == 0)
    chosen = [pool for mixed in (True, False) for pool in np.flatnonzero((is_mixed == mixed) & (picked >= 0))]
    if not chosen:
        return None
    problem, row = pools.problems[chosen[0]], picked[chosen[0]]
    best, correct, violation = pools.candidates[row].candidate, float(pools.correct[row]), float(pools.violation[row])
    return PoolExample(
        problem_id=problem.problem_id,
        prompt=_excerpt(problem.prompt),
        text=_excerpt(best.text or "", from_end=True),
        generator=best.generator,
        correct=None if math.isnan(correct) else correct == 1.0,
        violation=None if math.isnan(violation) else violation,
        energy=float(pools.energy(lambda_)[row]),
    )


def _excerpt(text: str, *, from_end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= EXCERPT:
        return line
    return "... " + line[-EXCERPT:] if from_end else line[:EXCERPT] + " ..."
