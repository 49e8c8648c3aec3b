"""Selectors that combine the energy with how far the candidates agree, tuned on validation problems.

- *tempered vote*: each answer's sum of exp(-E / T). T -> 0 is the energy minimiser, T -> inf the majority vote; T is
  the one with the highest pass@1 on validation problems.
- *learned agreement*: a logistic regression of "this candidate is correct" on its energy and spread relative to the
  pool, the share of its answer, its constraint penalty and its relative length, fitted on validation candidates (each
  problem weighs the same).
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from raydebm.energy import total_energies
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.selector import (
    Selector,
    expected,
    lowest,
    vote,
)
from raydebm.evaluation.stats.logistic import SAMPLE_WEIGHT, standardized_logistic

TEMPERATURES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
TEMPERED, LEARNED = "tempered vote", "learned agreement"


def agreement_selectors(
    pools: Sequence[EvaluatedPool], validation: Sequence[EvaluatedPool], *, lambda_: float
) -> list[Selector]:
    """Both, as far as the validation problems allow; none without energies or without validation problems."""
    if not validation or not any(pool.members.shape[1] for pool in validation):
        return []
    found = []
    temperature = best_temperature(validation, lambda_)
    if temperature is not None:
        found.append(
            Selector(
                name=TEMPERED,
                group="ablation",
                description=f"each answer's sum of exp(-E / T), T={temperature:g} chosen on validation problems",
                weights=partial(tempered_vote, lambda_=lambda_, temperature=temperature),
            )
        )
    scores = learned_scores(pools, validation, lambda_)
    if scores is not None:
        found.append(
            Selector(
                name=LEARNED,
                group="ablation",
                description="highest probability by a logistic regression of energy, spread, agreement, penalty and "
                "length, fitted on validation candidates; ties shared",
                weights=partial(_highest, scores=scores),
            )
        )
    return found


def tempered_vote(pool: EvaluatedPool, *, lambda_: float, temperature: float) -> Floats:
    """Weights of the pool's candidates; unparsed and unscored ones do not vote."""
    energy = total_energies(pool.mu, pool.penalty, lambda_)
    usable = np.isfinite(energy) & pool.in_pool
    if not usable.any():
        return np.zeros(len(energy))
    shifted = np.where(usable, energy, math.inf) - energy[usable].min()
    return vote(pool, np.exp(-shifted / temperature))


def best_temperature(validation: Sequence[EvaluatedPool], lambda_: float) -> float | None:
    """The best of ``TEMPERATURES``; ties go to the one nearest to 1. None when no validation choice has a label."""
    ranked = []
    for temperature in TEMPERATURES:
        values = [
            expected(tempered_vote(pool, lambda_=lambda_, temperature=temperature), pool.correct) for pool in validation
        ]
        known = [value for value in values if not math.isnan(value)]
        if known:
            ranked.append((-sum(known) / len(known), abs(math.log(temperature)), temperature))
    return min(ranked)[2] if ranked else None


def _highest(pool: EvaluatedPool, *, scores: Mapping[str, Floats]) -> Floats:
    found = scores.get(pool.problem.problem_id)
    return np.zeros(len(pool.correct)) if found is None else lowest(-found, pool.in_pool)


def learned_scores(
    pools: Sequence[EvaluatedPool], validation: Sequence[EvaluatedPool], lambda_: float
) -> dict[str, Floats] | None:
    """Log-odds per candidate in the pools' order, by problem id; None when validation has only one class."""
    train = Stack.of(validation)
    features, usable = _features(train, lambda_)
    labelled = usable & ~np.isnan(train.correct)
    if len(set(train.correct[labelled].tolist())) < 2:
        return None
    per_problem = np.broadcast_to(labelled.sum(axis=1, keepdims=True), labelled.shape)
    model = standardized_logistic()
    model.fit(features[labelled], train.correct[labelled], **{SAMPLE_WEIGHT: 1.0 / per_problem[labelled]})
    test = Stack.of(pools)
    features, usable = _features(test, lambda_)
    scores = np.full(usable.shape, math.nan)
    if usable.any():
        scores[usable] = model.decision_function(features[usable])
    found = {}
    for row, pool in enumerate(pools):
        ordered = np.full(len(pool.correct), math.nan)
        ordered[test.rows[row]] = scores[row, : len(test.rows[row])]
        found[pool.problem.problem_id] = ordered
    return found


def _features(stack: Stack, lambda_: float) -> tuple[Floats, np.ndarray]:
    """(P, N, F) and which candidates have them: parsed and scored ones."""
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
    """(P, N): share of the pool's votes that a candidate's answer holds."""
    count = int(stack.answer.max(initial=0)) + 1
    places = np.where(stack.answer >= 0, stack.answer, 0) + count * np.arange(len(votes))[:, None]
    held = np.where(stack.answer >= 0, votes, 0.0)
    totals = np.bincount(places.ravel(), weights=held.ravel(), minlength=count * len(votes))
    whole = held.sum(axis=1, keepdims=True)
    share: Floats = np.divide(totals[places], whole, where=whole > 0, out=np.zeros(votes.shape))
    return share


def _log_lengths(stack: Stack) -> Floats:
    """(P, N): log of the text's length relative to the pool's median."""
    lengths = np.zeros(stack.present.shape)
    for row, pool in enumerate(stack.pools):
        texts = [pool.candidates[place].candidate.text or "" for place in stack.rows[row]]
        if texts:
            sizes = np.array([len(text) + 1 for text in texts], dtype=np.float64)
            lengths[row, : len(sizes)] = np.log(sizes / np.median(sizes))
    return lengths
