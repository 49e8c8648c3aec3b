"""Stopping rules on a run's own pools: what each would have drawn of them, and what the vote would then have been."""

import math
from collections.abc import Sequence

import numpy as np

from raydebm.decision.stopping import SettledRule, StoppingRule
from raydebm.decision.stopping.published_rules import (
    BetaRule,
    CannotBeOvertakenRule,
    DirichletRule,
    FixedBudgetRule,
    UnanimousWaveRule,
)
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.results.stopping import (
    RecordedAnswers,
    StoppingRow,
    Trajectories,
    replay,
    stopping_row,
    trajectories,
)
from raydebm.evaluation.stats.intervals import Bootstrap

NUM_REPLAYS = 5
MAX_PROBLEMS = 500
"""Problems that are replayed, the first by their ids, which are an arbitrary choice; all of a large pool would take
minutes."""
SINGLES, WINDOW = (2, 1), (5,)
_RULES: tuple[tuple[str, StoppingRule, tuple[int, ...]], ...] = (
    ("whole pool", FixedBudgetRule(), SINGLES),
    ("settled, 0.95", SettledRule(), SINGLES),
    ("Beta, 0.95", BetaRule(), SINGLES),
    ("Dirichlet, 0.95", DirichletRule(), SINGLES),
    ("ESC, window 5", UnanimousWaveRule(), WINDOW),
    ("cannot be overtaken", CannotBeOvertakenRule(), SINGLES),
)


def stopping_rows(pools: Sequence[EvaluatedPool], *, num_bootstrap: int, seed: int) -> list[StoppingRow]:
    """Every rule at its published setting, in ``NUM_REPLAYS`` random orders of at most ``MAX_PROBLEMS`` pools; none
    where no answer occurs twice.

    The cost is completion tokens where every candidate has them, else characters.
    """
    pools = _some([pool for pool in pools if pool.candidates])
    keys = [
        [scored.report.vote_key for scored in pool.candidates if scored.report.vote_key is not None] for pool in pools
    ]
    if all(len(set(key)) == len(key) for key in keys):
        return []
    recorded = [_recorded_answers(pool, cost) for pool, cost in zip(pools, _costs(pools), strict=True)]
    bootstrap = Bootstrap.of(len(recorded), num_bootstrap=num_bootstrap, seed=seed)
    budget = max(len(pool.answers) for pool in recorded)
    made: dict[tuple[int, ...], Trajectories] = {}
    for waves in (SINGLES, WINDOW):
        made[waves] = trajectories(recorded, waves=waves, max_samples=budget, num_replays=NUM_REPLAYS, seed=seed)
    return [stopping_row(name, replay(made[waves], rule), bootstrap) for name, rule, waves in _RULES]


def _some(pools: Sequence[EvaluatedPool]) -> list[EvaluatedPool]:
    chosen = set(sorted(pool.problem.problem_id for pool in pools)[:MAX_PROBLEMS])
    return [pool for pool in pools if pool.problem.problem_id in chosen]


def _recorded_answers(pool: EvaluatedPool, cost: Floats) -> RecordedAnswers:
    """A pool's candidates as a replay sees them."""
    return RecordedAnswers(
        problem_id=pool.problem.problem_id,
        group="pool",
        answers=tuple(scored.report.vote_key for scored in pool.candidates),
        correct=pool.correct[: len(pool.candidates)],
        tokens=cost,
    )


def _costs(pools: Sequence[EvaluatedPool]) -> list[Floats]:
    tokens = [
        np.array(
            [math.nan if (n := scored.candidate.completion_tokens) is None else n for scored in pool.candidates], float
        )
        for pool in pools
    ]
    if not any(np.isnan(column).any() for column in tokens):
        return tokens
    return [np.array([len(scored.candidate.text or "") for scored in pool.candidates], float) for pool in pools]
