import math

import numpy as np
import pytest
from hand_made import table_of
from scipy.stats import norm

from raydebm.evaluation.results.energy_metrics import ensemble_accuracy, ensemble_theory
from raydebm.evaluation.stats.intervals import Bootstrap


def test_formula_against_a_value_by_hand():
    """sqrt(5) 0.2 / sqrt(0.21 (1 + 4 * 0.5)) = 0.5634; Phi = 0.7134."""
    assert ensemble_accuracy(5, 0.7, 0.5) == pytest.approx(0.7134, abs=1e-4)


def test_ceiling_is_the_limit():
    ceiling = ensemble_accuracy(math.inf, 0.7, 0.3)

    assert ceiling == pytest.approx(norm.cdf(0.2 / math.sqrt(0.21 * 0.3)))
    assert ensemble_accuracy(10**9, 0.7, 0.3) == pytest.approx(ceiling)


def test_with_full_correlation_more_adapters_add_nothing():
    assert ensemble_accuracy(1, 0.7, 1.0) == pytest.approx(ensemble_accuracy(50, 0.7, 1.0))


@pytest.mark.parametrize(("q", "expected"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_the_ends(q, expected):
    assert ensemble_accuracy(5, q, 0.2) == expected


@pytest.mark.parametrize(("k", "q", "rho"), [(0, 0.5, 0.1), (5, 1.1, 0.1), (5, 0.6, 2.0), (5, math.nan, 0.1)])
def test_nonsense_is_refused(k, q, rho):
    with pytest.raises(ValueError, match="need K >= 1"):
        ensemble_accuracy(k, q, rho)


def theory(pools):
    return ensemble_theory(table_of(pools), Bootstrap.of(len(pools), num_bootstrap=100, seed=0))


def test_estimates_by_hand(make_pool):
    """Four problems with one pair each. V_0 = 1 1 0 0, V_1 = 1 0 1 0: q = 1/2, rho = 0."""
    pools = [
        make_pool(
            (1, {"members": (0.0, 0.0)}),
            (0, {"members": (1.0 if first else -1.0, 1.0 if second else -1.0)}),
            problem_id=f"p{first}{second}",
        )
        for first in (0, 1)
        for second in (0, 1)
    ]

    estimates = theory(pools)

    assert estimates.q.value == 0.5
    assert estimates.rho.value == pytest.approx(0.0)
    assert estimates.num_pairs == 4
    assert estimates.measured.value == 0.25  # mu decides 0, 0 and ties are not wins


def test_problems_weigh_equally_whatever_their_number_of_pairs(make_pool):
    right = [(0, {"members": (1.0, 1.0)})]
    pools = [
        make_pool((1, {"members": (0.0, 0.0)}), *right * 9, problem_id="many"),
        make_pool((1, {"members": (0.0, 0.0)}), (0, {"members": (-1.0, -1.0)}), problem_id="one"),
    ]

    assert theory(pools).q.value == 0.5


def test_independent_adapters_are_predicted_as_measured(make_pool):
    generator = np.random.default_rng(0)
    pools = [
        make_pool(
            (1, {"members": tuple(generator.normal(0.0, 1.0, 5))}),
            (0, {"members": tuple(generator.normal(0.8, 1.0, 5))}),
            problem_id=f"p{index}",
        )
        for index in range(1500)
    ]

    estimates = theory(pools)

    assert abs(estimates.rho.value) < 0.03
    assert estimates.predicted == pytest.approx(estimates.measured.value, abs=0.05)


def test_one_adapter_has_no_correlation(make_pool):
    estimates = theory([make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}))])

    assert (estimates.rho.value, estimates.predicted) == (None, None)
    assert estimates.q.value == 1.0


def test_without_any_pair_there_is_no_theory(make_pool):
    assert theory([make_pool((1, {"members": (0.0, 1.0)}))]) is None
