import math

import numpy as np
import pytest

from raydebm.baselines.linear_heads import INVERSE_PENALTIES, LinearHeads, fit_heads
from raydebm.errors import PoolError
from raydebm.pairs import TrainingGroup


def group(number, pairs=((0, 1),), texts=("right", "wrong")):
    return TrainingGroup(problem_id=f"p{number}", prompt=f"problem {number}", texts=texts, pairs=pairs)


def planted(number, *, shift=2.0):
    """Features of a right and a wrong text: the first differs by ``shift``, four others are noise."""
    noise = np.random.default_rng(number).normal(size=(2, 5))
    noise[:, 0] += (shift, 0.0)
    return noise


def fitted(count=40, *, shift=2.0, folds=5, components=5):
    groups = [group(number) for number in range(count)]
    features = {f"p{number}": planted(number, shift=shift) for number in range(count)}
    return fit_heads(groups, features, num_components=components, num_folds=folds, seed=0)


def by_hand(weights):
    """Two features that are left as they are."""
    return LinearHeads(
        mean_D=np.array([1.0, 0.0]),
        projection_DK=np.eye(2),
        weights_FK=np.array(weights),
        inverse_penalty=1.0,
        loss=0.1,
    )


def test_a_problem_that_no_head_learned_from_gets_the_mean_over_heads():
    heads = by_hand([[1.0, 0.0], [3.0, 1.0]])

    # (2 - 1, 4) by the heads: 1 and 3 + 4
    assert heads.scores(np.array([[2.0, 4.0]]), [None]).tolist() == [4.0]


def test_a_training_problem_gets_the_head_that_did_not_learn_from_it():
    heads = by_hand([[1.0, 0.0], [3.0, 1.0]])

    assert heads.scores(np.array([[2.0, 4.0], [2.0, 4.0]]), [0, 1]).tolist() == [1.0, 7.0]


def test_a_planted_difference_is_found():
    heads, _ = fitted()
    unseen = [planted(number) for number in range(1000, 1200)]
    won = [float(np.diff(heads.scores(features, [None, None]))[0]) < 0 for features in unseen]

    assert np.mean(won) > 0.85
    assert heads.loss < 0.5


def test_without_a_difference_the_loss_is_that_of_chance_and_the_penalty_strong():
    heads, _ = fitted(shift=0.0)

    assert heads.loss == pytest.approx(math.log(2), abs=0.05)
    assert heads.inverse_penalty == min(INVERSE_PENALTIES)


def test_each_head_leaves_its_fold_out():
    heads, folds = fitted()
    first = [number for number in range(40) if folds[f"problem {number}"] == 0]
    groups = [group(number) for number in range(40)]
    features = {f"p{number}": planted(number) for number in range(40)}
    for number in first:  # the labels of this fold turned round
        features[f"p{number}"] = features[f"p{number}"][::-1]
    turned, _ = fit_heads(groups, features, num_components=5, num_folds=5, seed=0)

    same = turned.inverse_penalty == heads.inverse_penalty
    assert np.allclose(turned.weights_FK[0], heads.weights_FK[0]) or not same
    assert not np.allclose(turned.weights_FK[1], heads.weights_FK[1])


def test_every_training_problem_has_a_fold_and_folds_are_equal_in_size():
    _, folds = fitted()

    assert sorted(np.bincount(list(folds.values()))) == [8] * 5


def test_a_problem_with_many_pairs_counts_as_much_as_one_with_one():
    """Six problems of one pair say up, one of nine pairs says down: up wins."""
    texts = ("a", "b", "c", "d", "e", "f")
    many = group(99, pairs=tuple((right, wrong) for right in range(3) for wrong in range(3, 6)), texts=texts)
    groups = [*(group(number) for number in range(6)), many]
    features = {f"p{number}": np.array([[1.0], [0.0]]) for number in range(6)}
    features["p99"] = np.array([[0.0]] * 3 + [[1.0]] * 3)
    heads, _ = fit_heads(groups, features, num_components=1, num_folds=2, seed=0)

    up, down = heads.scores(np.array([[1.0], [0.0]]), [None, None])
    assert up > down


def test_a_constant_feature_does_no_harm():
    groups = [group(number) for number in range(10)]
    features = {f"p{number}": np.hstack([planted(number), np.ones((2, 1))]) for number in range(10)}
    heads, _ = fit_heads(groups, features, num_components=96, num_folds=2, seed=0)

    assert np.isfinite(heads.scores(features["p0"], [None, None])).all()


def test_too_few_problems_for_the_folds():
    with pytest.raises(PoolError, match="3 training problems have a right and a wrong answer, and 5 folds need"):
        fitted(3)
