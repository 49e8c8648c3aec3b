"""Votes weighted by known properties of each candidate, fitted on labelled problems outside the test split.

- *generator-weighted vote*: a vote has the log-odds that its generator's votes are correct. It uses authors and no
  energies, so an energy vote's advantage over it is not knowledge of the author.
- *learned vote*: a vote has the log-odds that the candidate is correct, by a logistic regression on mu relative to the
  mean mu of its generator, sigma, penalty, length and the generator itself.

The learned vote, which reads energies, is fitted on validation problems; the generator-weighted vote on all problems
that the posterior learns from, including out-of-bag ones. Both are fitted on voting candidates, those with an answer.

Both add a constant to the log-odds, because agreement among many different wrong answers is stronger evidence than
log-odds indicate. The constant is the one of ``SHIFTS`` with the highest pass@1 on those problems, each judged by a fit
on other folds (five folds). Ties go to the largest, which is nearest to the plain vote. Negative weights are replaced
by almost 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.selector import Selector, expected, vote
from raydebm.evaluation.stats.logistic import standardized_logistic

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

GENERATOR_VOTE, LEARNED_VOTE = "generator-weighted vote", "learned vote"
SHIFTS = (0.0, 1.0, 2.0, 4.0)
NUM_FOLDS = 5
LEAST = 1e-6
"""Weight of a vote that is more likely wrong than right. It breaks ties and decides if there is no better vote."""
LogOdds = Callable[[Stack], Floats]
"""Log-odds that each candidate is correct, (P, N)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Statistics of each generator on labelled problems."""

    log_odds: Mapping[str, float]
    mean_mu: Mapping[str, float]
    overall_mu: float
    mean_sigma: float

    @classmethod
    def of(cls, validation: Stack) -> "_Known":
        votes, mu = validation.answer >= 0, validation.mu()
        rows = {name: votes & (validation.generator == index) for index, name in enumerate(validation.generators)}
        rows = {name: own for name, own in rows.items() if own.any()}
        return cls(
            log_odds={name: _log_odds(validation.correct[own]) for name, own in rows.items()},
            mean_mu={name: _mean(mu[own]) for name, own in rows.items()},
            overall_mu=_mean(mu[votes]),
            mean_sigma=_mean(validation.sigma()[votes]),
        )

    def by_generator(self, stack: Stack, values: Mapping[str, float], default: float) -> Floats:
        """Statistic of each candidate's generator, shape (P, N)."""
        table = np.array([*(values.get(name, default) for name in stack.generators), default])
        return table[stack.generator]  # the last entry is for padding


def _log_odds(labels: Floats) -> float:
    """Log-odds of the share correct, with one correct and one incorrect added to keep them finite."""
    known = labels[~np.isnan(labels)]
    return math.log((known.sum() + 1) / (len(known) - known.sum() + 1))


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def learned_votes(validation: Stack, labelled: Stack | None = None) -> list[Selector]:
    """Both votes, if the labelled problems allow. Empty without labels of both classes.

    Args:
        validation: Pools with energies, for the learned vote.
        labelled: Pools for the generator-weighted vote. Default: ``validation``.
    """
    labelled = validation if labelled is None else labelled
    selectors: list[Selector | None] = []
    if len(labelled.generators) > 1 and _has_both(labelled):
        what = "log-odds that its generator's votes are correct"
        selectors.append(_selector(GENERATOR_VOTE, what, _by_generator, labelled))
    if validation.num_members and _has_both(validation):
        what = "log-odds by a logistic regression of energy, spread, penalty, length and generator"
        selectors.append(_selector(LEARNED_VOTE, what, _by_model, validation))
    return [selector for selector in selectors if selector is not None]


def _has_both(stack: Stack) -> bool:
    labels = stack.correct[stack.answer >= 0]
    return len(set(labels[~np.isnan(labels)].tolist())) == 2


Fit = Callable[[Stack], LogOdds | None]
"""Labelled problems -> log-odds. None without both classes."""


def _by_generator(validation: Stack) -> LogOdds | None:
    return partial(_of_generators, known=_Known.of(validation))


def _by_model(validation: Stack) -> LogOdds | None:
    known = _Known.of(validation)
    usable = (validation.answer >= 0) & ~np.isnan(validation.correct)
    features, correct = _features(validation, known)[usable], validation.correct[usable]
    if len(set(correct.tolist())) < 2:
        return None
    model = standardized_logistic().fit(features, correct)
    return partial(_of_model, model=model, known=known)


def _selector(name: str, what: str, fit: Fit, validation: Stack) -> Selector | None:
    log_odds = fit(validation)
    if log_odds is None:
        return None
    asked = np.flatnonzero(validation.present.any(axis=1))
    fold_of = np.arange(len(asked)) % NUM_FOLDS
    folds = [
        (fitted, validation.only(asked[fold_of == fold]))
        for fold in range(min(NUM_FOLDS, len(asked)))
        if (fold_of != fold).any() and (fitted := fit(validation.only(asked[fold_of != fold]))) is not None
    ]
    shift = max(SHIFTS, key=lambda shift: (_pass_at_1(folds, shift), shift))
    return Selector(
        name=name,
        group="ablation",
        description=f"the answer with the most votes, where a vote counts the {what} plus {shift:g}, fitted on "
        f"{'labelled problems outside the test' if name == GENERATOR_VOTE else 'validation problems'}; ties shared",
        weights=partial(_weighted, log_odds=log_odds, shift=shift),
        energies=0.0 if name == GENERATOR_VOTE else 1.0,
    )


def _weighted(stack: Stack, *, log_odds: LogOdds, shift: float) -> Floats:
    return vote(stack, np.maximum(log_odds(stack) + shift, LEAST))


def _pass_at_1(folds: Sequence[tuple[LogOdds, Stack]], shift: float) -> float:
    values = [expected(_weighted(stack, log_odds=log_odds, shift=shift), stack.correct) for log_odds, stack in folds]
    return round(_mean(np.concatenate([np.zeros(0), *values])), 9)


def _of_generators(stack: Stack, *, known: _Known) -> Floats:
    return known.by_generator(stack, known.log_odds, 0.0)


def _features(stack: Stack, known: _Known) -> Floats:
    """Features, shape (P, N, F). A missing energy or spread is replaced by the average. Rows of candidates that do not
    vote are arbitrary."""
    names = np.array([*stack.generators, ""])[stack.generator]
    columns = [
        stack.mu() - known.by_generator(stack, known.mean_mu, known.overall_mu),
        np.nan_to_num(stack.sigma(), nan=known.mean_sigma),
        np.where(np.isfinite(stack.penalty), stack.penalty, 0.0),
        np.log(stack.length + 1),
        *((names == name).astype(np.float64) for name in known.log_odds),
    ]
    features: Floats = np.nan_to_num(np.stack(columns, axis=2))
    return features


def _of_model(stack: Stack, *, model: "Pipeline", known: _Known) -> Floats:
    features = _features(stack, known)
    log_odds: Floats = model.decision_function(features.reshape(-1, features.shape[2]))
    return log_odds.reshape(stack.present.shape)
