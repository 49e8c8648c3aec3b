"""Stopping rules as families with one setting, replayed, tuned on half of the problems and judged on the other half."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from stopping_data import Pool

from raydebm.decision.stopping import SettledRule, StoppingRule
from raydebm.decision.stopping.predictive import ConcentrationPrior, fit_concentration_prior
from raydebm.decision.stopping.published_rules import (
    BetaRule,
    CannotBeOvertakenRule,
    DirichletRule,
    FixedBudgetRule,
    UnanimousWaveRule,
)
from raydebm.evaluation.results.stopping import (
    ReplayedStopping,
    Trajectories,
    all_trajectories,
    joined,
    lead_probabilities,
    replay,
    replay_threshold,
    trajectories,
)
from raydebm.identity import seed_for

ALLOWED_LOSS = 0.0025
"""Accuracy a tuned rule may lose on its calibration half: half of what the goal allows."""
SINGLES = (2, 1)
THRESHOLDS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.999)
LEADS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
WINDOWS = (2, 3, 4, 5, 6, 8, 10)
BUDGETS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48)
DEFAULT_LEAD = 1 - SettledRule().epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A rule with one setting: a threshold on its lead probability, the window of ESC, or a fixed number of samples."""

    name: str
    rule: Callable[[ConcentrationPrior], StoppingRule]
    settings: tuple[float, ...]
    waves: tuple[int, ...] | None = None
    """None: the pool's."""
    setting: Literal["lead", "window", "budget"] = "lead"


FAMILIES = (
    Family(name="settled, waves", rule=lambda prior: SettledRule(prior=prior), settings=LEADS),
    Family(name="Beta, waves", rule=lambda _: BetaRule(), settings=THRESHOLDS),
    Family(name="Dirichlet, waves", rule=lambda _: DirichletRule(), settings=THRESHOLDS),
    Family(name="ESC", rule=lambda _: UnanimousWaveRule(), settings=WINDOWS, setting="window"),
    Family(
        name="settled, single samples",
        rule=lambda prior: SettledRule(prior=prior),
        settings=LEADS,
        waves=SINGLES,
    ),
    Family(name="Beta, single samples", rule=lambda _: BetaRule(), settings=THRESHOLDS, waves=SINGLES),
    Family(name="fixed budget", rule=lambda _: FixedBudgetRule(), settings=BUDGETS, setting="budget"),
)
AS_PUBLISHED: tuple[tuple[str, StoppingRule, tuple[int, ...] | None], ...] = (
    ("whole budget", FixedBudgetRule(), None),
    ("settled, default (epsilon .05, no prior fitted), waves", SettledRule(), None),
    ("Beta .95, waves", BetaRule(0.95), None),
    ("Dirichlet .95, waves (Adaptive-Consistency)", DirichletRule(0.95), None),
    ("ESC, window 5", UnanimousWaveRule(), (5,)),
    ("Beta .95, single samples (its_hub)", BetaRule(0.95), SINGLES),
    ("Beta .99, single samples", BetaRule(0.99), SINGLES),
    ("cannot be overtaken, single samples", CannotBeOvertakenRule(), SINGLES),
)
MAX_SINGLES = 32
"""Single samples over a longer budget pass through too many states for what they would add."""
MAX_SETTLED_SINGLES = 18
"""The same for the settled rule, which thinks longer about each."""


def families_of(pool: Pool) -> list[Family]:
    """Those that are replayed on a pool."""
    return [
        family
        for family in FAMILIES
        if family.waves != SINGLES
        or pool.max_samples <= (MAX_SETTLED_SINGLES if family.name.startswith("settled") else MAX_SINGLES)
    ]


