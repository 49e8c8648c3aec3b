"""What a pool of candidates is: sizes, labels, constraints, difficulty (paper, dataset overview)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.studies.generator_table import best_quarter


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    num_problems: int
    num_candidates: int
    fewest: int
    """Candidates of the smallest pool."""
    most: int
    generators: tuple[str, ...]
    accuracy: Estimate
    """Mean over problems of the share correct."""
    mean_violation: Estimate
    mixed: Estimate
    """Share of problems with both a correct and an incorrect candidate: only these can be chosen well or badly."""
    solvable: Estimate
    """Share with at least one correct candidate: the oracle."""
    num_failed: int
    """Requests that brought no candidate."""
    num_unparsed: int
    num_unscored: int
    num_unlabeled: int
    num_truncated_problems: int
    """Scored candidates whose problem text was cut to fit the encoder."""
    prompt_characters: float
    text_characters: float | None
    constraints: dict[str, int]
    """Candidates that break each constraint."""
    difficulties: dict[str, int]
    """Problems per group."""


def overview(stack: Stack, bootstrap: Bootstrap) -> PoolOverview:
    """Describe pools: sizes, chance, best candidate, and how often there is something to choose."""
    written = [scored for pool in stack.pools for scored in pool.candidates]
    chance, best = stack.by_chance(), stack.oracle()
    mixed = np.where(np.isnan(chance), np.nan, (chance > 0) & (chance < 1))
    broken = Counter(
        name for scored in written for name in {violation.constraint for violation in scored.report.violations}
    )
    return PoolOverview(
        num_problems=len(stack.pools),
        num_candidates=len(written),
        fewest=int(stack.sizes.min()),
        most=int(stack.sizes.max()),
        generators=stack.generators,
        accuracy=bootstrap.proportion(chance),
        mean_violation=bootstrap.mean(stack.violation_by_chance()),
        mixed=bootstrap.proportion(mixed),
        solvable=bootstrap.proportion(best),
        num_failed=sum(len(pool.failed) for pool in stack.pools),
        num_unparsed=sum(not scored.report.parsed for scored in written),
        num_unscored=sum(scored.energies is None for scored in written),
        num_unlabeled=int(np.isnan(stack.correct[stack.present]).sum()),
        num_truncated_problems=sum(
            scored.energies is not None and scored.energies.num_truncated > 0 for scored in written
        ),
        prompt_characters=float(np.mean([len(pool.problem.prompt) for pool in stack.pools])),
        text_characters=float(np.mean([len(scored.candidate.text or "") for scored in written])) if written else None,
        constraints=dict(sorted(broken.items())),
        difficulties=dict(sorted(Counter(pool.problem.difficulty for pool in stack.pools).items())),
    )


MAX_RESAMPLES = 500
"""A training pool is large: more resamples of thousands of problems cost memory and change no printed digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPool:
    """The labelled candidates of the training problems, validation included, as in the paper's tables of data."""

    num_problems: int
    accuracy: Estimate
    """Mean over problems of the share correct."""
    by_generator: dict[str, Estimate]
    """The same by generator."""
    best_quarter: dict[str, Estimate]
    """Generator -> share of its candidates among the best quarter of their pool; empty without violation scores."""


def training_pool(pools: Sequence[EvaluatedPool], *, num_bootstrap: int, seed: int) -> TrainingPool | None:
    """Quality of the candidates by generator; None without pools."""
    if not pools:
        return None
    # Energies out of bag are of as many adapters as did not learn from the problem; quality needs none.
    stack = Stack.of([replace(pool, members=np.empty((len(pool.members), 0))) for pool in pools])
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=min(num_bootstrap, MAX_RESAMPLES), seed=seed)
    within = {name: stack.generator == index for index, name in enumerate(stack.generators)}
    best = np.where(np.isnan(stack.violation), np.nan, best_quarter(stack).astype(float))
    return TrainingPool(
        num_problems=len(pools),
        accuracy=bootstrap.proportion(stack.by_chance()),
        by_generator={name: bootstrap.proportion(stack.by_chance(mask)) for name, mask in within.items()},
        best_quarter={name: bootstrap.proportion(stack.mean_of(best, mask)) for name, mask in within.items()}
        if not np.isnan(best).all()
        else {},
    )
