import json
import math
import random
import warnings
from dataclasses import replace

import pytest
from decision_pools import pools, scored
from hypothesis import assume, given
from hypothesis import strategies as st

from raydebm.decision.evidence.built_in_terms import CONTEXT, TERMS
from raydebm.decision.evidence.posterior import LOWEST, PRIOR, Posterior
from raydebm.decision.evidence.terms import Author, Reference
from raydebm.decision.table import PoolTable
from raydebm.errors import ConfigError

FULL = Posterior(
    weights={name: 0.3 + 0.1 * place for place, name in enumerate(TERMS)},
    context_weights={name: 0.2 for name in CONTEXT},
    reference=Reference(
        authors={"g1": Author(skill=1.0, center=1.0, scale=2.0), "g2": Author(skill=-1.0, center=-1.0, scale=1.0)},
        default=Author(skill=0.0, center=0.0, scale=1.0),
        lambda_=0.7,
    ),
    slope=0.8,
    offset=0.1,
)
"""Every term carries weight."""
VOTES = Posterior(weights={"votes": 1.0}, context_weights={})


def by_answer(posterior, pool):
    return {belief.cluster.key: belief.probability for belief in posterior.beliefs(pool)}


def none_of(posterior, pool):
    return posterior.estimates(PoolTable.of([pool])).none[0]


def test_softmax_over_answers_and_none():
    """Scores log 2/3 and log 1/3, and 0 for none: masses 2/3, 1/3 and 1."""
    pool = [scored("a", "A"), scored("b", "A"), scored("c", "B")]

    assert by_answer(VOTES, pool) == pytest.approx({"A": 1 / 3, "B": 1 / 6})
    assert none_of(VOTES, pool) == pytest.approx(1 / 2)


def test_of_equally_probable_answers_the_one_of_the_lowest_energy_is_best():
    pool = [scored("a", "A", (1.0,)), scored("b", "A", (1.0,)), scored("c", "B", (0.0,)), scored("d", "B", (9.0,))]

    assert [belief.cluster.key for belief in VOTES.beliefs(pool)] == ["B", "A"]


def test_the_weight_of_none_takes_from_every_answer():
    posterior = replace(VOTES, context_weights={"none": math.log(3)})

    assert by_answer(posterior, [scored("a", "A"), scored("b", "B")]) == pytest.approx({"A": 1 / 8, "B": 1 / 8})


def test_answers_that_do_not_compete():
    posterior = replace(VOTES, competition="independent", context_weights={"none": -1.0})

    pool = [scored("a", "A"), scored("b", "B")]

    expected = 1 / (1 + math.exp(-(math.log(0.5) + 1)))
    assert by_answer(posterior, pool) == pytest.approx({"A": expected, "B": expected})
    assert none_of(posterior, pool) == pytest.approx(1 - expected)


def test_recalibration_of_the_log_odds():
    posterior = replace(VOTES, offset=0.3, slope=2.0)

    (probability,) = by_answer(posterior, [scored("a", "A")]).values()

    assert probability == pytest.approx(1 / (1 + math.exp(-0.3)))  # p is 1/2, so its logit is 0


def test_a_term_measured_for_some_answers_counts_as_their_mean_for_the_others():
    posterior = Posterior(weights={"energy": 1.0}, context_weights={})
    pool = [scored("a", "A", (1.0,)), scored("b", "B", (3.0,)), scored("c", "C")]

    probabilities = by_answer(posterior, pool)

    mass = {"A": math.exp(1), "B": math.exp(-1), "C": math.exp(0)}
    assert probabilities == pytest.approx({key: value / (sum(mass.values()) + 1) for key, value in mass.items()})


def test_an_exact_proof_is_certain_and_excludes_the_others():
    pool = [scored("a", "A", proof=True), *(scored(f"b{index}", "B") for index in range(5))]

    assert by_answer(VOTES, pool) == {"A": 1.0, "B": 0.0}
    assert [belief.contributions for belief in VOTES.beliefs(pool)] == [{}, {}]
    assert none_of(VOTES, pool) == 0


def test_a_refuted_answer_takes_no_share():
    """Scores log 1/4 for B and 0 for none; A's three votes go to nobody."""
    pool = [*(scored(f"a{index}", "A", proof=False) for index in range(3)), scored("b", "B")]

    assert by_answer(VOTES, pool) == pytest.approx({"A": 0.0, "B": 1 / 5})
    assert none_of(VOTES, pool) == pytest.approx(4 / 5)


