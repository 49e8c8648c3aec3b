"""Pairs within a problem, against counting every one."""

import math

from hand_made import make_pool, table_of
from hypothesis import given
from hypothesis import strategies as st

from raydebm.evaluation.results.energy_metrics import pair_accuracies

ENERGIES = st.sampled_from([0.0, 1.0, 2.5]) | st.none()


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from([1, 0, None]), ENERGIES), min_size=1, max_size=4), min_size=1, max_size=3
    )
)
def test_pair_accuracies_compare_every_pair(rows):
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
