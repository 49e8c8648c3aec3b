"""Selectors of others, by hand."""

import math

import numpy as np
import pytest

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.peers import best_alpha, majority_of_the_bests, peer_selectors, pessimistic


def pessimist(pool, *, alpha):
    return pessimistic(Stack.of([pool]), alpha=alpha)[0]


def mode_of_the_bests(pool):
    return majority_of_the_bests(Stack.of([pool]))[0]


def test_pessimistic_verification_without_a_penalty_is_the_best_mean(make_pool):
    # -mu: a has (3 + 1) / 2 = 2, b has 2.5.
    pool = make_pool(
        (0, {"key": "a", "members": (-3.0,)}),
        (0, {"key": "a", "members": (-1.0,)}),
        (1, {"key": "b", "members": (-2.5,)}),
    )
    assert pessimist(pool, alpha=0.0).tolist() == [0.0, 0.0, 1.0]


def test_pessimistic_verification_distrusts_what_one_candidate_says(make_pool):
    # ln 3 = 1.0986: a 2 - alpha * 0.3662, b 2.5 - alpha * 0.5493; they are equal at alpha = 2.7307.
    pool = make_pool(
        (0, {"key": "a", "members": (-3.0,)}),
        (0, {"key": "a", "members": (-1.0,)}),
        (1, {"key": "b", "members": (-2.5,)}),
    )
    assert pessimist(pool, alpha=2.7).tolist() == [0.0, 0.0, 1.0]
    assert pessimist(pool, alpha=2.8).tolist() == [0.5, 0.5, 0.0]


def test_the_alpha_of_validation_problems(make_pool):
    # Only a penalty above 2.73 turns the choice to the answer that is right here.
    pool = make_pool(
        (1, {"key": "a", "members": (-3.0,)}),
        (1, {"key": "a", "members": (-1.0,)}),
        (0, {"key": "b", "members": (-2.5,)}),
    )
    assert best_alpha(Stack.of([pool])) == 4.0


def test_no_alpha_without_labels(make_pool):
    assert best_alpha(Stack.of([make_pool((None, {"members": (1.0,)}))])) is None


def test_majority_of_the_bests_by_hand(make_pool):
    # N = 4, m = 2. The k-th best is the best of two draws with probability 7, 5, 3, 1 sixteenths:
    # a (best and worst) 8/16, b (the two in between) 8/16.
    pool = make_pool(
        (1, {"key": "a", "members": (1.0,)}),
        (0, {"key": "b", "members": (2.0,)}),
        (0, {"key": "b", "members": (3.0,)}),
        (1, {"key": "a", "members": (4.0,)}),
    )
    assert mode_of_the_bests(pool).tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25])


def test_majority_of_the_bests_overrules_a_single_best(make_pool):
    # a 7/16, b 9/16.
    pool = make_pool(
        (0, {"key": "a", "members": (1.0,)}), *((1, {"key": "b", "members": (mu,)}) for mu in (2.0, 3.0, 4.0))
    )
    assert mode_of_the_bests(pool).tolist() == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])


def test_equal_energies_share_their_chance(make_pool):
    # N = 3, m = 2: a and b are level at the top, together 1 - (1/3)^2 = 8/9; c has 1/9.
    pool = make_pool(
        (1, {"key": "a", "members": (1.0,)}), (0, {"key": "b", "members": (1.0,)}), (0, {"key": "c", "members": (2.0,)})
    )
    assert mode_of_the_bests(pool).tolist() == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize("selector", [mode_of_the_bests, lambda pool: pessimist(pool, alpha=1.0)])
def test_what_has_no_answer_or_no_energy_is_not_chosen(make_pool, selector):
    pool = make_pool(
        (1, {"penalty": math.inf, "members": (-9.0,)}), (1, {"key": "b"}), (0, {"key": "c", "members": (5.0,)})
    )
    assert selector(pool).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("selector", [mode_of_the_bests, lambda pool: pessimist(pool, alpha=1.0)])
def test_nothing_is_chosen_where_nothing_was_scored(make_pool, selector):
    assert not np.any(selector(make_pool((1, {"key": "a"}), (0, {"key": "b"}))))


@pytest.mark.parametrize("selector", [mode_of_the_bests, lambda pool: pessimist(pool, alpha=0.7)])
def test_the_order_of_the_pool_does_not_matter(make_pool, selector):
    rows = [
        (1, {"key": "a", "members": (1.0,)}),
        (0, {"key": "b", "members": (0.5,)}),
        (0, {"key": "a", "members": (2.0,)}),
    ]
    assert selector(make_pool(*rows))[::-1].tolist() == selector(make_pool(*rows[::-1])).tolist()


def test_rows_need_energies(make_pool):
    assert peer_selectors(Stack.of([make_pool((1, {"key": "a"}))]), Stack.of([])) == []


def test_the_description_says_where_alpha_comes_from(make_pool):
    pool = make_pool((1, {"key": "a", "members": (1.0,)}), (0, {"key": "b", "members": (2.0,)}))
    (plain, _), (tuned, _) = (peer_selectors(Stack.of([pool]), Stack.of(validation)) for validation in ([], [pool]))
    assert "alpha=0.5 " in plain.description
    assert "alpha=0 chosen on validation problems" in tuned.description