def test_contributions_are_relative_to_the_pools_average():
    beliefs = replace(VOTES, slope=2.0).beliefs([scored("a", "A"), scored("b", "A"), scored("c", "B")])

    average = (math.log(2 / 3) + math.log(1 / 3)) / 2
    assert beliefs[0].contributions["votes"] == pytest.approx(2 * (math.log(2 / 3) - average))


@given(pool=pools(proofs=(None, None, True, False)))
def test_no_pool_causes_a_warning(pool):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FULL.beliefs(pool)


@given(pool=pools(proofs=(None, None, True, False)), seed=st.integers(0, 99))
def test_the_order_of_candidates_does_not_matter(pool, seed):
    other = random.Random(seed).sample(pool, len(pool))

    first, second = FULL.beliefs(pool), FULL.beliefs(other)

    assert by_answer(FULL, pool) == pytest.approx(by_answer(FULL, other))
    assert {b.cluster.key: b.best for b in first} == {b.cluster.key: b.best for b in second}
    assert none_of(FULL, pool) == pytest.approx(none_of(FULL, other))


@given(pool=pools(), competition=st.sampled_from(["exclusive", "independent"]))
def test_contributions_add_up_to_the_log_odds(pool, competition):
    for belief in replace(FULL, competition=competition).beliefs(pool):
        log_odds = math.log(belief.probability / (1 - belief.probability))
        assert math.fsum(belief.contributions.values()) == pytest.approx(log_odds, abs=1e-9)


@given(pool=pools(proofs=(None, False)))
def test_probabilities_of_answers_that_compete_and_of_none_add_up_to_one(pool):
    posterior = replace(FULL, slope=1.0, offset=0.0)

    total = math.fsum([none_of(posterior, pool), *by_answer(posterior, pool).values()])
    assert total == pytest.approx(1, abs=LOWEST / 10)


@given(pool=pools(members=2), data=st.data())
def test_a_duplicate_gains_at_most_a_vote_in_log_odds_against_every_other_answer(pool, data):
    """Under the prior (votes 1, authors and skill 1/2): log((n + copies) / n) for the vote, and of its author's one
    voice what the answer did not have and what the other answer had. A thousand copies therefore move one author."""
    candidates = [candidate for candidate in pool if candidate.report.vote_key is not None]
    assume(len({candidate.report.vote_key for candidate in candidates}) > 1)
    copied = data.draw(st.sampled_from(candidates))
    copies = data.draw(st.integers(1, 40))
    key, size = (
        copied.report.vote_key,
        sum(candidate.report.vote_key == copied.report.vote_key for candidate in candidates),
    )
    posterior = replace(
        FULL,
        weights={name: weight for name, weight in PRIOR.items() if name in TERMS},
        context_weights={"none": -1.0},
        slope=1.0,
        offset=0.0,
    )
    before, after = by_answer(posterior, pool), by_answer(posterior, pool + [copied] * copies)
    assume(all(1e-4 < value < 1 - 1e-4 for value in [*before.values(), *after.values()]))
    skill = posterior.reference.author(copied.candidate.generator).skill
    voice = max(0.5 + 0.5 * skill, 0.0)

    own = [each.report.vote_key for each in candidates if each.candidate.generator == copied.candidate.generator]

    for other in before:
        if other != key:
            gained = math.log(after[key] / after[other]) - math.log(before[key] / before[other])
            moved = 1 - own.count(key) / len(own) + own.count(other) / len(own)
            assert gained <= math.log((size + copies) / size) + voice * moved + 1e-6


# ---- JSON and bad input ---------------------------------------------------------------------------------------------


def test_a_posterior_survives_json():
    assert Posterior.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": {"vibes": 1.0}}, r"unknown terms of evidence: vibes; known: votes, .*Calibrate again"),
        ({"context_weights": {"mood": 1.0}}, "unknown terms of evidence: mood"),
        ({"weights": {"votes": math.nan}}, "votes of the posterior must be a finite number, got nan"),
        ({"weights": {"votes": "1"}}, "votes of the posterior must be a finite number, got '1'"),
        ({"weights": {"votes": None}}, "cannot be read"),
        ({"offset": math.inf}, "offset of the posterior must be a finite number"),
        ({"competition": "some"}, "competition of the posterior is 'some'; known: exclusive, independent"),
        ({"outcome": "some"}, "outcome of the posterior is 'some'; known: correct, violation"),
        ({"reference": {}}, "cannot be read"),
        ({"surprise": 1}, "cannot be read"),
    ],
)
def test_a_posterior_that_cannot_be_applied_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        Posterior.from_json({**FULL.to_json(), **change})
