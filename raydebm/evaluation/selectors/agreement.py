"""Selectors that combine the energy with the agreement of the candidates, tuned on validation problems.

- *tempered vote*: each answer's sum of exp(-E / T). T -> 0 is the energy minimiser, T -> inf the majority vote. T has
  the highest pass@1 on validation problems.
- *learned agreement*: a logistic regression of "this candidate is correct" on its energy and spread relative to the
  pool, the share of its answer, its constraint penalty and its relative length, fitted on validation candidates
  (problems have equal weight).
"""

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.pools.standings import medians
from raydebm.evaluation.selectors.selector import Selector, expected, lowest, rounded_mean
from raydebm.evaluation.selectors.standard import tempered_vote
from raydebm.evaluation.stats.logistic import SAMPLE_WEIGHT, standardized_logistic

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

TEMPERATURES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
TEMPERED, LEARNED = "tempered vote", "learned agreement"


def agreement_selectors(validation: Stack, *, lambda_: float) -> list[Selector]:
    """Both selectors, if the validation problems allow. Empty without energies or validation problems."""
    if not validation.num_members:
        return []
    selectors = []
    temperature = best_temperature(validation, lambda_)
    if temperature is not None:
        selectors.append(
            Selector(
                name=TEMPERED,
                group="ablation",
                description=f"each answer's sum of exp(-E / T), T={temperature:g} chosen on validation problems",
                weights=partial(tempered_vote, lambda_=lambda_, temperature=temperature),
                energies=1.0,
            )
        )
    model = learned_agreement(validation, lambda_)
    if model is not None:
        selectors.append(
            Selector(
                name=LEARNED,
                group="ablation",
                description="highest probability by a logistic regression of energy, spread, agreement, penalty and "
                "length, fitted on validation candidates; ties shared",
                weights=partial(_highest, model=model, lambda_=lambda_),
                energies=1.0,
            )
        )
    return selectors


def best_temperature(validation: Stack, lambda_: float) -> float | None:
    """Best of ``TEMPERATURES``, ties to the nearest to 1. None if no validation choice has a label."""
    ranked = []
    for temperature in TEMPERATURES:
        weights = tempered_vote(validation, lambda_=lambda_, temperature=temperature)
        value = rounded_mean(expected(weights, validation.correct))
        if value is not None:
            ranked.append((-value, abs(math.log(temperature)), temperature))
    return min(ranked)[2] if ranked else None


def learned_agreement(validation: Stack, lambda_: float) -> "Pipeline | None":
    """Fitted regression. None if validation has only one class."""
    features, usable = _features(validation, lambda_)
    labelled = usable & ~np.isnan(validation.correct)
    if len(set(validation.correct[labelled].tolist())) < 2:
        return None
    per_problem = np.broadcast_to(labelled.sum(axis=1, keepdims=True), labelled.shape)
    sample_weight = {SAMPLE_WEIGHT: 1.0 / per_problem[labelled]}
    return standardized_logistic().fit(features[labelled], validation.correct[labelled], **sample_weight)


def learned_scores(stack: Stack, *, model: "Pipeline", lambda_: float) -> Floats:
    """Log-odds that each candidate is correct, shape (P, N). NaN without features."""
    features, usable = _features(stack, lambda_)
    scores = np.full(usable.shape, math.nan)
    if usable.any():
        scores[usable] = model.decision_function(features[usable])
    return scores


def _highest(stack: Stack, *, model: "Pipeline", lambda_: float) -> Floats:
    return lowest(-learned_scores(stack, model=model, lambda_=lambda_), stack.present)


def _features(stack: Stack, lambda_: float) -> tuple[Floats, Bools]:
    """Features, shape (P, N, F), and the mask of candidates with features (parsed and scored)."""
    mu, sigma = stack.mu(), stack.sigma()
    energy = stack.energy(mu, lambda_)
    usable = stack.present & np.isfinite(energy) & (stack.answer >= 0)
    lowest_energy = np.where(usable, energy, math.inf).min(axis=1, keepdims=True)
    above = np.where(usable, energy - np.where(np.isfinite(lowest_energy), lowest_energy, 0.0), 0.0)
    mass = np.where(usable, np.exp(-above), 0.0)
    share, weighted = (_share_of_answer(stack, votes) for votes in (usable.astype(float), mass))
    lengths = _log_lengths(stack)
    columns = [above, energy, sigma, share, np.log(share + 0.01), weighted, stack.penalty, lengths]
    features = np.stack([np.where(usable, values, 0.0) for values in columns], axis=2)
    return features, usable


def _share_of_answer(stack: Stack, votes: Floats) -> Floats:
    """Share of the pool's votes for each candidate's answer, shape (P, N)."""
    totals = stack.by_answer(votes)
    whole = totals.sum(axis=1, keepdims=True)
    share: Floats = np.divide(stack.of_answer(totals), whole, where=whole > 0, out=np.zeros(votes.shape))
    return share


def _log_lengths(stack: Stack) -> Floats:
    """Log of the text's length relative to the pool's median, shape (P, N). 0 without a candidate."""
    sizes = np.where(stack.present, stack.length + 1, 1.0)
    middle = np.where(stack.present.any(axis=1), medians(sizes, stack.present), 1.0)
    return np.where(stack.present, np.log(sizes / middle[:, None]), 0.0)
