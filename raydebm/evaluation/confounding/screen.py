"""Screen of scored pools for author recognition: does the energy rank answers, or their authors (paper, appendix)?

In:   evaluated pools with energies, of any task.
Out:  per generator: picks, energies of its correct and incorrect answers, ranking among its own answers; over all: the
      spread of correct energies between generators, and the comparison with always picking the best generator.

Greedy candidates are not used. Accuracies and their differences count every other candidate, the rest only those with
a label and an energy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydebm.decision.table import Bools, PoolTable, ratio
from raydebm.evaluation.results.energy_metrics import sums_of
from raydebm.evaluation.selectors import BEST_GENERATOR, PAPER_RULE, best_generator_of
from raydebm.evaluation.stats.effects import generator_effects
from raydebm.evaluation.stats.intervals import (
    NOTHING,
    Bootstrap,
    Estimate,
    Floats,
    mean_of_known,
    weighted_auroc,
    weighted_sums,
)
from raydebm.evaluation.studies.generators import labelled_and_scored, means_by_generator, sample_means, std

MAX_IDENTITY_SHARE = 0.2
"""Limit on the generator's share of the variance of correct candidates' energies. The screen warns above it if the
interval's lower end is above half of it. Scale-free, unlike the paper's spread."""
MAX_WEIGHTS = 4_000_000
"""Number of resamples times candidates in memory at once."""
MAX_EXCESS = 0.1
"""Limit on the share of picks minus the share of correct candidates. The screen warns above it if the interval's lower
end is above half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorRow:
    """One generator's share of the pools and of the picks."""

    generator: str
    num_candidates: int
    accuracy: Estimate
    correct_share: Estimate
    """This generator's share of a problem's correct candidates: mean over the problems that it answered and that have
    one. A scorer that depends only on correctness picks it this often."""
    pick_share: Estimate
    excess: Estimate
    energy_correct: Estimate
    """Mean mu of its correct candidates. Lower is better."""
    energy_incorrect: Estimate
    offset: Estimate
    """Mean over its correct candidates of mu minus the mean mu of all correct candidates of the same problem. Above 0,
    the energy disfavours its correct answers. It adjusts for difficulty: a weak generator is right on easy problems."""
    within_auroc: Estimate
    """AUROC of -mu for correctness among its own answers to all problems, with mu relative to the problem's effect
    (``effects``). 0.5 for a scorer that only recognises generators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Results of one scorer on one set of pools."""

    num_problems: int
    generators: tuple[AuthorRow, ...]
    spread: Estimate
    """Standard deviation (ddof=0) over generators of the mean energy of correct candidates: the paper's figure."""
    spread_range: Estimate
    """Largest minus smallest of these means, the definition behind the paper's headline 6.67."""
    spread_in_problem: Estimate
    """Standard deviation over generators of ``offset``, adjusted for differences between problems."""
    identity_share: Estimate
    """Share of the variance of correct candidates' energies within a problem that is explained by the generator, from 0
    to 1. About (generators - 1) / (correct candidates - 1) by chance."""
    gap_within: Estimate
    """Mean energy of a generator's incorrect minus that of its correct candidates, mean over generators, with mu
    relative to its problem's effect. The paper's correct/incorrect gap within one generator."""
    relative_spread: Estimate
    """``spread_in_problem`` over ``gap_within``: effect of the author relative to that of correctness. It has no unit,
    so it can be compared between scorers with different scales."""
    within_auroc: Estimate
    accuracy: Mapping[str, Estimate]
    """Share correct of the paper's rule, random, the best generator and the oracle."""
    best_generator: str | None
    """Generator with the most correct answers. None with one generator."""
    is_in_hindsight: bool
    """Whether the best generator was chosen on these problems, and is therefore a bound."""
    paper_minus_best_generator: Estimate
    """Paired difference, on the problems that the best generator answered."""

    def warnings(self) -> tuple[str, ...]:
        """Signs of a shortcut, one sentence each; empty without any. A screen is not a proof."""
        signs = []
        favoured = [
            f"{row.generator} (+{100 * (row.excess.value or 0):.0f} points)"
            for row in self.generators
            if _is_above(row.excess, MAX_EXCESS)
        ]
        if favoured:
            signs.append(f"picked more often than its share of correct answers: {', '.join(favoured)}")
        if _is_above(self.identity_share, MAX_IDENTITY_SHARE):
            signs.append(
                f"the generator explains {100 * (self.identity_share.value or 0):.0f} % of the variance of correct "
                "answers' energies within a problem"
            )
        if self.within_auroc.low is not None and self.within_auroc.low <= 0.5:
            signs.append("among answers of the same generator the energy is not shown to be better than chance")
        margin = self.paper_minus_best_generator
        if margin.low is not None and margin.low <= 0:
            signs.append("choosing by energy is not shown to beat always choosing the best generator")
        return tuple(signs)

    def _could_test(self) -> dict[str, bool]:
        """Name of each test of ``warnings``, and whether these pools allow it."""
        return {
            "who is picked": any(row.excess.low is not None for row in self.generators),
            "energies of correct answers by generator": self.identity_share.low is not None,
            "ranking among answers of the same generator": self.within_auroc.low is not None,
            "the comparison with the best generator": self.paper_minus_best_generator.low is not None,
        }

    def untested(self) -> tuple[str, ...]:
        """Tests that these pools do not allow, in words. Empty if all are possible."""
        return tuple(name for name, possible in self._could_test().items() if not possible)

    def verdict(self) -> str:
        """Warnings, or their absence, and the tests that were not possible."""
        warnings, untested = self.warnings(), self.untested()
        if not any(self._could_test().values()):
            return "nothing could be tested: that needs energies, two generators and answers of both labels"
        text = "; ".join(warnings) if warnings else "nothing found that points to a shortcut"
        return f"{text} (not testable here: {', '.join(untested)})" if untested else text


