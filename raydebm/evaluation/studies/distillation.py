"""A distilled scorer next to the ensemble it was made from: what one forward pass in place of K costs.

In:   test pools as the ensemble and the student scored them.
Out:  how far their mu, sigma and choices agree, what either gets right, and how long either takes.
Does not know: models, run directories.
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.pool import Floats, Ints, common_problems, of_problems
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, weighted_auroc
from raydebm.evaluation.studies.variants import ScoredVariant, VariantStudy, variant_study


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTime:
    """Seconds for the same texts, measured one after the other on one machine."""

    num_texts: int
    ensemble_s: float
    student_s: float

    @property
    def speedup(self) -> float:
        """How many times as fast the student is."""
        return self.ensemble_s / self.student_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationStudy:
    mu_rank: Estimate
    """Spearman's correlation of both mu within a problem's candidates, mean over problems."""
    sigma_rank: Estimate
    """The same of both sigma."""
    same_choice: Estimate
    """Share of problems in which both choose the same answer, by mu alone."""
    ensemble_auroc: Estimate
    """Share of (right, wrong) pairs of a problem that the ensemble's mu orders rightly; ties count half."""
    student_auroc: Estimate
    variants: VariantStudy
    """pass@1 and sigma-AUROC of both, with the paired tests."""
    time: ScoringTime


def distillation_study(
    ensemble: ScoredVariant, student: ScoredVariant, *, time: ScoringTime, num_bootstrap: int = 2000, seed: int = 0
) -> DistillationStudy:
    """Compare both on the problems that both have.

    Raises:
        PoolError: either has no pools.
    """
    shared = common_problems([ensemble.pools, student.pools])
    one, other = (Stack.of(of_problems(variant.pools, shared)) for variant in (ensemble, student))
    bootstrap = Bootstrap.of(len(shared), num_bootstrap=num_bootstrap, seed=seed)
    chosen, learnt = (stack.select(0.0) for stack in (one, other))
    same = np.where(chosen < 0, math.nan, _answer_at(one, chosen) == _answer_at(other, learnt))
    return DistillationStudy(
        mu_rank=bootstrap.mean(_rank_correlations(one.mu(), other.mu())),
        sigma_rank=bootstrap.mean(_rank_correlations(one.sigma(), other.sigma())),
        same_choice=bootstrap.proportion(same),
        ensemble_auroc=bootstrap.mean(_ordered(one)),
        student_auroc=bootstrap.mean(_ordered(other)),
        variants=variant_study(
            [ensemble, student], title="Ensemble and student", num_bootstrap=num_bootstrap, seed=seed
        ),
        time=time,
    )


def _rank_correlations(one: Floats, other: Floats) -> Floats:
    """(P,): Spearman's correlation of each row; NaN where one is constant or fewer than three values are known."""
    from scipy.stats import spearmanr

    values = np.full(len(one), math.nan)
    for row, (x, y) in enumerate(zip(one, other, strict=True)):
        known = ~(np.isnan(x) | np.isnan(y))
        if known.sum() >= 3 and len(set(x[known])) > 1 and len(set(y[known])) > 1:
            values[row] = spearmanr(x[known], y[known]).statistic
    return values


def _answer_at(stack: Stack, chosen: Ints) -> Ints:
    """(P,): number of the chosen candidate's answer; equal in both stacks, which hold the same candidates."""
    answers: Ints = stack.answer[np.arange(len(chosen)), chosen]
    return answers


def _ordered(stack: Stack) -> Floats:
    """(P,): AUROC of -mu for correctness among a problem's candidates; NaN without a right and a wrong one."""
    values = np.full(len(stack.problems), math.nan)
    for row, (mu, correct) in enumerate(zip(stack.mu(), stack.correct, strict=True)):
        known = ~(np.isnan(mu) | np.isnan(correct))
        if known.any():
            values[row] = weighted_auroc(-mu[known], correct[known], np.ones((1, int(known.sum()))))[0]
    return values
