import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import labelled, scored, synthetic_problems, table_of

from raydebm.decision.evidence.built_in_terms import CONTEXT, KIND, TERMS
from raydebm.decision.evidence.fitting import (
    cross_fit,
    fit_posterior,
    folds_of,
    given_worth,
    reference_of,
    skills_of,
)
from raydebm.decision.evidence.posterior import PRIOR, Posterior
from raydebm.decision.evidence.terms import PLAIN
from raydebm.errors import PoolError

VOTES = Posterior(weights={"votes": 1.0}, context_weights={})

TWO = [
    labelled("p1", [scored("a", "A", (1.0,), author="g1"), scored("b", "B", (2.0,), author="g2")], {"A"}),
    labelled("p2", [scored("c", "C", (3.0,), author="g1"), scored("d", "D", (6.0,), author="g2")]),
]
"""g1 is right once in two, g2 never: the pooled share is (1 + 0.5) / (4 + 1) = 0.3."""
ALL = np.array([True, True])


def logit(share):
    return math.log(share / (1 - share))


def test_skills_are_shrunk_by_ten_pseudo_candidates():
    reference = reference_of(table_of(TWO), ALL, lambda_=1.0)

    assert reference.authors["g1"].skill == pytest.approx(logit((1 + 10 * 0.3) / (2 + 10)))
    assert reference.authors["g2"].skill == pytest.approx(logit((0 + 10 * 0.3) / (2 + 10)))
    assert reference.default.skill == pytest.approx(logit(0.3))


def test_author_energies_are_shrunk_by_ten_pseudo_candidates():
    """Energies 1, 2, 3, 6 have mean 3 and standard deviation sqrt(3.5); those of g1 have 2 and 1."""
    reference = reference_of(table_of(TWO), ALL, lambda_=1.0)

    assert reference.authors["g1"].center == pytest.approx((2 * 2 + 10 * 3) / 12)
    assert reference.authors["g1"].scale == pytest.approx((2 * 1 + 10 * math.sqrt(3.5)) / 12)
    assert (reference.default.center, reference.default.scale) == pytest.approx((3, math.sqrt(3.5)))


def test_the_candidate_that_is_given_out_says_what_an_answer_is_worth():
    """Of two programs that print the same and are equally skilled authors', the one of lower energy is given out; only
    the other one is right."""
    pool = [scored("a", "A", (1.0,)), scored("b", "A", (2.0,)), scored("c", "B", (3.0,))]
    table = table_of([labelled("p", pool, worth=[0.0, 1.0, math.nan])])

    assert table.cluster_worth.tolist()[0] == 0.5
    given = given_worth(table, PLAIN)
    assert given.tolist()[0] == 0.0
    assert math.isnan(given[1])


def test_a_problems_own_labels_are_left_out_of_the_skills_it_is_measured_with():
    skills = skills_of(table_of(TWO), ALL)

    # g1 without p1: 0 of 1 right; g1 without p2: 1 of 1.
    assert skills == pytest.approx([logit(3 / 11), logit(3 / 11), logit(4 / 11), logit(3 / 11)])


def test_answers_that_were_not_read_count_in_their_authors_skill():
    pools = [labelled("p", [scored("a", "A", author="g1"), scored("u", None, author="g1")], {"A"})]

    reference = reference_of(table_of(pools), np.array([True]), lambda_=1.0)

    assert reference.default.skill == pytest.approx(logit(1.5 / 3))


@pytest.mark.parametrize("competition", ["exclusive", "independent"])
def test_two_right_answers_share_one_probability_only_where_they_compete(competition):
    """Both programs are right in 40 of 40 problems."""
    pool = [scored("a", "A"), scored("b", "B")]
    pools = [labelled(f"p{index}", pool, {"A", "B"}) for index in range(40)]

    posterior = fit_posterior(table_of(pools), lambda_=1.0, competition=competition)

    probabilities = [belief.probability for belief in posterior.beliefs(pool)]
    assert (sum(probabilities) > 1.5) is (competition == "independent")


# ---- the fit --------------------------------------------------------------------------------------------------------


