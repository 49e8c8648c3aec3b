"""Votes weighted by what is known of each candidate, fitted on validation problems.

- *generator-weighted vote*: a vote counts the log-odds that its generator's votes are correct. It knows authors and no
  energies: what another vote is worth beyond it does not come from knowing who wrote an answer.
- *learned vote*: a vote counts the log-odds that the candidate is correct, by a logistic regression on mu relative to
  the mean mu of its generator, sigma, penalty, length and the generator itself.

Both are fitted on what votes: candidates with an answer. What cannot vote says nothing about what a vote is worth.

Both add a constant to the log-odds: among many different wrong answers agreement says more than log-odds alone. It is
the one of ``SHIFTS`` with the highest pass@1 on validation problems, each judged by a fit that did not see it (five
folds); ties go to the largest, which is nearest to the plain vote. Weights below zero count as almost nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import Selector, vote
from raydebm.evaluation.stats.logistic import standardized_logistic

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

GENERATOR_VOTE, LEARNED_VOTE = "generator-weighted vote", "learned vote"
SHIFTS = (0.0, 1.0, 2.0, 4.0)
NUM_FOLDS = 5
LEAST = 1e-6
"""Weight of a vote that is more likely wrong than right: it breaks ties, and votes where no better one does."""
LogOdds = Callable[[EvaluatedPool], Floats]
"""Log-odds that each of a pool's candidates is correct, (N + G,)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What validation problems say about each generator."""

    log_odds: Mapping[str, float]
    mean_mu: Mapping[str, float]
    overall_mu: float
    mean_sigma: float

    @classmethod
    def of(cls, validation: Sequence[EvaluatedPool]) -> "_Known":
        found: dict[str, list[tuple[float, float]]] = {}
        spreads: list[float] = []
        for pool in validation:
            voters = _voters(pool)
            spreads += _sigma(pool)[voters].tolist()
            for scored, correct, mu, votes in zip(pool.candidates, pool.correct, pool.mu, voters, strict=False):
                if votes:
                    found.setdefault(scored.candidate.generator, []).append((float(correct), float(mu)))
        return cls(
            log_odds={name: _log_odds([correct for correct, _ in rows]) for name, rows in found.items()},
            mean_mu={name: _mean([mu for _, mu in rows]) for name, rows in found.items()},
            overall_mu=_mean([mu for rows in found.values() for _, mu in rows]),
            mean_sigma=_mean(spreads),
        )


def _voters(pool: EvaluatedPool) -> Bools:
    """(N + G,): candidates of the pool that have an answer."""
    return pool.in_pool & np.array([scored.report.vote_key is not None for scored in pool.everything], dtype=np.bool_)


def _sigma(pool: EvaluatedPool) -> Floats:
    """(N + G,): NaN where nothing was scored."""
    spread: Floats = pool.members.std(axis=1) if pool.members.shape[1] else np.full(len(pool.correct), math.nan)
    return spread


def _log_odds(labels: Sequence[float]) -> float:
    """Log-odds of the share correct, with one of each added so that they are finite."""
    known = [label for label in labels if not math.isnan(label)]
    return math.log((sum(known) + 1) / (len(known) - sum(known) + 1))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else 0.0


def learned_votes(validation: Sequence[EvaluatedPool]) -> list[Selector]:
    """Both votes as far as the validation problems allow; none without a label of each kind."""
    validation = [pool for pool in validation if pool.everything]
    labels = {float(label) for pool in validation for label in pool.correct[_voters(pool)] if not math.isnan(label)}
    if len(labels) < 2:
        return []
    found: list[Selector | None] = []
    if len({scored.candidate.generator for pool in validation for scored in pool.candidates}) > 1:
        what = "log-odds that its generator's votes are correct"
        found.append(_selector(GENERATOR_VOTE, what, _by_generator, validation))
    if any(pool.members.shape[1] for pool in validation):
        what = "log-odds by a logistic regression of energy, spread, penalty, length and generator"
        found.append(_selector(LEARNED_VOTE, what, _by_model, validation))
    return [selector for selector in found if selector is not None]


Fit = Callable[[Sequence[EvaluatedPool]], LogOdds | None]
"""Validation problems -> log-odds; None where they do not have both classes."""


def _by_generator(validation: Sequence[EvaluatedPool]) -> LogOdds | None:
    return partial(_of_generators, known=_Known.of(validation))


def _by_model(validation: Sequence[EvaluatedPool]) -> LogOdds | None:
    known = _Known.of(validation)
    usable = [_voters(pool) & ~np.isnan(pool.correct) for pool in validation]
    features = np.concatenate([_features(pool, known)[rows] for pool, rows in zip(validation, usable, strict=True)])
    correct = np.concatenate([pool.correct[rows] for pool, rows in zip(validation, usable, strict=True)])
    if len(set(correct.tolist())) < 2:
        return None
    model = standardized_logistic().fit(features, correct)
    return partial(_of_model, model=model, known=known)


def _selector(name: str, what: str, fit: Fit, validation: Sequence[EvaluatedPool]) -> Selector | None:
    log_odds = fit(validation)
    if log_odds is None:
        return None
    folds = [
        (fitted, validation[fold::NUM_FOLDS])
        for fold in range(NUM_FOLDS)
        if (rest := [pool for index, pool in enumerate(validation) if index % NUM_FOLDS != fold])
        and (fitted := fit(rest)) is not None
    ]
    shift = max(SHIFTS, key=lambda shift: (_pass_at_1(folds, shift), shift))
    return Selector(
        name=name,
        group="ablation",
        description=f"the answer with the most votes, where a vote counts the {what} plus {shift:g}, fitted on "
        "validation problems; ties shared",
        weights=partial(_weighted, log_odds=log_odds, shift=shift),
    )


def _weighted(pool: EvaluatedPool, *, log_odds: LogOdds, shift: float) -> Floats:
    return vote(pool, np.maximum(log_odds(pool) + shift, LEAST))


def _pass_at_1(folds: Sequence[tuple[LogOdds, Sequence[EvaluatedPool]]], shift: float) -> float:
    values = []
    for log_odds, pools in folds:
        for pool in pools:
            weights = _weighted(pool, log_odds=log_odds, shift=shift)
            known = ~np.isnan(pool.correct)
            mass = weights[known].sum()
            if mass > 0:
                values.append(float((weights[known] * pool.correct[known]).sum() / mass))
    return round(sum(values) / len(values), 9) if values else 0.0


def _of_generators(pool: EvaluatedPool, *, known: _Known) -> Floats:
    return np.array([known.log_odds.get(scored.candidate.generator, 0.0) for scored in pool.everything])


def _features(pool: EvaluatedPool, known: _Known) -> Floats:
    """(N + G, F); an energy or a spread that is missing counts as average. Rows that do not vote mean nothing."""
    mu, sigma = pool.mu, np.nan_to_num(_sigma(pool), nan=known.mean_sigma)
    names = list(known.log_odds)
    rows = []
    for index, scored in enumerate(pool.everything):
        generator = scored.candidate.generator
        rows.append(
            [
                mu[index] - known.mean_mu.get(generator, known.overall_mu),
                sigma[index],
                pool.penalty[index] if math.isfinite(pool.penalty[index]) else 0.0,
                math.log(len(scored.candidate.text or "") + 1),
                *(float(generator == name) for name in names),
            ]
        )
    return np.nan_to_num(np.array(rows, dtype=np.float64))


def _of_model(pool: EvaluatedPool, *, model: "Pipeline", known: _Known) -> Floats:
    log_odds: Floats = model.decision_function(_features(pool, known))
    return log_odds