class Replayer:
    """Replays of one pool; trajectories of each schedule are made once."""

    def __init__(self, pool: Pool, *, num_replays: int, seed: int) -> None:
        self.pool, self.seed, self._num_replays = pool, seed, num_replays
        schedules = list(dict.fromkeys([pool.waves, self.budgets, *((window,) for window in WINDOWS)]))
        if pool.max_samples <= MAX_SINGLES:
            schedules.append(SINGLES)
        made = all_trajectories(
            pool.answers, schedules, max_samples=pool.max_samples, num_replays=num_replays, seed=seed
        )
        self._found = dict(zip(schedules, made, strict=True))
        ordered = sorted(pool.problem_ids, key=lambda problem_id: seed_for(seed, "half", problem_id))
        self.halves = (ordered[::2], ordered[1::2])
        self.priors = [self._prior(half) for half in self.halves]

    @property
    def budgets(self) -> tuple[int, ...]:
        """A schedule that ends at every fixed budget."""
        ends = [size for size in BUDGETS if size < self.pool.max_samples] + [self.pool.max_samples]
        return tuple(np.diff(ends, prepend=0).tolist())

    def _prior(self, problem_ids: Sequence[str]) -> ConcentrationPrior:
        chosen = set(problem_ids)
        return fit_concentration_prior(
            list(Counter(answer for answer in pool.answers if answer is not None).values())
            for pool in self.pool.answers
            if pool.problem_id in chosen
        )

    def under(self, waves: tuple[int, ...]) -> Trajectories:
        return self._found[waves]

    def of_group(self, group: str, waves: tuple[int, ...]) -> Trajectories:
        """The same orders for one author alone."""
        return trajectories(
            [pool for pool in self.pool.answers if pool.group == group],
            waves=waves,
            max_samples=self.pool.max_samples,
            num_replays=self._num_replays,
            seed=self.seed,
        )

    def fixed(self, rule: StoppingRule, waves: tuple[int, ...] | None) -> ReplayedStopping:
        """A rule without anything fitted, on all problems, in the order of the halves."""
        replayed = replay(self.under(waves or self.pool.waves), rule)
        return replayed.only([*self.halves[0], *self.halves[1]])

    def sweep(self, family: Family) -> "Sweep":
        """Every setting, with the prior of either half, on the calibration half and on the other one."""
        replayed = [self._settings(family, prior) for prior in self.priors]
        return Sweep(
            family=family,
            calibration=[[stopping.only(self.halves[half]) for stopping in replayed[half]] for half in (0, 1)],
            test=[[stopping.only(self.halves[1 - half]) for stopping in replayed[half]] for half in (0, 1)],
        )

    def _settings(self, family: Family, prior: ConcentrationPrior) -> list[ReplayedStopping]:
        rule = family.rule(prior)
        if family.setting == "window":
            return [replay(self.under((int(window),)), rule) for window in family.settings]
        if family.setting == "budget":
            played = self.under(self.budgets)
            drawn = np.array([state.num_samples for state in played.states], dtype=np.float64)
            return [replay_threshold(played, drawn, size) for size in np.cumsum(self.budgets)]
        played = self.under(family.waves or self.pool.waves)
        leads = lead_probabilities(played, rule)
        return [replay_threshold(played, leads, threshold) for threshold in family.settings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """[half that calibrates][setting]."""

    family: Family
    calibration: list[list[ReplayedStopping]]
    test: list[list[ReplayedStopping]]

    def tuned(self) -> tuple[ReplayedStopping, tuple[float, float]]:
        """Each half's cheapest setting that loses at most ``ALLOWED_LOSS`` there, judged on the other half."""
        chosen = [_cheapest(curve) for curve in self.calibration]
        parts = [self.test[half][index] for half, index in enumerate(chosen)]
        # The half that is judged is the other one: problems then stand in the order of the halves.
        first, second = (self.family.settings[index] for index in chosen)
        return joined(parts[::-1]), (first, second)

    def everywhere(self) -> list[ReplayedStopping]:
        """Each setting on all problems, the prior always of the other half."""
        return [joined(pair[::-1]) for pair in zip(*self.test, strict=True)]

    def default(self) -> ReplayedStopping:
        """The rule's default setting on all problems, the prior always of the other half."""
        return self.everywhere()[self.family.settings.index(DEFAULT_LEAD)]


def share_of(replayed: ReplayedStopping) -> float:
    return float(replayed.tokens.sum() / replayed.full_tokens.sum())


def _cheapest(curve: Sequence[ReplayedStopping]) -> int:
    losses = [float(np.nanmean(replayed.full_correct - replayed.correct)) for replayed in curve]
    allowed = [index for index, loss in enumerate(losses) if loss <= ALLOWED_LOSS]
    return min(allowed or [int(np.argmin(losses))], key=lambda index: share_of(curve[index]))


def at_share(curve: Sequence[ReplayedStopping], share: float) -> np.ndarray | None:
    """Correctness per problem at exactly this token share; None where the settings do not reach it.

    Two settings on either side are mixed at random in the proportion that spends the share, so this can be had.
    """
    ordered = sorted(curve, key=share_of)
    for low, high in pairwise(ordered):
        if share_of(low) <= share <= share_of(high):
            width = share_of(high) - share_of(low)
            part = (share - share_of(low)) / width if width > 0 else 0.0
            mixed: np.ndarray = (1 - part) * low.correct + part * high.correct
            return mixed
    return None
