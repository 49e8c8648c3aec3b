"""The test by which a richer profile replaces a simpler one.

The first incumbent is the better of the two simplest profiles, vote and best author, on the held-out problems; the vote
where they are equal. A challenger replaces the incumbent where, among held-out problems on which they differ in worth,
it wins so often that P(Bin(b + c, 1/2) >= b) is at most its level: the exact one-sided McNemar test. Half of delta is
the posterior's level, because it has the others as special cases; the other challengers share the rest. So the chance
that a richer profile replaces a simpler one that is better is at most delta.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from raydebm.config.policy import Profile
from raydebm.decision.evidence.groups import Floats
from raydebm.decision.evidence.profiles import PROFILES

SIMPLE: tuple[Profile, ...] = ("vote", "best_author")
"""Profiles that need no scorer and no fit beyond the authors' skills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTest:
    """A challenger against the incumbent on held-out problems."""

    challenger: Profile
    incumbent: Profile
    wins: int
    """Problems on which only the challenger is right (or has the lower violation)."""
    losses: int
    p_value: float
    replaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChoice:
    """Which profile was chosen, and why."""

    profile: Profile
    delta: float
    worth: Mapping[str, float]
    """Mean worth of every profile's selections on the held-out problems."""
    tests: tuple[ProfileTest, ...]
    num_problems: int

    def to_json(self) -> dict[str, Any]:
        """The choice with its tests, as JSON values."""
        return {**asdict(self), "worth": dict(self.worth), "tests": [asdict(test) for test in self.tests]}


def choose_profile(worth: Mapping[Profile, Floats], *, delta: float) -> ProfileChoice:
    """Walk through the profiles in their order.

    Args:
        worth: by profile, (P,) worth of its selection on each held-out problem: 1 or 0, or 1 - violation; NaN for
            unlabelled. ``vote`` must be there.
        delta: chance of replacing a profile by one that is worse.
    """
    incumbent, tests = _simplest(worth), []
    challengers: Sequence[Profile] = [profile for profile in PROFILES if profile in worth and profile not in SIMPLE]
    for challenger in challengers:
        known = ~(np.isnan(worth[challenger]) | np.isnan(worth[incumbent]))
        difference = (worth[challenger] - worth[incumbent])[known]
        wins, losses = int((difference > 1e-12).sum()), int((difference < -1e-12).sum())
        p_value = float(binom.sf(wins - 1, wins + losses, 0.5))
        replaced = p_value <= _level(challenger, delta)
        tests.append(
            ProfileTest(
                challenger=challenger,
                incumbent=incumbent,
                wins=wins,
                losses=losses,
                p_value=p_value,
                replaced=replaced,
            )
        )
        if replaced:
            incumbent = challenger
    return ProfileChoice(
        profile=incumbent,
        delta=delta,
        worth={name: float(np.nanmean(values)) for name, values in worth.items() if not np.isnan(values).all()},
        tests=tuple(tests),
        num_problems=int((~np.isnan(worth[PROFILES[0]])).sum()),
    )


def _level(challenger: Profile, delta: float) -> float:
    """The levels of all challengers add up to delta."""
    return delta / 2 if challenger == "posterior" else delta / 2 / (len(PROFILES) - len(SIMPLE) - 1)


def _simplest(worth: Mapping[Profile, Floats]) -> Profile:
    """The simple profile of the highest mean worth; the first of equals."""
    known = [profile for profile in SIMPLE if profile in worth and not np.isnan(worth[profile]).all()]
    return max(known, key=lambda profile: float(np.nanmean(worth[profile])), default=SIMPLE[0])
