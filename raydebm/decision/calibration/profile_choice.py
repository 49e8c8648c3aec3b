"""Test for replacing a simpler profile with a richer one.

The first incumbent is the better of the two simplest profiles, vote and best author, on the held-out problems (the vote
if they are equal). A challenger replaces the incumbent if the p-value of "its mean worth is not higher" is at most its
level:

- right or wrong: among held-out problems on which the two differ, the challenger wins b and loses c, and
  p = P(Bin(b + c, 1/2) >= b), the exact one-sided McNemar test;
- violation scores: a challenger that wins more often may lose more each time, so p is the share of ``NUM_FLIPS`` random
  sign choices under which the differences in worth have at least the observed sum (one-sided sign-flip test of the
  mean).

The level of the posterior is delta / 2, because the other profiles are special cases of it; the other challengers
share the other half. The probability that a richer profile replaces a better simpler one is therefore at most delta.
With violation scores this is exact if differences d and -d are equally likely, and approximate otherwise. A bet on the
mean difference is exact in both cases but misses the small differences of violation scores (docs/log/profile_tests.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from raydebm.config.decision import Profile
from raydebm.decision.evidence.profiles import PROFILES
from raydebm.decision.table import Floats

SIMPLE: tuple[Profile, ...] = ("vote", "best_author")
"""Profiles that need no scorer and no fit beyond the authors' skills."""
NUM_FLIPS, FLIPS_AT_ONCE = 10_000, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTest:
    """Test of a challenger against the incumbent on held-out problems."""

    challenger: Profile
    incumbent: Profile
    wins: int
    """Problems on which only the challenger is right, or on which it has the lower violation."""
    losses: int
    p_value: float
    """p-value of "the challenger's mean worth is not higher"."""
    replaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChoice:
    """Chosen profile with its tests."""

    profile: Profile
    delta: float
    worth: Mapping[str, float]
    """Mean worth of every profile's selections on the held-out problems."""
    tests: tuple[ProfileTest, ...]
    num_problems: int


def choose_profile(worth: Mapping[Profile, Floats], *, delta: float) -> ProfileChoice:
    """Choose a profile by testing the profiles in the order of ``PROFILES``.

    Args:
        worth: worth of each profile's selection on each held-out problem, shape (P,), by profile: 1 or 0, or 1 -
            violation; NaN if unlabelled. ``vote`` is required.
        delta: largest probability of replacing a profile with a worse one.
    """
    incumbent, tests = _simplest(worth), []
    challengers: Sequence[Profile] = [profile for profile in PROFILES if profile in worth and profile not in SIMPLE]
    for challenger in challengers:
        known = ~(np.isnan(worth[challenger]) | np.isnan(worth[incumbent]))
        difference = (worth[challenger] - worth[incumbent])[known]
        wins, losses = int((difference > 1e-12).sum()), int((difference < -1e-12).sum())
        is_binary = bool(np.isin([worth[challenger][known], worth[incumbent][known]], (0, 1)).all())
        p_value = float(binom.sf(wins - 1, wins + losses, 0.5)) if is_binary else _mean_p_value(difference)
        replaced = p_value <= _level(challenger, delta)
        tests.append(
            ProfileTest(
                challenger=challenger, incumbent=incumbent, wins=wins, losses=losses, p_value=p_value, replaced=replaced
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


def _mean_p_value(difference: Floats) -> float:
    """p-value of "the mean difference in worth is at most 0", by random signs."""
    given = difference[difference != 0]
    generator, hits = np.random.default_rng(len(difference)), 0
    for _ in range(NUM_FLIPS // FLIPS_AT_ONCE):
        signs = generator.choice((-1.0, 1.0), size=(FLIPS_AT_ONCE, len(given)))
        # Sums in another order differ in the last digits; an equal sum must count as equal.
        hits += int((signs @ given >= given.sum() - 1e-9).sum())
    return (1 + hits) / (1 + NUM_FLIPS)


def _level(challenger: Profile, delta: float) -> float:
    """Level of one challenger. The levels of all challengers sum to delta."""
    return delta / 2 if challenger == "posterior" else delta / 2 / (len(PROFILES) - len(SIMPLE) - 1)


def _simplest(worth: Mapping[Profile, Floats]) -> Profile:
    """Simple profile with the highest mean worth. Ties go to the first."""
    known = [profile for profile in SIMPLE if profile in worth and not np.isnan(worth[profile]).all()]
    return max(known, key=lambda profile: float(np.nanmean(worth[profile])), default=SIMPLE[0])
