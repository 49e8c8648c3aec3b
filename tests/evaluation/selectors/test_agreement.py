import math

import numpy as np
import pytest

from raydebm.evaluation.selectors.agreement import agreement_selectors, best_temperature, learned_scores, tempered_vote
from raydebm.evaluation.selectors.selector import value_of


@pytest.fixture
def divided(make_pool):
    """One good candidate at E = 0 against two poor ones that agree at E = 1."""
    return make_pool(
        (1, {"members": (0.0,), "key": "x"}),
        (0, {"members": (1.0,), "key": "y"}),
        (0, {"members": (1.0,), "key": "y"}),
    )


def chosen(pool, temperature):
    return tempered_vote(pool, lambda_=1.0, temperature=temperature).tolist()


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

    assert best_temperature([divided], 1.0) == 1.0
    assert best_temperature([crowd], 1.0) == 2.0
    assert best_temperature([make_pool((None, {"members": (0.0,)}))], 1.0) is None


def test_what_does_not_parse_does_not_vote(make_pool):
    pool = make_pool((0, {"members": (0.0,), "penalty": math.inf}), (1, {"members": (9.0,)}))

    assert chosen(pool, 1.0) == [0.0, 1.0]


def test_without_validation_or_energies_there_is_neither(divided, make_pool):
    assert agreement_selectors([divided], [], lambda_=1.0) == []
    assert agreement_selectors([divided], [make_pool((1, {}))], lambda_=1.0) == []


def agreeing_pools(make_pool, n, seed):
    """Energies say nothing; the right answer is the more frequent one."""
    rng = np.random.default_rng(seed)
    return [
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


def test_learned_agreement_learns_that_the_crowd_is_right_when_energies_are_noise(make_pool):
    test, validation = agreeing_pools(make_pool, 30, 0), agreeing_pools(make_pool, 30, 1)
    learned = agreement_selectors(test, validation, lambda_=1.0)[-1]

    assert learned.name == "learned agreement"
    assert np.mean([value_of(learned, pool).correct for pool in test]) == 1.0


def test_learned_scores_stand_in_the_order_of_the_pool(make_pool):
    test, validation = agreeing_pools(make_pool, 3, 0), agreeing_pools(make_pool, 20, 1)

    scores = learned_scores(test, validation, 1.0)

    for pool in test:
        assert (scores[pool.problem.problem_id].argmax() == np.flatnonzero(pool.correct == 1)).any()


def test_validation_of_one_class_teaches_nothing(make_pool):
    assert learned_scores([make_pool((1, {"members": (0.0,)}))], [make_pool((1, {"members": (0.0,)}))], 1.0) is None
