"""What a pool with fewer candidates than the labelled ones is worth."""

import math
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import labelled, scored, table_of

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import fit_policy
from raydebm.decision.evidence.fitting import cross_fit, fit_posterior
from raydebm.decision.evidence.pool_sizes import PoolParts
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy

HALVED = Posterior(
    weights={"votes": 1.0},
    context_weights={},
    slope=2.0,
    offset=1.0,
    full_size=8,
    size_offset=0.5,
    size_slope=math.log(2),
)


def problems(count=120, size=8):
    """Half of the problems: all agree on the right answer. The others: each has an answer of its own, all wrong."""
    made = []
    for index in range(count):
        answers = ["A"] * size if index % 2 else [f"w{place}" for place in range(size)]
        pool = [scored(f"{index}-{place}", answer) for place, answer in enumerate(answers)]
        made.append(labelled(f"p{index}", pool, {"A"}))
    return made


def policy_of(pools):
    return fit_policy(table_of(pools), base=Policy(max_passes=1), config=DecisionConfig()).policy


@pytest.fixture(scope="module")
def posterior():
    return policy_of(problems()).posterior


@pytest.mark.parametrize(("written", "halvings"), [(8, 0), (20, 0), (4, 1), (2, 2), (1, 3), (0, 3)])
def test_halvings_by_hand(written, halvings):
    assert HALVED.halvings(np.array([written])).tolist() == [halvings]


def test_a_correction_by_hand():
    """Two of eight candidates, two halvings: offset 1 - 2 * 0.5 = 0 and slope 2 / 4 = 1/2."""
    (probability,), (none,) = HALVED.recalibrate(np.array([0.64]), np.array([0.36]), np.array([0]), np.array([2]))

    assert (probability, none) == pytest.approx((0.8 / 1.4, 0.6 / 1.4))


def test_whole_pools_are_as_they_were(posterior):
    plain = replace(posterior, full_size=0, size_offset=0.0, size_slope=0.0)
    (pool,) = (pool.candidates for pool in problems(1))

    assert posterior.beliefs(pool) == plain.beliefs(pool)


def test_a_single_candidate_is_believed_as_often_as_it_is_right(posterior):
    """Half of the problems' candidates are right, and alone each looks like the other half's."""
    (one,) = posterior.beliefs([scored("a", "A")])

    assert one.probability == pytest.approx(0.5, abs=0.1)
    assert posterior.beliefs([scored(str(place), "A") for place in range(8)])[0].probability > 0.9


def parts_of(pools):
    table = table_of(pools)
    crossfit = cross_fit(table, lambda used: fit_posterior(table, lambda_=1.0, used=used))
    return PoolParts.of(table, crossfit)


def test_at_most_a_tenth_of_the_pools_is_smaller_than_a_whole_one():
    """One of ten pools has two candidates, the others four."""
    parts = parts_of([*problems(9, size=4), replace(problems(1, size=2)[0], problem_id="small")])

    assert parts.full_size == 4
    assert sorted(parts.table.written) == [1] * 10 + [2] * 9


def test_pools_of_one_candidate_have_no_parts():
    assert parts_of(problems(4, size=1)) is None
