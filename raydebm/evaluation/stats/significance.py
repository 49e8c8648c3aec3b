"""Paired tests over problems for the difference of two selectors.

Two selectors that are right or wrong on every problem are compared by the exact McNemar test (a binomial test on the
problems where only one of them is right). Expected values between 0 and 1 (random choice, shared ties) and violation
scores are compared by a sign-flip permutation test of the mean difference. Both are two-sided.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.evaluation.stats.intervals import Bools, Bootstrap, Estimate, Floats, mean_of_known, weighted_sums
from raydebm.identity import seed_for

Test = Literal["McNemar, exact", "sign-flip permutation", "none"]
Verdict = Literal["better", "worse", "not shown"]
ALPHA = 0.05
NUM_PERMUTATIONS = 10_000
CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of two selectors on the problems where both have a label."""

    one: str
    other: str
    difference: Estimate
    """One minus other, with its bootstrap interval over problems."""
    only_one: float
    """Expected number of problems on which only ``one`` is right. For violations, the sum of its advantages."""
    only_other: float
    p_value: float | None
    """Two-sided p-value. None without a common problem."""
    p_holm: float | None
    """p-value with Holm's correction for all comparisons of the same table."""
    test: Test

    @property
    def verdict(self) -> Verdict:
        """Whether ``one`` is significantly better or worse at the level ``ALPHA``, after Holm's correction."""
        if self.p_holm is None or self.difference.value is None or self.p_holm >= ALPHA:
            return "not shown"
        return "better" if self.difference.value > 0 else "worse"


def distinct(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Distinct pairs regardless of order, each at its first place. Holm's correction would otherwise count a hypothesis
    twice."""
    first: dict[frozenset[str], tuple[str, str]] = {}
    for pair in pairs:
        first.setdefault(frozenset(pair), pair)
    return list(first.values())


def compare(
    values: Mapping[str, Floats], pairs: Sequence[tuple[str, str]], *, bootstrap: Bootstrap, seed: int
) -> list[Comparison]:
    """Compare named selectors by their values per problem. Problems with NaN are excluded.

    Args:
        values: Values in [0, 1] by name, shape (n,) each, in the same order of problems; or (S, n) for S trainings in
            the same order. A problem's difference is then the mean over the trainings in which both have a value.
        pairs: Names (one, other). Pairs with an unknown name are skipped.
        bootstrap: Resamples for the interval of each difference.
        seed: Seed of the permutations.
    """
    known = [(one, other) for one, other in pairs if one in values and other in values and one != other]
    tables = {name: np.atleast_2d(array) for name, array in values.items()}
    differences = [mean_of_known(tables[one] - tables[other]) for one, other in known]
    kinds = [
        _binary(tables[one], tables[other], difference)
        for (one, other), difference in zip(known, differences, strict=True)
    ]
    flipped = iter(
        sign_flip_p_values([d for d, binary in zip(differences, kinds, strict=True) if not binary], seed=seed)
    )
    p_values = [mcnemar_p_value(d) if binary else next(flipped) for d, binary in zip(differences, kinds, strict=True)]
    return [
        Comparison(
            one=one,
            other=other,
            difference=estimate,
            only_one=float(np.nansum(np.clip(difference, 0, None))),
            only_other=float(np.nansum(np.clip(-difference, 0, None))),
            p_value=p_value,
            p_holm=holm,
            test="none" if p_value is None else "McNemar, exact" if binary else "sign-flip permutation",
        )
        for (one, other), difference, estimate, binary, p_value, holm in zip(
            known, differences, bootstrap.means(differences), kinds, p_values, holm_adjusted(p_values), strict=True
        )
    ]


def _binary(one: Floats, other: Floats, difference: Floats) -> bool:
    """Whether all common values are 0 or 1, and each problem's difference is the same in every training."""
    both = np.stack([one, other])[:, ~np.isnan(one + other)]
    known = difference[~np.isnan(difference)]
    return bool(np.isin(both, (0.0, 1.0)).all() and np.isin(known, (-1.0, 0.0, 1.0)).all())


def mcnemar_p_value(difference: Floats) -> float | None:
    """Exact two-sided McNemar test of differences in {-1, 0, 1}. None without common problems."""
    # Imported here because the import takes seconds and commands without evaluation do not need it.
    from scipy.stats import binomtest

    if np.isnan(difference).all():
        return None
    wins, losses = int((difference == 1).sum()), int((difference == -1).sum())
    return 1.0 if wins + losses == 0 else float(binomtest(wins, wins + losses, 0.5).pvalue)


def sign_flip_p_values(differences: Sequence[Floats], *, seed: int) -> list[float | None]:
    """Two-sided p-value of each mean difference, (1 + hits) / (1 + permutations). All share the same random signs."""
    if not differences:
        return []
    table = np.nan_to_num(np.stack(differences, axis=1))
    observed = np.abs(table.sum(axis=0))
    generator = np.random.default_rng(seed_for(seed, "sign flips", len(table)))
    hits = np.zeros(len(differences))
    for start in range(0, NUM_PERMUTATIONS, CHUNK):
        heads = generator.integers(0, 2, size=(min(CHUNK, NUM_PERMUTATIONS - start), len(table)), dtype=np.int8)
        # With signs +1 and -1, the sum is twice the sum of the +1 differences minus the sum of all.
        sums = 2 * weighted_sums(heads, table) - table.sum(axis=0)
        # Sums in another order differ in the last digits; an equal statistic must count as equal.
        hits += (np.abs(sums) >= observed - 1e-9).sum(axis=0)
    absent: Bools = np.stack([np.isnan(difference).all() for difference in differences])
    return [
        None if none else float((1 + count) / (1 + NUM_PERMUTATIONS)) for count, none in zip(hits, absent, strict=True)
    ]


def holm_adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of the p-values, ignoring None."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p_value, index) in enumerate(order):
        highest = max(highest, min(1.0, p_value * (len(order) - rank)))
        adjusted[index] = highest
    return adjusted


def p_text(p_value: float | None) -> str:
    if p_value is None or math.isnan(p_value):
        return "-"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
