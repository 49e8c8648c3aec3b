import math

import numpy as np
import pytest
from hand_made import table_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from raydebm.evaluation.results.energy_metrics import (
    energy_measures,
    kendall_taus,
    pair_accuracies,
    pass_at_n_by_chance,
    pass_at_n_by_energy,
    pool_energies,
    selective_accuracy,
)
from raydebm.evaluation.stats.intervals import Bootstrap


def kendall_tau_b(pools, energies):
    (value,) = kendall_taus(pools, energies)
    return value


def bootstrap(n):
    return Bootstrap.of(n, num_bootstrap=200, seed=0)


ENERGIES = st.sampled_from([0.0, 1.0, 2.5]) | st.none()


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from([1, 0, None]), ENERGIES), min_size=1, max_size=4), min_size=1, max_size=3
    )
)
def test_pair_accuracies_compare_every_pair(make_pool, rows):
    pools = table_of(
        make_pool(
            *[(label, {"members": None if energy is None else (energy,)}) for label, energy in pool],
            problem_id=f"p{index}",
        )
        for index, pool in enumerate(rows)
    )
    shares = pair_accuracies(pools, pools.mu).tolist()
    assert [None if math.isnan(share) else share for share in shares] == [share_of_pairs(pool) for pool in rows]


def share_of_pairs(pool):
    good, bad = ([energy for label, energy in pool if label == wanted and energy is not None] for wanted in (1, 0))
    pairs = [1.0 if one < other else 0.5 * (one == other) for one in good for other in bad]
    return sum(pairs) / len(pairs) if pairs else None


def test_an_unparsed_wrong_candidate_is_ranked_last_by_the_total_energy(make_pool):
    pool = table_of([make_pool((1, {"members": (9.0,)}), (0, {"members": (0.0,), "penalty": math.inf}))])

    assert pair_accuracies(pool, pool_energies(pool, 1.0)).tolist() == [1.0]


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0, 1]), st.sampled_from([0.0, 1.0, 2.5, 4.0]), st.sampled_from([0.0, math.inf])),
        min_size=2,
        max_size=12,
    )
)
def test_kendall_tau_b_agrees_with_scipy_also_on_ties_and_infinities(make_pool, rows):
    pool = table_of(
        [make_pool(*[(label, {"members": (energy,), "penalty": penalty}) for label, energy, penalty in rows])]
    )
    energies = pool_energies(pool, 1.0)
    # A rank is all that counts; scipy cannot subtract infinities everywhere.
    expected = kendalltau(-np.where(np.isinf(energies), 99.0, energies), pool.correct).statistic

    assert kendall_tau_b(pool, energies) == pytest.approx(expected, nan_ok=True)


def test_kendall_tau_b_uses_the_violation_score_where_there_is_one(make_pool):
    pool = table_of([make_pool(*[(0, {"members": (float(e),)}) for e in range(3)], violations=[0.1, 0.2, 0.3])])

    assert kendall_tau_b(pool, pool.mu) == pytest.approx(1.0)


def test_pass_at_n_by_energy_and_by_chance(make_pool):
    """Correct is third by energy; by chance 1/4, 1/2, 3/4, 1."""
    pool = table_of([make_pool(*[(label, {"members": (float(e),)}) for e, label in enumerate([0, 0, 1, 0])])])

    np.testing.assert_array_equal(pass_at_n_by_energy(pool, 1.0, max_n=5)[0], [0, 0, 1, 1, 1])
    np.testing.assert_allclose(pass_at_n_by_chance(pool, max_n=5)[0], [0.25, 0.5, 0.75, 1.0, 1.0])


def test_one_labelled_candidate_is_found_by_chance_as_often_as_it_is_right(make_pool):
    pools = [make_pool((label, {}), (None, {}), problem_id=str(label)) for label in (1, 0, None)]

    np.testing.assert_equal(pass_at_n_by_chance(table_of(pools), max_n=2), [[1, 1], [0, 0], [math.nan, math.nan]])


