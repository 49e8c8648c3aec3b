"""Description of a pool of candidates: sizes, labels, constraints, difficulty, and an example (paper, dataset
overview)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.rules import select
from raydebm.evaluation.pools.pool import EvaluatedPool, lowest_share
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.studies.generator_table import BEST_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    num_problems: int
    num_candidates: int
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
    num_failed: int
    """Number of requests without a candidate."""
    num_unparsed: int
    num_unlabeled: int
    prompt_characters: float
    text_characters: float | None
    constraints: dict[str, int]
    """Number of candidates that break each constraint."""
    difficulties: dict[str, int]
    """Problems per group."""


def overview(stack: Stack, bootstrap: Bootstrap) -> PoolOverview:
    """Describe pools: sizes, random accuracy, oracle, and share of problems where selection matters."""
    chance, best, lengths = stack.by_chance(), stack.oracle(), stack.length[stack.present]
    mixed = np.where(np.isnan(chance), np.nan, (chance > 0) & (chance < 1))
    return PoolOverview(
        num_problems=len(stack.problems),
        num_candidates=len(lengths),
        fewest=int(stack.sizes.min()),
        most=int(stack.sizes.max()),
        generators=stack.generators,
        accuracy=bootstrap.proportion(chance),
        mean_violation=bootstrap.mean(stack.violation_by_chance()),
        mixed=bootstrap.proportion(mixed),
        solvable=bootstrap.proportion(best),
        num_failed=len(stack.failed),
        num_unparsed=int((stack.present & ~stack.parsed).sum()),
        num_unlabeled=int(np.isnan(stack.correct[stack.present]).sum()),
        prompt_characters=float(np.mean([len(problem.prompt) for problem in stack.problems])),
        text_characters=float(lengths.mean()) if len(lengths) else None,
        constraints={name: int((~np.isnan(column)).sum()) for name, column in sorted(stack.broken.items())},
        difficulties=dict(sorted(Counter(problem.difficulty for problem in stack.problems).items())),
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


def training_pool(stack: Stack, *, num_bootstrap: int, seed: int) -> TrainingPool | None:
    """Quality of the candidates by generator. None without pools."""
    if not stack.problems:
        return None
    num_problems = len(stack.problems)
    bootstrap = Bootstrap.of(num_problems, num_bootstrap=min(num_bootstrap, MAX_RESAMPLES), seed=seed)
    within = {name: stack.generator == index for index, name in enumerate(stack.generators)}
    best = np.where(np.isnan(stack.violation), np.nan, lowest_share(stack.violation, BEST_SHARE).astype(float))
    return TrainingPool(
        num_problems=num_problems,
        accuracy=bootstrap.proportion(stack.by_chance()),
        by_generator={name: bootstrap.proportion(stack.by_chance(mask)) for name, mask in within.items()},
        best_quarter={name: bootstrap.proportion(stack.mean_of(best, mask)) for name, mask in within.items()}
        if not np.isnan(best).all()
        else {},
        num_all_correct=int((stack.by_chance() == 1).sum()),
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


def example_of(pools: Sequence[EvaluatedPool], *, lambda_: float) -> PoolExample | None:
    """First pool with right and wrong candidates, else the first with a selection by E. None without energies.

    The choice is independent of the selection's correctness.
    """
    for pool in sorted(pools, key=lambda pool: not {0.0, 1.0} <= set(pool.correct[pool.in_pool].tolist())):
        best = select(pool.candidates, lambda_)
        if best is None:
            continue
        place = pool.candidates.index(best)
        correct, violation = float(pool.correct[place]), float(pool.violation[place])
        return PoolExample(
            problem_id=pool.problem.problem_id,
            prompt=_excerpt(pool.problem.prompt),
            text=_excerpt(best.candidate.text or "", from_end=True),
            generator=best.candidate.generator,
            correct=None if math.isnan(correct) else correct == 1.0,
            violation=None if math.isnan(violation) else violation,
            energy=best.total_energy(lambda_),
        )
    return None


def _excerpt(text: str, *, from_end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= EXCERPT:
        return line
    return "... " + line[-EXCERPT:] if from_end else line[:EXCERPT] + " ..."
