import math

import numpy as np
import pytest
from decision_pools import labelled, scored, table_of
from hypothesis import given
from hypothesis import strategies as st

from raydebm.decision.evidence.fitting import CrossFit
from raydebm.decision.evidence.posterior import LOWEST, Posterior
from raydebm.decision.evidence.recalibration import recalibrated
from raydebm.decision.table import PoolTable

VOTES = Posterior(weights={"votes": 1.0}, context_weights={})
INDEPENDENT = Posterior(weights={"votes": 1.0}, context_weights={}, competition="independent")

ONE = np.array([1])


def fit(pools, probability, none, *, posterior=VOTES, selected=None, used=None):
    """Offset and slope from given predictions; the first cluster of each pool is selected."""
    table = table_of(pools)
    owner = table.pool_of_cluster
    crossfit = CrossFit(
        posteriors=(posterior,),
        fold=np.zeros(len(pools), dtype=np.intp),
        probability=np.array(probability, dtype=float),
        none=np.array(none, dtype=float),
    )
    first = np.searchsorted(owner, np.arange(len(pools))) if selected is None else np.array(selected)
    return recalibrated(posterior, table, crossfit, first, used=used)


def one_answer(count, wrong=0):
    return [
        labelled(f"p{index}", [scored(f"c{index}", "A")], set() if index < wrong else {"A"}) for index in range(count)
    ]


@pytest.mark.parametrize("posterior", [VOTES, INDEPENDENT], ids=["exclusive", "independent"])
def test_recalibration_shifts_the_winners_log_odds(posterior):
    """One answer at p = 1/2 beside none, right in 10 of 10 pools: 10 (sigmoid(offset) - 1) + offset / 0.25 = 0."""
    fitted = fit(one_answer(10), [0.5] * 10, [0.5] * 10, posterior=posterior)

    assert 10 * (1 / (1 + math.exp(-fitted.offset)) - 1) + fitted.offset / 0.25 == pytest.approx(0, abs=1e-3)
    assert fitted.slope == pytest.approx(1.0)


def test_of_two_answers_the_other_one_takes_what_the_winner_loses():
    """All winners at 0.9 are wrong, with 0.09 on the other answer and 0.01 on none."""
    pools = [labelled(f"p{i}", [scored(f"a{i}", "A"), scored(f"b{i}", "B")], {"B"}) for i in range(50)]

    fitted = fit(pools, [0.9, 0.09] * 50, [0.01] * 50)

    (winner, other), none = fitted.recalibrate(np.array([0.9, 0.09]), np.array([0.01]), np.array([0, 0]), ONE)
    assert winner < 0.8
    assert other > 0.09
    assert winner + other + none[0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("pools", "probability", "none", "options"),
    [
        (one_answer(2, wrong=1), [1.0, 0.0], [0.0, 1.0], {}),
        ([labelled("p", [scored("c", "A")], worth=[math.nan])], [0.4], [0.6], {}),
        (one_answer(2), [0.4, 0.4], [0.6, 0.6], {"selected": [-1, -1]}),
        (one_answer(2), [0.4, 0.4], [0.6, 0.6], {"used": np.array([False, False])}),
    ],
    ids=["proven and refuted", "unlabelled", "nothing selected", "none in use"],
)
def test_nothing_to_learn_from_recalibrates_nothing(pools, probability, none, options):
    assert fit(pools, probability, none, **options) == VOTES


def test_recalibrated_probabilities_by_hand():
    """Slope 2, offset log 3: 3 * 0.25, 3 * 0.04 and 0.09, over their sum 0.96."""
    posterior = Posterior(weights={}, context_weights={}, slope=2.0, offset=math.log(3))

    probability, none = posterior.recalibrate(np.array([0.5, 0.2]), np.array([0.3]), np.array([0, 0]), ONE)

    assert [*probability, *none] == pytest.approx([0.75 / 0.96, 0.12 / 0.96, 0.09 / 0.96], abs=1e-5)


shares = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=12)


@given(st.lists(shares, min_size=1, max_size=4), st.floats(-8, 8), st.floats(0.02, 8), st.booleans())
def test_probabilities_of_a_pool_add_up_to_one_in_their_order(pools, offset, slope, refuted):
    """Clusters and "none", whatever the recalibration; a refuted answer keeps 0."""
    normal = [np.array(pool) / sum(pool) for pool in pools]
    probability = np.concatenate([np.append(pool[1:], [0.0] * refuted) for pool in normal])
    none = np.array([pool[0] for pool in normal])
    owner = np.repeat(np.arange(len(pools)), [len(pool) - 1 + refuted for pool in normal])

    probabilities, left = Posterior(weights={}, context_weights={}, offset=offset, slope=slope).recalibrate(
        probability, none, owner, np.full(len(pools), 5)
    )

    assert np.bincount(owner, probabilities, len(pools)) + left == pytest.approx(np.ones(len(pools)))
    assert ((probabilities == 0) == (probability == 0)).all()
    assert (left >= LOWEST * 0.99).all()
    for pool in range(len(pools)):
        inside = np.argsort(probability[owner == pool], kind="stable")
        assert (np.diff(probabilities[owner == pool][inside]) >= -1e-12).all()


def test_a_proof_stays_a_proof():
    posterior = Posterior(weights={"votes": 1.0}, context_weights={}, offset=-3.0, slope=0.5)
    pool = [scored("a", "A", proof=True), scored("b", "B"), scored("c", "C", proof=False)]

    estimates = posterior.estimates(PoolTable.of([pool]))

    assert (estimates.probability.tolist(), estimates.none.tolist()) == ([1.0, 0.0, 0.0], [0.0])
