"""Generators that answered different problems."""

import numpy as np
import pytest

from raydebm.evaluation.stats.effects import comparable, generator_effects


def effects(*rows, num_generators):
    problem, generator, values = (np.array(column) for column in zip(*rows, strict=True))
    return generator_effects(problem, generator, values.astype(float), num_generators=num_generators)


def test_with_full_cover_effects_are_plain_means_around_zero():
    by_generator = effects((0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 1.0), num_generators=2)

    assert by_generator == pytest.approx([0.25, -0.25])


def test_the_difficulty_of_problems_is_no_effect():
    """Generator 1 loses 0.5 to generator 0 where both answered, and answered the easy problem alone."""
    by_generator = effects((0, 0, 0.5), (0, 1, 0.0), (1, 1, 1.0), num_generators=2)

    assert by_generator == pytest.approx([0.25, -0.25])


def test_generators_are_compared_through_a_third():
    """0 and 2 share no problem; 1 is 1 below 0 and 1 above 2."""
    by_generator = effects((0, 0, 9.0), (0, 1, 8.0), (1, 1, 3.0), (1, 2, 2.0), num_generators=3)

    assert by_generator == pytest.approx([1.0, 0.0, -1.0])


def test_groups_without_a_common_problem_are_centred_each():
    by_generator = effects((0, 0, 5.0), (0, 1, 3.0), (1, 2, 100.0), num_generators=3)

    assert by_generator == pytest.approx([1.0, -1.0, 0.0])


def test_a_generator_without_values_has_no_effect():
    assert np.isnan(effects((0, 0, 1.0), num_generators=2)).tolist() == [False, True]


def test_comparable_are_the_generators_of_the_largest_group():
    """0 and 1 share a problem, 2 and 3 share two."""
    problem, generator = np.array([7, 7, 8, 8, 9, 9]), np.array([0, 1, 2, 3, 2, 3])

    assert comparable(problem, generator, num_generators=4).tolist() == [False, False, True, True]


def test_a_third_makes_two_generators_comparable():
    problem, generator = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])

    assert comparable(problem, generator, num_generators=4).tolist() == [True, True, True, False]