def test_the_weights_maximise_likelihood_times_prior():
    """One answer, right on 3 of 4 problems: its score is 0 and that of none is w. The gradient of the posterior in w is
    zero: 4 sigmoid(w) - 1 + (w - prior) / 0.25."""
    pools = [labelled(f"p{index}", [scored("a", "A")], {"A"} if index else set()) for index in range(4)]

    weight = fit_posterior(table_of(pools), lambda_=1.0, terms=["votes"], context=["none"]).context_weights["none"]

    assert 4 / (1 + math.exp(-weight)) - 1 + (weight - PRIOR["none"]) / 0.25 == pytest.approx(0, abs=1e-3)


def test_evidence_that_tells_right_from_wrong_gets_weight():
    posterior = fit_posterior(table_of(synthetic_problems(150, seed=1)), lambda_=1.0)

    assert posterior.weights["energy"] > 0.3
    assert posterior.num_problems == 150


def test_violation_scores_make_answers_that_do_not_compete():
    pools = [
        labelled(f"p{index}", [scored("a", "A", (0.0,)), scored("b", "B", (1.0,))], worth=[0.9, 0.4])
        for index in range(20)
    ]

    posterior = fit_posterior(table_of(pools, outcome="violation"), lambda_=1.0, terms=["energy"], context=["none"])
    beliefs = posterior.beliefs(pools[0].candidates)

    assert (posterior.competition, posterior.outcome) == ("independent", "violation")
    assert beliefs[0].cluster.key == "A"
    assert beliefs[0].probability > 0.6 > beliefs[1].probability


def test_thirty_problems_with_scores_are_enough_to_learn_that_the_votes_mislead():
    """Three plans that are equal break a rule and violate 0.15; one plan breaks none and violates 0.05."""
    plans = [
        scored("a", "A", penalty=1.0), scored("b", "A", penalty=1.0), scored("c", "A", penalty=1.0), scored("d", "D"),
    ]  # fmt: skip
    pools = [labelled(f"p{index}", plans, worth=[0.85, 0.85, 0.85, 0.95]) for index in range(30)]

    table = table_of(pools, outcome="violation")
    posterior = fit_posterior(table, lambda_=1.0, terms=["votes", "penalty"], context=["none"])

    assert posterior.beliefs(plans)[0].cluster.key == "D"


def five(candidates, right=()):
    return [labelled(f"p{index}", candidates, right) for index in range(5)]


def pair(first, second):
    return [scored("a", "A", first), scored("b", "B", second)]


