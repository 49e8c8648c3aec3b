"""Votes weighted by what is known of each candidate, fitted on labelled problems outside the test.

- *generator-weighted vote*: a vote counts the log-odds that its generator's votes are correct. It knows authors and no
  energies: what another vote is worth beyond it does not come from knowing who wrote an answer.
- *learned vote*: a vote counts the log-odds that the candidate is correct, by a logistic regression on mu relative to
  the mean mu of its generator, sigma, penalty, length and the generator itself.

The learned vote, which reads energies, is fitted on validation problems; the other one on all problems that the
posterior learns from, those out of bag included. Both are fitted on what votes: candidates with an answer. What cannot
vote says nothing about what a vote is worth.

Both add a constant to the log-odds: among many different wrong answers agreement says more than log-odds alone. It is
the one of ``SHIFTS`` with the highest pass@1 on those problems, each judged by a fit that did not see it (five
folds); ties go to the largest, which is nearest to the plain vote. Weights below zero count as almost nothing.
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
"""Weight of a vote that is more likely wrong than right: it breaks ties, and votes where no better one does."""
LogOdds = Callable[[Stack], Floats]
"""Log-odds that each candidate is correct, (P, N)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What labelled problems say about each generator."""

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
        """(P, N): what is known of each candidate's generator."""
        table = np.array([*(values.get(name, default) for name in stack.generators), default])
        return table[stack.generator]  # the last entry where no candidate is


def _log_odds(labels: Floats) -> float:
    """Log-odds of the share correct, with one of each added so that they are finite."""
    known = labels[~np.isnan(labels)]
    return math.log((known.sum() + 1) / (len(known) - known.sum() + 1))


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def learned_votes(validation: Stack, labelled: Stack | None = None) -> list[Selector]:
    """Both votes as far as the labelled problems allow; none without a label of each kind.

    Args:
        validation: with energies, for the learned vote.
        labelled: for the vote by generators; None: ``validation``.
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
"""Labelled problems -> log-odds; None where they do not have both classes."""


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
    """(P, N, F); an energy or a spread that is missing counts as average. Rows that do not vote mean nothing."""
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