def _is_above(estimate: Estimate, limit: float) -> bool:
    """Whether the value is above the limit and its interval's lower end above half of it, so that an interval that
    reaches towards 0 gives no warning."""
    return estimate.value is not None and estimate.value > limit and (estimate.low or 0.0) > limit / 2


def screen(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap, best_generator: str | None = None) -> Screen:
    """Compute the screen, with bootstrap intervals over the pools' problems.

    Args:
        bootstrap: Resamples of as many problems as there are pools.
        best_generator: Generator with the most correct answers on validation pools. Default: chosen in hindsight, as a
            bound.
    """
    in_hindsight = best_generator is None
    best_generator = best_generator_of(pools, by_violation=False) if in_hindsight else best_generator
    scored = labelled_and_scored(pools)
    right = scored.correct == 1
    offset = np.where(right, scored.mu - scored.mean_of(scored.mu, right)[scored.pool_of_row], math.nan)
    centred, picks = _centred(scored), _picks(pools, lambda_)
    authors = [scored.author_of_row == index for index in range(len(scored.authors))]
    (means, n), (offsets, n_offset) = (means_by_generator(scored, each, bootstrap) for each in (scored.mu, offset))
    spread, num_problems = std(offsets), int((scored.sizes > 0).sum())
    gaps = [
        np.subtract(*(sample_means(scored, centred, own & (right == label), bootstrap) for label in (False, True)))
        for own in authors
    ]
    within = [_within_auroc(scored, centred, own, bootstrap) for own in authors]
    gap, auroc = (mean_of_known(np.stack([np.full(len(spread), math.nan), *each])) for each in (gaps, within))
    relative = ratio(spread, gap)
    values = {"random": pools.by_chance(), "oracle": np.where(pools.labelled, pools.any(pools.correct == 1), math.nan)}
    if pools.num_members:
        values = {PAPER_RULE: pools.correct_at(pools.select(lambda_)), **values}
    if best_generator is not None and len(pools.authors) > 1:
        values[BEST_GENERATOR] = pools.by_chance(pools.is_by(best_generator))
    rivals = {PAPER_RULE, BEST_GENERATOR} <= values.keys()
    return Screen(
        num_problems=pools.num_pools,
        generators=tuple(
            _row(scored, index, picks, offset, samples, bootstrap) for index, samples in enumerate(within)
        ),
        spread=bootstrap.interval(std(means), n),
        spread_range=bootstrap.interval(np.ptp(means, axis=1) if means.size else std(means), n),
        spread_in_problem=bootstrap.interval(spread, n_offset),
        gap_within=bootstrap.interval(gap, num_problems),
        relative_spread=bootstrap.interval(relative, min(n_offset, num_problems)),
        identity_share=_identity_share(scored, offset, bootstrap),
        within_auroc=bootstrap.interval(auroc, num_problems),
        accuracy={name: bootstrap.proportion(correct) for name, correct in values.items()},
        best_generator=best_generator if BEST_GENERATOR in values else None,
        is_in_hindsight=in_hindsight,
        paper_minus_best_generator=bootstrap.mean(values[PAPER_RULE] - values[BEST_GENERATOR]) if rivals else NOTHING,
    )


