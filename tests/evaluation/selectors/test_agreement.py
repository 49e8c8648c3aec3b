import math

import numpy as np
import pytest

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.agreement import (
    agreement_selectors,
    best_temperature,
    learned_agreement,
    learned_scores,
)
from raydebm.evaluation.selectors.selector import values_of
from raydebm.evaluation.selectors.standard import tempered_vote


@pytest.fixture
def divided(make_pool):
    """One good candidate at E = 0 against two poor ones that agree at E = 1."""
    return make_pool(
        (1, {"members": (0.0,), "key": "x"}),
        (0, {"members": (1.0,), "key": "y"}),
        (0, {"members": (1.0,), "key": "y"}),
    )


def chosen(pool, temperature):
    return tempered_vote(Stack.of([pool]), lambda_=1.0, temperature=temperature)[0].tolist()


def test_a_low_temperature_follows_the_energy_a_high_one_the_vote(divided):
    """2 exp(-1 / T) passes 1 at T = 1 / ln 2 = 1.44."""
    assert chosen(divided, 1.4) == [1.0, 0.0, 0.0]
    assert chosen(divided, 1.5) == [0.0, 0.5, 0.5]


def test_the_temperature_is_the_one_that_serves_validation_best(divided, make_pool):
    crowd = make_pool(
        (0, {"members": (0.0,), "key": "x"}),
        (1, {"members": (1.0,), "key": "y"}),
        (1, {"members": (1.0,), "key": "y"}),
    )

    assert best_temperature(Stack.of([divided]), 1.0) == 1.0
    assert best_temperature(Stack.of([crowd]), 1.0) == 2.0
    assert best_temperature(Stack.of([make_pool((None, {"members": (0.0,)}))]), 1.0) is None


def test_what_does_not_parse_does_not_vote(make_pool):
    pool = make_pool((0, {"members": (0.0,), "penalty": math.inf}), (1, {"members": (9.0,)}))

    assert chosen(pool, 1.0) == [0.0, 1.0]


def test_without_validation_or_energies_there_is_neither(make_pool):
    assert agreement_selectors(Stack.of([]), lambda_=1.0) == []
    assert agreement_selectors(Stack.of([make_pool((1, {}))]), lambda_=1.0) == []


def agreeing_pools(make_pool, n, seed):
    """Energies say nothing; the right answer is the more frequent one."""
    rng = np.random.default_rng(seed)
    pools = [
        make_pool(
            *[
                (
                    correct,
                    {"members": (float(rng.normal()), float(rng.normal())), "key": "r" if correct else f"w{index}"},
                )
                for index, correct in enumerate(rng.permutation([1, 1, 1, 0, 0, 0, 0]).tolist())
            ],
            problem_id=f"{seed}-{problem}",
        )
        for problem in range(n)
    ]
    return Stack.of(pools)


def test_learned_agreement_learns_that_the_crowd_is_right_when_energies_are_noise(make_pool):
    test, validation = agreeing_pools(make_pool, 30, 0), agreeing_pools(make_pool, 30, 1)
    learned = agreement_selectors(validation, lambda_=1.0)[-1]

    assert learned.name == "learned agreement"
    assert values_of(learned, test).correct.mean() == 1.0


def test_learned_scores_stand_in_the_columns_of_the_stack(make_pool):
    test, validation = agreeing_pools(make_pool, 3, 0), agreeing_pools(make_pool, 20, 1)

    scores = learned_scores(test, model=learned_agreement(validation, 1.0), lambda_=1.0)

    assert (test.at(test.correct, scores.argmax(axis=1)) == 1).all()


def test_validation_of_one_class_teaches_nothing(make_pool):
    assert learned_agreement(Stack.of([make_pool((1, {"members": (0.0,)}))]), 1.0) is None
