import math
import random

import numpy as np
import pytest

from raydebm.decision.guarantee.guarantee import certify, certify_smallest
from raydebm.errors import ConfigError


def binomial_cdf(count, total, chance):
    return math.fsum(math.comb(total, k) * chance**k * (1 - chance) ** (total - k) for k in range(count + 1))


def certified(confidence_of, losses, **options):
    """Problems whose samples do not depend on the threshold."""
    return certify(lambda tau: (confidence_of, losses), confidence_of, **{"confidence": 0.9, **options})


def right_answers(count):
    """So many problems of different confidence, all of them answered right."""
    return np.linspace(0.5, 0.99, count), np.zeros(count)


def test_forty_right_answers_certify_a_tenth_and_the_walk_goes_on_to_all():
    """Each start has level 0.1 / 4, and 0.9^35 = 0.02503 just fails: starts at 10 and 25 of 100 problems fail, those
    at 40 and 60 pass and walk on."""
    guarantee = certified(*right_answers(100), max_error=0.1)

    assert (guarantee.certified, guarantee.tau, guarantee.answered, guarantee.wrong, guarantee.coverage) == (
        True,
        0.5,
        100,
        0,
        1.0,
    )
    assert [row.answered for row in guarantee.table if not row.certified] == [10, 25]
    assert guarantee.upper_bound == pytest.approx(1 - 0.025 ** (1 / 100))
    assert guarantee.more_problems is None


def test_the_walk_stops_at_the_first_threshold_that_fails():
    """200 problems, the least confident 50 of them wrong, so 150 can be answered at most with few errors."""
    confidence = np.linspace(0.99, 0.01, 200)
    losses = (np.arange(200) >= 150).astype(float)

    guarantee = certified(confidence, losses, max_error=0.05)

    last = min(row.answered for row in guarantee.table if not row.certified and row.answered > 100)
    assert guarantee.certified
    assert guarantee.answered == last - 2  # a step is a hundredth of the problems
    assert max(row.answered for row in guarantee.table) == last
    assert (
        binomial_cdf(last - 150, last, 0.05) > 0.025 >= binomial_cdf(guarantee.answered - 150, guarantee.answered, 0.05)
    )


def test_too_few_problems_certify_nothing_and_it_says_how_many_more_would_do():
    """36 right answers certify a tenth at level 0.025."""
    guarantee = certified(*right_answers(30), max_error=0.1)

    assert (guarantee.certified, guarantee.tau, guarantee.answered, guarantee.upper_bound) == (False, None, 0, None)
    assert certified(*right_answers(30 + guarantee.more_problems), max_error=0.1).certified


def test_no_number_of_problems_helps_where_every_threshold_errs_too_often():
    guarantee = certified(np.linspace(0, 1, 50), np.ones(50), max_error=0.1)

    assert (guarantee.certified, guarantee.more_problems, guarantee.base_error, guarantee.max_coverage) == (
        False,
        None,
        1.0,
        0.0,
    )


def test_the_smallest_error_is_certified_and_a_thousandth_less_is_not():
    rng = random.Random(5)
    confidence = np.array([rng.random() for _ in range(300)])
    losses = np.array([float(rng.random() > value) for value in confidence])

    smallest = certified(confidence, losses, max_error=0.01).smallest_error

    assert certified(confidence, losses, max_error=smallest).certified
    assert not certified(confidence, losses, max_error=smallest - 0.001).certified


def test_nothing_can_be_guaranteed_without_any_answer():
    guarantee = certified(np.full(20, -np.inf), np.ones(20), max_error=0.1)

    assert (guarantee.certified, guarantee.table, guarantee.smallest_error, guarantee.more_problems) == (
        False,
        (),
        None,
        None,
    )


def test_thresholds_do_not_depend_on_labels():
    confidence, losses = right_answers(200)

    tested = certified(confidence, losses, max_error=0.2).table
    other = certified(confidence, np.arange(200) % 20 == 0, max_error=0.2).table

    assert {row.tau for row in other} <= {row.tau for row in tested}


