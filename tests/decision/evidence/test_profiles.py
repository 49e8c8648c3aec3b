from dataclasses import replace

import pytest
from decision_pools import pools, scored
from hypothesis import given
from hypothesis import strategies as st

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import PROFILES, ranked, winners
from raydebm.decision.evidence.terms import Author, Reference
from raydebm.decision.table import PoolTable

SKILLED = Reference(
    authors={"g1": Author(skill=2.0, center=0.0, scale=1.0), "g2": Author(skill=-1.0, center=0.0, scale=1.0)},
    default=Author(skill=0.0, center=0.0, scale=1.0),
    lambda_=1.0,
)
POSTERIOR = Posterior(weights={"authors": 1.0, "skill": -0.1}, context_weights={}, reference=SKILLED)
POOL = [
    scored("a1", "A", (3.0,), author="g2"),
    scored("a2", "A", (3.0,), author="g2"),
    scored("a3", "A", (3.0,), author="g2"),
    scored("b1", "B", (0.0,), author="g2"),
    scored("b2", "B", (4.0,), author="g2"),
    scored("c1", "C", (2.5,), author="g1"),
    scored("c2", "C", (2.5,), author="g1"),
    scored("d1", "D", (0.1,), author="g2"),
    scored("d2", "D", (0.1,), author="g2"),
    scored("e", "E", (0.05,), author="g3"),
]
"""Every profile has its own favourite: A has the votes, C the best author, B the lowest energy, D the largest sum of
exp(-E) (1.81 against 1.02), E an author of its own, who is less skilled
than C's."""
FAVOURITES = {"vote": "A", "best_author": "C", "energy": "B", "energy_vote": "D", "posterior": "E"}


def selected(profile, pool, posterior=POSTERIOR):
    return ranked(profile, pool, posterior)[0]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_answer_that_a_profile_selects_comes_before_the_others_by_probability(profile):
    first, *others = ranked(profile, POOL, POSTERIOR)

    assert first.cluster.key == FAVOURITES[profile]
    values = [belief.probability for belief in others]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_proven_answer_wins(profile):
    pool = [*POOL, scored("z", "Z", (99.0,), author="g2", proof=True)]

    assert selected(profile, pool).cluster.key == "Z"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_refuted_answer_is_never_selected(profile):
    key = FAVOURITES[profile]
    pool = [
        replace(candidate, report=replace(candidate.report, proof=False))
        if candidate.report.vote_key == key
        else candidate
        for candidate in POOL
    ]

    beliefs = ranked(profile, pool, POSTERIOR)

    assert beliefs[0].cluster.key != key
    assert (beliefs[-1].cluster.key, beliefs[-1].probability) == (key, 0.0)


def test_the_best_author_gives_out_its_own_answer():
    """Of equal answers that of g1 is given out, though g2's has the lower energy."""
    pool = [scored("a", "A", (0.0,), author="g2"), scored("b", "A", (1.0,), author="g1"), scored("c", "C", (0.5,))]

    assert selected("best_author", pool).best is pool[1]


@given(profile=st.sampled_from(PROFILES), several=st.lists(pools(proofs=(None, None, True, False)), max_size=4))
def test_many_pools_at_once_are_decided_like_each_alone(profile, several):
    table = PoolTable.of(several)
    keys = [cluster.key for clusters in table.clusters for cluster in clusters]

    rows = winners(profile, table, POSTERIOR.estimates(table), POSTERIOR)

    alone = [ranked(profile, pool, POSTERIOR) for pool in several]
    usable = [beliefs[0].cluster.key if beliefs and beliefs[0].probability > 0 else None for beliefs in alone]
    assert [None if row < 0 else keys[row] for row in rows] == usable


def test_lambda_of_the_reference_weighs_constraints():
    pool = [scored("a", "A", (1.0,), penalty=1.0), scored("b", "B", (1.5,))]
    lenient = replace(POSTERIOR, reference=replace(SKILLED, lambda_=0.1))

    assert selected("energy", pool).cluster.key == "B"
    assert selected("energy", pool, lenient).cluster.key == "A"