def _centred(scored: PoolTable) -> Floats:
    """mu minus the problem's effect, which is its mean as if all generators had answered it. Shape (R,).

    The generator's effect is not removed. Values are rounded to nine digits of the largest, so that values that differ
    only in the last digits are ties.
    """
    mu, problem, author = scored.mu, scored.pool_of_row, scored.author_of_row
    if not len(mu):
        return mu
    effects = generator_effects(problem, author, mu, num_generators=len(scored.authors))
    centred = mu - scored.mean_of(mu - effects[author])[problem]
    return np.round(centred, 9 - math.ceil(math.log10(max(float(np.abs(mu).max()), 1e-9))))


def _picks(pools: PoolTable, lambda_: float) -> Floats:
    """Index of the picked generator per problem. NaN if nothing is picked or no candidate is correct."""
    picked = pools.select(lambda_)
    writers = pools.at(pools.author_of_row.astype(np.float64), picked)
    return np.where(pools.any(pools.correct == 1), writers, math.nan)


def _row(
    scored: PoolTable, index: int, picks: Floats, offset: Floats, within: Floats, bootstrap: Bootstrap
) -> AuthorRow:
    own, right = scored.author_of_row == index, scored.correct == 1
    good, bad = own & right, own & ~right
    num_own, num_good, num_right = (scored.total(rows) for rows in (own, good, right))
    known = ~np.isnan(picks) & (num_right > 0) & (num_own > 0)
    share = np.where(known, ratio(num_good, num_right), math.nan)
    picked = np.where(known, (picks == index).astype(float), math.nan)
    return AuthorRow(
        generator=scored.authors[index],
        num_candidates=int(own.sum()),
        accuracy=bootstrap.proportion(ratio(num_good, num_own)),
        correct_share=bootstrap.proportion(share),
        pick_share=bootstrap.proportion(picked),
        excess=bootstrap.mean(picked - share),
        energy_correct=bootstrap.ratio(*sums_of(scored, scored.mu, good)),
        energy_incorrect=bootstrap.ratio(*sums_of(scored, scored.mu, bad)),
        offset=bootstrap.ratio(*sums_of(scored, offset, good)),
        within_auroc=bootstrap.auroc_interval(
            within, int((num_own > 0).sum()), fewest=min(int(good.sum()), int(bad.sum()))
        ),
    )


def _within_auroc(scored: PoolTable, centred: Floats, own: Bools, bootstrap: Bootstrap) -> Floats:
    """AUROC of -centred mu for correctness among one generator's rows, shape (1 + B,). NaN with one class."""
    certainty, correct, problem = -centred[own], scored.correct[own], scored.pool_of_row[own]
    # In blocks, because resamples times candidates would not fit in memory for large pools.
    step = max(1, MAX_WEIGHTS // max(len(problem), 1))
    return np.concatenate(
        [
            weighted_auroc(certainty, correct, bootstrap.weights[start : start + step, problem])
            for start in range(0, len(bootstrap.weights), step)
        ]
    )


def _identity_share(scored: PoolTable, offset: Floats, bootstrap: Bootstrap) -> Estimate:
    """Variance of ``offset`` between generators over its total variance (eta squared)."""
    right = ~np.isnan(offset)
    shared = scored.total(right) > 1  # a single correct candidate equals its mean
    right &= shared[scored.pool_of_row]
    squares, _ = sums_of(scored, offset**2, right)
    if squares.sum() <= 1e-12:
        return Estimate(value=None, low=None, high=None, n=int(shared.sum()))
    between = np.zeros(len(bootstrap.weights))
    for index in range(len(scored.authors)):
        sums = np.stack(sums_of(scored, offset, right & (scored.author_of_row == index)), axis=1)
        top, bottom = weighted_sums(bootstrap.weights, sums).T
        between += np.nan_to_num(ratio(top**2, bottom))
    return bootstrap.interval(ratio(between, weighted_sums(bootstrap.weights, squares)), int(shared.sum()))
