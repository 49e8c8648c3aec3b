"""What is left of mu without length; lengths are 9, 99 and 999 characters, so that the logs are 1, 2 and 3 tens."""

import math

import pytest

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.selectors.length_control import length_controlled, length_slope
from raydebm.evaluation.selectors.selector import values_of

LONG, MIDDLE, SHORT = "c" * 999, "b" * 99, "a" * 9
TEN = math.log(10)


@pytest.fixture
def by_length(make_pool):
    """mu = 5 - log10(length): nothing but length."""
    return make_pool(
        (1, {"members": (2.0,), "text": LONG}),
        (0, {"members": (3.0,), "text": MIDDLE}),
        (0, {"members": (4.0,), "text": SHORT}),
    )


def test_the_slope_is_within_problems(by_length, make_pool):
    """Another problem whose energies are all higher and whose texts are all longer changes nothing."""
    higher = make_pool((1, {"members": (99.0,), "text": LONG}), (0, {"members": (99.0,), "text": LONG}))

    assert length_slope(Stack.of([by_length])) == pytest.approx(-1 / TEN)
    assert length_slope(Stack.of([by_length, higher])) == pytest.approx(-1 / TEN)


def test_what_mu_knows_beyond_length_decides(by_length, make_pool):
    """By mu the long one (2.0); without length 4.9 for the middle one against 5.0 for both others."""
    (selector,) = length_controlled(Stack.of([by_length]))
    pool = make_pool(
        (0, {"members": (2.0,), "text": LONG}),
        (1, {"members": (2.9,), "text": MIDDLE}),
        (0, {"members": (4.0,), "text": SHORT}),
    )

    assert values_of(selector, Stack.of([pool])).correct.tolist() == [1.0]


def test_texts_without_energy_are_never_chosen(by_length, make_pool):
    (selector,) = length_controlled(Stack.of([by_length]))
    pool = make_pool((1, {"members": (2.0,), "text": LONG}), (None, {"text": None}))

    assert values_of(selector, Stack.of([pool])).correct.tolist() == [1.0]


def test_without_different_lengths_or_energies_there_is_no_such_selector(make_pool):
    equal = make_pool((1, {"members": (2.0,), "text": LONG}), (0, {"members": (3.0,), "text": LONG}))

    assert length_controlled(Stack.of([equal])) == []
    assert length_controlled(Stack.of([make_pool((1, {}), (0, {}))])) == []
    assert length_controlled(Stack.of([])) == []