def splits(count, size, seed):
    """Problems with confidence c uniform in [0, 1] that are wrong with probability 1 - c: the true error of answering
    at or above tau is (1 - tau) / 2."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        confidence = rng.random(size)
        yield confidence, (rng.random(size) > confidence).astype(float)


def naive_threshold(confidence, losses, max_error):
    """The lowest confidence at which the error so far is what was guaranteed."""
    order = np.argsort(-confidence)
    error = np.cumsum(losses[order]) / np.arange(1, len(order) + 1)
    passing = np.flatnonzero(error <= max_error)
    return confidence[order][passing[-1]] if len(passing) else 1.0


def test_of_200_resplits_at_most_a_tenth_breaks_the_guarantee_and_the_naive_threshold_half_of_them():
    thresholds = [
        (certified(*split, max_error=0.2).tau, naive_threshold(*split, 0.2)) for split in splits(200, 600, seed=1)
    ]

    broken = sum(tau is not None and (1 - tau) / 2 > 0.2 for tau, _ in thresholds)
    naively_broken = sum((1 - tau) / 2 > 0.2 for _, tau in thresholds)
    assert broken <= 0.1 * 200
    assert 0.35 * 200 <= naively_broken <= 0.65 * 200
    assert sum(tau is not None for tau, _ in thresholds) >= 0.9 * 200


def test_of_200_resplits_at_most_a_tenth_breaks_a_guaranteed_mean_violation():
    """Losses of half their size: the true mean loss at or above tau is (1 - tau) / 4."""
    taus = [
        certified(confidence, losses / 2, max_error=0.1, binary=False).tau
        for confidence, losses in splits(200, 200, seed=2)
    ]

    assert sum(tau is not None and (1 - tau) / 4 > 0.1 for tau in taus) <= 0.1 * 200


def test_violation_scores_are_tested_from_coverages_at_which_a_bet_can_win():
    """48 of 80 losses of 0.03 reject a mean of 0.1 at no level of 0.025, and 60 of them do."""
    guarantee = certified(np.linspace(1, 0.01, 80), np.full(80, 0.03), max_error=0.1, binary=False)

    assert [(row.coverage, row.certified) for row in guarantee.table][:3] == [(0.25, False), (0.5, False), (0.75, True)]
    assert (guarantee.certified, guarantee.coverage) == (True, 1.0)


def test_problems_without_a_label_are_refused():
    with pytest.raises(ConfigError, match="a guarantee needs labelled problems, got none"):
        certified(np.array([0.5]), np.array([math.nan]), max_error=0.1)


# ---- the smallest error at a coverage --------------------------------------------------------------------------------


def smallest(confidence_of, losses, *, floor_at=lambda tau: -math.inf):
    return certify_smallest(lambda tau: (confidence_of, losses), min_coverage=0.5, confidence=0.9, floor_at=floor_at)


def test_the_smallest_error_spends_the_whole_level_on_one_threshold():
    """50 right answers of 100 problems: 0.1 ** (1 / 50) = 0.955, so 0.045 is rejected at 0.1 only from 0.046 on."""
    guarantee = smallest(*right_answers(100))

    assert (guarantee.max_error, guarantee.certified, guarantee.answered, guarantee.coverage) == (0.046, True, 50, 0.5)
    assert 0.954**50 <= 0.1 < 0.955**50
    assert [row.tau for row in guarantee.table] == [guarantee.tau]


def test_a_coverage_that_no_threshold_reaches_is_not_certified():
    guarantee = smallest(np.array([0.9, -math.inf, -math.inf, -math.inf]), np.zeros(4))

    assert (guarantee.certified, guarantee.tau, guarantee.coverage, guarantee.smallest_error) == (
        False,
        None,
        0.0,
        None,
    )


def test_a_threshold_below_the_floor_is_not_certified():
    confidence, losses = right_answers(100)

    assert smallest(confidence, losses, floor_at=lambda tau: tau).certified
    assert not smallest(confidence, losses, floor_at=lambda tau: 0.9).certified


# ---- a floor ---------------------------------------------------------------------------------------------------------


def test_no_threshold_below_the_floor_is_tested():
    confidence, losses = right_answers(200)

    floor = float(confidence[99])  # the walks end at a floor that they meet

    guarantee = certified(confidence, losses, max_error=0.1, floor_at=lambda tau: floor)

    assert guarantee.certified
    assert guarantee.tau == min(row.tau for row in guarantee.table) == floor
    assert certified(confidence, losses, max_error=0.1).tau < 0.8