def test_selections_of_equal_sigma_share_their_errors():
    """Which of equals is dropped must not depend on the order of the file."""
    rows = selective_accuracy(np.full(4, 0.5), np.array([1.0, 1, 0, 0]), bootstrap(4), shares=(0.0, 0.5))
    assert [row.pass_at_1.value for row in rows] == [0.5, 0.5]


def test_selective_accuracy_drops_the_highest_sigma():
    sigma, correct = np.array([0.9, 0.1, 0.2, 0.3, 5.0]), np.array([0.0, 1, 1, 0, math.nan])
    rows = selective_accuracy(sigma, correct, bootstrap(5), shares=(0.0, 0.25, 0.5))
    assert [(row.pass_at_1.value, row.pass_at_1.n) for row in rows] == [(0.5, 4), (pytest.approx(2 / 3), 3), (1.0, 2)]


def test_a_pair_accuracy_without_a_miss_has_an_exact_lower_limit(make_pool):
    """Two problems, no miss: Clopper-Pearson has 1 - 0.025 ** (1 / 2) to miss, however the problems are resampled."""
    pools = [make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}), problem_id=name) for name in "pq"]
    pools = table_of(pools)
    measured = energy_measures(pools, pools, ["a"], lambda_=0.0, bootstrap=bootstrap(2), tolerance=0.0)

    accuracy = next(row for row in measured["energies"] if row.name == "mu").pair_accuracy
    assert (accuracy.value, accuracy.low, accuracy.high) == (1.0, pytest.approx(0.025**0.5), 1.0)


def test_energies_by_hand_with_mu_and_e_that_choose_differently(make_pool):
    """p: mu 1 and 0.5, E 1 and 1.5, so that mu alone chooses the wrong one, which has no sigma. q: 0.25 and 3."""
    p = [(1, {"members": (0.0, 2.0)}), (0, {"members": (0.5, 0.5), "penalty": 1.0})]
    q = [(1, {"members": (0.0, 0.5)}), (0, {"members": (3.0, 3.0)})]
    pools = table_of([make_pool(*p, problem_id="p"), make_pool(*q, problem_id="q")])

    measured = energy_measures(pools, pools, ["a", "b"], lambda_=1.0, bootstrap=bootstrap(2), tolerance=0.0)

    by_energy, by_mu = ([row.pass_at_1.value for row in measured[name]] for name in ("selective", "mu_selective"))
    # From 0.3 on one of the two selections is dropped.
    assert (by_energy, by_mu) == ([1.0] * 6, [0.5] * 3 + [0.0] * 3)
    assert [row.abstain_frac for row in measured["selective"]] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert (measured["sigma_auroc"].value, measured["mu_sigma_auroc"].value) == (None, 0.0)
    *_, mu, e = measured["energies"]
    assert (mu.mean_incorrect.value, mu.mean_correct.value, mu.mean_difference.value) == (1.75, 0.625, 1.125)
    assert (e.mean_incorrect.value, e.energy_gap.value, e.mean_difference.n) == (2.25, 1.625, 2)
    assert [(row.by_energy.value, row.by_mu.value, row.by_chance.value) for row in measured["pass_at_n"]] == [
        (1.0, 0.5, 0.5), (1.0, 1.0, 1.0),
    ]  # fmt: skip
    assert [(pick.mu, pick.sigma, pick.correct) for pick in measured["picks"]] == [(1.0, 1.0, True), (0.25, 0.25, True)]


@pytest.mark.parametrize(("most", "sizes"), [(2, [1, 2]), (20, [*range(1, 9), 16, 20]), (16, [*range(1, 9), 16])])
def test_pass_at_n_has_every_n_up_to_eight_then_powers_of_two_and_the_whole_pool(make_pool, most, sizes):
    pool = table_of(make_pool(*[(1, {"members": (0.0,)})] * most))
    measured = energy_measures(pool, pool, ["a"], lambda_=0.0, bootstrap=bootstrap(1), tolerance=0.0)

    assert [row.n for row in measured["pass_at_n"]] == sizes