ODD = {
    "all-right": five(pair((0.0,), (1.0,)), {"A", "B"}),
    "all-wrong": five(pair((0.0,), (1.0,))),
    "one-author-one-cluster": five([scored("a", "A", (1.0,))], {"A"}),
    "one-candidate-without-energy": [labelled("p", [scored("a", "A")], {"A"})],
    "equal-energies": five(pair((1.0,), (1.0,)), {"A"}),
    "huge-energies": five(pair((3e38, -3e38), (-3e38, 3e38)), {"A"}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_problems_give_finite_weights_without_warnings(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = fit_posterior(table_of(ODD[name]), lambda_=1.0)
        beliefs = posterior.beliefs(ODD[name][0].candidates)

    assert np.isfinite([*posterior.weights.values(), *posterior.context_weights.values()]).all()
    assert all(0 < belief.probability < 1 for belief in beliefs)


@pytest.mark.parametrize(
    "pool",
    [
        [scored("u", None), scored("f", None, text=None)],
        [scored("a", "A", proof=True), scored("b", "B", proof=False)],
        [scored("b", "B", proof=False)],
    ],
    ids=["unparsed", "proven", "refuted"],
)
def test_the_prior_stays_where_no_answer_is_open(pool):
    posterior = fit_posterior(table_of([labelled(f"p{index}", pool, {"A"}) for index in range(4)]), lambda_=1.0)

    assert posterior.weights == {name: PRIOR.get(name, 0.0) for name in TERMS}
    assert posterior.context_weights == {name: PRIOR.get(name, 0.0) for name in CONTEXT if name != KIND}


@pytest.mark.parametrize("pools", [[], [labelled("p", [scored("a", "A")], worth=[math.nan])]])
def test_without_labels_there_is_nothing_to_fit(pools):
    with pytest.raises(PoolError, match=f"none of {len(pools)} problems is labelled.*label some"):
        fit_posterior(table_of(pools), lambda_=1.0)


# ---- cross-fitting and recalibration --------------------------------------------------------------------------------


def test_folds_differ_by_at_most_one_problem_and_keep_copies_together():
    names = [f"p{index}" for index in range(23)]

    folds = folds_of([*names, *names], 5)

    assert sorted(np.bincount(folds[:23])) == [4, 4, 5, 5, 5]
    assert (folds[:23] == folds[23:]).all()
    assert (folds_of(names[::-1], 5)[::-1] == folds[:23]).all()


def test_problems_that_are_the_same_are_in_one_fold():
    pools = synthetic_problems(6, seed=2)
    twins = [*pools, *(replace(pool, problem_id=f"twin of {pool.problem_id}") for pool in pools)]
    keyed = [replace(pool, prompt=f"text {index % 6}") for index, pool in enumerate(twins)]

    crossfit = cross_fit(table_of(keyed), lambda used: VOTES, num_folds=3)

    assert (crossfit.fold[:6] == crossfit.fold[6:]).all()
    assert sorted(np.bincount(crossfit.fold[:6])) == [2, 2, 2]


def test_every_problem_is_predicted_by_a_posterior_fitted_on_the_others():
    table = table_of(synthetic_problems(7, seed=2))
    seen = []

    crossfit = cross_fit(table, lambda used: seen.append(used) or VOTES, num_folds=3)

    assert len(seen) == 3
    assert all((used == (crossfit.fold != fold)).all() for fold, used in enumerate(seen))
    assert crossfit.probability == pytest.approx(VOTES.estimates(table).probability)


def test_a_problems_label_does_not_reach_its_own_prediction():
    problems = synthetic_problems(12, seed=6)
    flipped = [replace(problems[0], worth=1 - problems[0].worth), *problems[1:]]

    def predicted(pools):
        table = table_of(pools)
        crossfit = cross_fit(table, lambda used: fit_posterior(table, lambda_=1.0, used=used), num_folds=4)
        return crossfit.probability[table.pool_of_cluster == 0]

    assert predicted(problems) == pytest.approx(predicted(flipped))


def test_a_baselines_score_that_tells_right_from_wrong_gets_weight():
    """Right answers score 1, wrong ones -1; the energies say nothing."""
    pools = [
        labelled(
            f"p{index}",
            [
                replace(scored(f"{index}r", f"R{index}", (0.0,)), scores={"reader": 1.0}),
                replace(scored(f"{index}w", f"W{index}", (0.0,)), scores={"reader": -1.0}),
            ],
            {f"R{index}"},
        )
        for index in range(20)
    ]

    posterior = fit_posterior(table_of(pools), lambda_=1.0)

    assert posterior.weights["score:reader"] > 0.5
    assert posterior.beliefs(pools[0].candidates)[0].cluster.key == "R0"


def test_a_posterior_with_scores_decides_without_them():
    """A baseline that is not there in the service: its term is absent, not 0 of something."""
    pools = synthetic_problems(20, seed=1)
    scored_pools = [
        replace(
            pool,
            candidates=[
                replace(candidate, scores={"reader": float(place)}) for place, candidate in enumerate(pool.candidates)
            ],
        )
        for pool in pools
    ]
    posterior = fit_posterior(table_of(scored_pools), lambda_=1.0)
    without = replace(
        posterior,
        weights={name: weight for name, weight in posterior.weights.items() if "reader" not in name},
        context_weights={name: w for name, w in posterior.context_weights.items() if "reader" not in name},
    )

    probabilities = [
        [belief.probability for belief in fit.beliefs(pools[0].candidates)] for fit in (posterior, without)
    ]
    assert probabilities[0] == pytest.approx(probabilities[1])
