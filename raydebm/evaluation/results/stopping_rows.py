"""Stopping rules on a run's own pools: what each would have drawn of them, and what the vote would then have been."""

import numpy as np

from raydebm.decision.stopping import SettledRule, StoppingRule
from raydebm.decision.stopping.published_rules import (
    BetaRule,
    CannotBeOvertakenRule,
    DirichletRule,
    FixedBudgetRule,
    UnanimousWaveRule,
)
from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
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


def stopping_rows(stack: Stack, *, num_bootstrap: int, seed: int) -> list[StoppingRow]:
    """Every rule at its published setting, in ``NUM_REPLAYS`` random orders of at most ``MAX_PROBLEMS`` pools; none
    where no answer occurs twice.

    The cost is completion tokens where every candidate has them, else characters.
    """
    stack = stack.only(_some(stack))
    answered = (stack.answer >= 0).sum(axis=1)
    if (stack.answer.max(axis=1, initial=-1) + 1 == answered).all():
        return []
    costs = stack.length if np.isnan(stack.tokens[stack.present]).any() else stack.tokens
    recorded = [_recorded_answers(stack, row, costs[row]) for row in range(len(stack.problems))]
    bootstrap = Bootstrap.of(len(recorded), num_bootstrap=num_bootstrap, seed=seed)
    budget = max(len(pool.answers) for pool in recorded)
    made: dict[tuple[int, ...], Trajectories] = {}
    for waves in (SINGLES, WINDOW):
        made[waves] = trajectories(recorded, waves=waves, max_samples=budget, num_replays=NUM_REPLAYS, seed=seed)
    return [stopping_row(name, replay(made[waves], rule), bootstrap) for name, rule, waves in _RULES]


def _some(stack: Stack) -> list[int]:
    """Places of the pools that are replayed."""
    ids = [problem.problem_id for problem in stack.problems]
    filled = np.flatnonzero(stack.present.any(axis=1)).tolist()
    return sorted(sorted(filled, key=ids.__getitem__)[:MAX_PROBLEMS])


def _recorded_answers(stack: Stack, row: int, costs: Floats) -> RecordedAnswers:
    """A pool's candidates as a replay sees them, in their shuffled order."""
    order = np.argsort(np.where(stack.present[row], stack.place[row], stack.place.shape[1]))[: int(stack.sizes[row])]
    return RecordedAnswers(
        problem_id=stack.problems[row].problem_id,
        group="pool",
        answers=tuple(None if answer < 0 else str(answer) for answer in stack.answer[row, order].tolist()),
        correct=stack.correct[row, order],
        tokens=costs[order],
    )
