"""Linear heads on frozen features of a recorded pool, each answer scored by a head that did not see its problem.

In:   labelled pools, and features by candidate id.
Out:  scores by candidate id, higher is better.

Learned from all pairs of a right and a wrong answer to a problem, or from the pairs of each author's right answers and
its wrong ones, whatever their problems: these cannot teach who wrote an answer. Problems weigh equally in the former,
authors in the latter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from reader_table import NUM_FOLDS

from raydebm.baselines.linear_heads import Differences, LinearHeads, fit_heads, heads_of, projection
from raydebm.decision.evidence.fitting import LabelledPool
from raydebm.decision.evidence.groups import Floats
from raydebm.identity import seed_for
from raydebm.pairs import TrainingGroup, deal_folds

NUM_COMPONENTS = 96
BAG_FRAC = 0.8
"""Share of the problems that a member of an ensemble of heads learns from, as ``pairs.bag_frac``."""

Features = Mapping[str, Floats]


def head_scores(
    pools: Sequence[LabelledPool], features: Features, *, within_author: bool = False, bag: int | None = None
) -> dict[str, float]:
    """Candidate id -> score by the head that did not learn from its problem.

    Args:
        within_author: learn from pairs of one author's answers.
        bag: seed of the folds and of the problems that are learned from; None: seed 0 and all problems.
    """
    by_problem = {pool.problem_id: _features_of(pool, features) for pool in pools}
    seed = bag or 0
    learned = pools if bag is None else _bag(pools, bag)
    heads, folds = (_within_author if within_author else _all_pairs)(learned, by_problem, seed)
    return {
        scored.candidate.candidate_id: float(score)
        for pool in pools
        for scored, score in zip(
            pool.candidates,
            heads.scores(by_problem[pool.problem_id], [folds.get(pool.problem_id)] * len(pool.candidates)),
            strict=True,
        )
    }


def _features_of(pool: LabelledPool, features: Features) -> Floats:
    return np.array([features[scored.candidate.candidate_id] for scored in pool.candidates], dtype=float)


def _bag(pools: Sequence[LabelledPool], seed: int) -> list[LabelledPool]:
    order = np.random.default_rng(seed_for(seed, "bag")).permutation(len(pools))
    return [pools[place] for place in order[: round(BAG_FRAC * len(pools))]]


def _all_pairs(
    pools: Sequence[LabelledPool], by_problem: Mapping[str, Floats], seed: int
) -> tuple[LinearHeads, dict[str, int]]:
    groups = [group for group in map(_group, pools) if group.pairs]
    return fit_heads(groups, by_problem, num_components=NUM_COMPONENTS, num_folds=NUM_FOLDS, seed=seed)


def _group(pool: LabelledPool) -> TrainingGroup:
    """The pool's pairs; its id stands for its prompt."""
    right, wrong = (np.flatnonzero(side) for side in (pool.worth > 0.5, pool.worth <= 0.5))
    return TrainingGroup(
        problem_id=pool.problem_id,
        prompt=pool.problem_id,
        texts=tuple(scored.candidate.text or "" for scored in pool.candidates),
        pairs=tuple((int(better), int(worse)) for better in right for worse in wrong),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    place: int
    """Its row among all."""
    fold: int
    is_right: bool


def _within_author(
    pools: Sequence[LabelledPool], by_problem: Mapping[str, Floats], seed: int
) -> tuple[LinearHeads, dict[str, int]]:
    folds = deal_folds({pool.problem_id: pool.problem_id for pool in pools}, count=NUM_FOLDS, seed=seed)
    everything = np.vstack([by_problem[pool.problem_id] for pool in pools])
    mean_D, projection_DK = projection(everything, NUM_COMPONENTS)  # noqa: N806
    projected = everything @ projection_DK
    values, weights, of_folds = [], [], []
    for answers in _by_author(pools, folds).values():
        right, wrong = ([answer for answer in answers if answer.is_right is side] for side in (True, False))
        for better, worse in product(right, wrong):
            values.append(projected[better.place] - projected[worse.place])
            weights.append(1 / (len(right) * len(wrong)))
            of_folds.append((better.fold, worse.fold))
    differences = Differences(values_PK=np.array(values), weights_P=np.array(weights), folds_P2=np.array(of_folds))
    return heads_of(differences, mean_D, projection_DK, num_folds=NUM_FOLDS), folds


def _by_author(pools: Sequence[LabelledPool], folds: Mapping[str, int]) -> dict[str, list[_Answer]]:
    authors: dict[str, list[_Answer]] = {}
    for place, (author, problem_id, worth) in enumerate(_rows(pools)):
        if np.isfinite(worth):
            answer = _Answer(place=place, fold=folds[problem_id], is_right=bool(worth > 0.5))
            authors.setdefault(author, []).append(answer)
    return authors


def _rows(pools: Sequence[LabelledPool]) -> Iterator[tuple[str, str, float]]:
    """(author, problem, worth) of each candidate, in the order of the rows of features."""
    for pool in pools:
        for scored, worth in zip(pool.candidates, pool.worth, strict=True):
            yield scored.candidate.generator, pool.problem_id, float(worth)
