import json
import math
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import labelled, scored, synthetic_problems, table_of

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import (
    fit_policy,
    fit_thresholds,
    reliability_table,
)
from raydebm.decision.calibration.walks import Walk, final_step
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import PROFILES
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool
from raydebm.decision.sampling.waves import cut_pass
from raydebm.errors import PoolError
from raydebm.records import Decision

VOTES = Posterior(weights={"votes": 1.0}, context_weights={})

ONE_PASS = Policy(max_passes=1)
PROBLEMS = synthetic_problems(60, seed=7)


def fit(pools=PROBLEMS, *, base=ONE_PASS, outcome="correct", walk=None, profile=None, **decision):
    config = DecisionConfig.model_validate(decision)
    table = table_of(pools, outcome=outcome)
    return fit_policy(table, task="t", base=base, config=config, walk=walk, profile=profile)


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.mark.parametrize(
    ("costs", "tau_answer"),
    [
        ({"wrong": 3.0, "refusal": 0.0}, 0.75),
        ({"wrong": 1.0, "refusal": 0.5}, 0.25),
        ({"wrong": 0.5, "refusal": 2.0}, 0.0),
    ],
)
def test_costs_say_from_which_probability_an_answer_is_worth_giving(costs, tau_answer):
    """p - (1 - p) wrong >= -refusal."""
    assert fit(PROBLEMS[:12], costs=costs).policy.tau_answer == pytest.approx(tau_answer)


def test_a_profile_is_worth_what_the_most_skilled_author_wrote():
    """Both programs of a problem print the same; that of the author who is right elsewhere, too, is right here, and the
    energies prefer the other one."""
    pair = [scored("a", "A", (0.0,), author="bad"), scored("b", "A", (1.0,), author="good")]
    pools = [labelled(f"q{index}", pair, worth=[0.0, 1.0]) for index in range(12)]
    assert fit(pools).choice.worth == dict.fromkeys(PROFILES, 1.0)


def test_a_problem_is_decided_by_the_skills_on_the_others():
    """Each of two authors is right on one of two problems, so that on the other one it is believed, and wrong."""
    pool = [scored("a", "A", author="ann"), scored("b", "B", author="bob")]
    pools = [labelled("p", pool, {"A"}), labelled("q", pool, {"B"})]
    assert fit(pools).choice.worth["best_author"] == 0.0


def test_what_was_not_sampled_is_expected_to_be_wrong():
    steps = Walk(
        confidence=np.array([[0.7, 1.0], [-np.inf, 0.9]]), worth=np.ones((2, 2)),
        is_unknown=np.array([[False, True], [False, False]]),
    )  # fmt: skip

    assert steps.expected().worth.tolist() == [[0.7, 0.0], [0.0, 0.9]]
    assert replace(steps, is_unknown=None).expected().worth.tolist() == [[0.7, 1.0], [0.0, 0.9]]


def test_profiles_that_read_energies_are_not_tried_without_any():
    pool = [scored("a", "A", author="good"), scored("b", "B", author="bad")]
    pools = [labelled(f"q{index}", pool, worth=[1.0, 0.0]) for index in range(12)]
    assert set(fit(pools).choice.worth) == {"vote", "best_author", "posterior"}


def test_the_policy_decides_by_the_fitted_posterior(fitted):
    policy = fitted.policy

    assert (policy.rule, policy.profile, policy.guarantee) == ("posterior", fitted.choice.profile, None)
    assert (policy.posterior.task, policy.posterior.num_problems, fitted.num_problems) == ("t", 60, 60)
    assert decide_pool(PROBLEMS[0].candidates, passes_left=0, policy=policy).confidence is not None


def test_everything_fitted_is_json(fitted):
    value = json.loads(json.dumps(fitted.decision_file(), allow_nan=False))

    assert len(value["confidence"]) == 60
    assert [row["max_error"] for row in value["promises"]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]
    assert "table" not in value["promises"][0]


def test_a_problem_without_a_readable_answer_is_refused_with_certainty():
    unread = labelled("unread", [scored("u", None)])

    policy_fit = fit([*PROBLEMS[:20], unread])

    assert policy_fit.confidence[-1] == -math.inf
    assert policy_fit.decision_file()["confidence"][-1] is None


def test_proven_problems_alone_leave_the_prior_and_are_answered():
    """Every answer is decided by an exact constraint, so there is nothing to fit."""
    pools = [
        labelled(f"p{index}", [scored("a", "A", proof=True), scored("b", "B", proof=False)], {"A"})
        for index in range(6)
    ]

    policy_fit = fit(pools)

    assert policy_fit.confidence.tolist() == [1.0] * 6
    assert policy_fit.facts()["answered_frac"] == 1.0


def test_violation_scores_are_fitted_and_guaranteed():
    pools = [replace(pool, worth=0.3 + 0.6 * pool.worth) for pool in PROBLEMS]

    policy_fit = fit(pools, outcome="violation", max_error=0.6)

    assert policy_fit.policy.posterior.outcome == "violation"
    assert policy_fit.guarantee.certified
    assert policy_fit.guarantee.upper_bound <= 0.6 + 1e-9


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ([], "at least 2 labelled problems, got 0 of 0"),
        (PROBLEMS[:1], "got 1 of 1"),
        ([replace(pool, worth=np.full(6, math.nan)) for pool in PROBLEMS[:3]], "got 0 of 3"),
        ([labelled("p", [scored("u", None)]), labelled("q", [])], "at least 2 labelled problems, got 1 of 2"),
        (
            [labelled(name, [scored("u", None)]) for name in "pq"],
            "no candidate of the 2 labelled problems has an answer",
        ),
    ],
    ids=["none", "one", "unlabelled", "empty", "unparsed"],
)
def test_what_cannot_be_learned_from_is_refused(pools, message):
    with pytest.raises(PoolError, match=message):
        fit(pools)


# ---- guarantees -----------------------------------------------------------------------------------------------------


def sure_problems(count, wrong=()):
    """One author answers every problem alike, and is wrong where it says so."""
    return [
        labelled(f"p{index}", [scored("a", "A"), scored("b", "A")], set() if index in wrong else {"A"})
        for index in range(count)
    ]


def test_a_certified_threshold_is_the_policys():
    policy_fit = fit(sure_problems(60), max_error=0.1)

    assert policy_fit.guarantee.certified
    assert policy_fit.policy.tau_answer == policy_fit.guarantee.tau
    assert policy_fit.policy.tau_accept >= policy_fit.policy.tau_answer
    assert policy_fit.policy.guarantee == {
        "max_error": 0.1,
        "confidence": 0.9,
        "certified": True,
        "problems": 60,
        "tau": policy_fit.guarantee.tau,
        "thresholds": [row.tau for row in policy_fit.guarantee.table if row.certified],
    }
    assert policy_fit.guarantee.answered == (policy_fit.confidence >= policy_fit.policy.tau_answer).sum() == 60
    assert policy_fit.guarantee.upper_bound == pytest.approx(1 - 0.025 ** (1 / 60))


def test_fewer_problems_than_a_guarantee_needs_certify_nothing_and_only_proofs_are_answered():
    policy_fit = fit(sure_problems(20), max_error=0.05)

    assert (policy_fit.guarantee.certified, policy_fit.policy.tau_answer, policy_fit.policy.tau_accept) == (
        False,
        1.0,
        1.0,
    )
    assert policy_fit.guarantee.more_problems > 0
    assert decide_pool([scored("a", "A")], passes_left=0, policy=policy_fit.policy).decision is Decision.ABSTAIN
    assert (
        decide_pool([scored("a", "A", proof=True)], passes_left=0, policy=policy_fit.policy).decision is Decision.ACCEPT
    )


def test_auto_guarantees_the_smallest_error_at_the_coverage_asked_for():
    policy_fit = fit(sure_problems(100, wrong={3, 30, 60}), max_error="auto", min_coverage=0.8)

    assert policy_fit.guarantee.certified
    assert policy_fit.guarantee.coverage >= 0.8
    assert policy_fit.policy.tau_answer == policy_fit.guarantee.tau
    assert policy_fit.policy.guarantee["max_error"] == policy_fit.guarantee.max_error
    # What is certified is the upper bound of the answered problems' error at the whole of 1 - confidence.
    assert policy_fit.guarantee.max_error - 0.001 < policy_fit.guarantee.upper_bound <= policy_fit.guarantee.max_error


# ---- several passes -------------------------------------------------------------------------------------------------


def two_steps(first, second):
    """The same (confidence, worth) for every problem, after the first and the second pass."""

    def walk(policies):
        count = len(policies)
        return Walk(
            confidence=np.tile([first[0], second[0]], (count, 1)), worth=np.tile([first[1], second[1]], (count, 1))
        )

    return walk


def test_problems_stop_at_the_first_pass_that_is_sure_enough():
    steps = Walk(confidence=np.array([[0.7, 0.9], [0.95, 0.2]]), worth=np.array([[0.0, 1.0], [1.0, 0.0]]))

    confidence, worth = final_step(steps, 0.8)

    assert (confidence.tolist(), worth.tolist()) == ([0.9, 0.95], [1.0, 1.0])


@pytest.mark.parametrize("price", [0.05, 1.5])
def test_a_further_pass_is_drawn_where_it_brings_more_than_it_costs(price):
    """The second pass turns a wrong answer (-1) into a right one (+1)."""
    policy_fit = fit(
        PROBLEMS[:12], base=Policy(max_passes=2), walk=two_steps((0.6, 0.0), (0.95, 1.0)), costs={"pass": price}
    )

    assert policy_fit.policy.tau_accept > 0.6
    assert (policy_fit.worth == 1).all()


def test_a_pass_that_costs_more_than_it_brings_is_not_drawn():
    policy_fit = fit(
        PROBLEMS[:12], base=Policy(max_passes=2), walk=two_steps((0.6, 0.0), (0.95, 1.0)), costs={"pass": 2.5}
    )

    assert policy_fit.policy.tau_accept <= 0.6
    assert (policy_fit.worth == 0).all()


@pytest.mark.parametrize(("price", "confidence"), [(0.9, 0.3), (1.1, 0.6)])
def test_a_wrong_answer_costs_one_more_than_none(price, confidence):
    """After the first pass all are answered, wrongly; the second leaves no answer that is sure enough."""
    policy_fit = fit(
        PROBLEMS[:12], base=Policy(max_passes=2), walk=two_steps((0.6, 0.0), (0.3, 0.0)), costs={"pass": price}
    )

    assert policy_fit.confidence.tolist() == [confidence] * 12


def test_every_problem_walks_under_a_posterior_that_did_not_see_it():
    taken = []

    def walk(policies):
        taken.extend(policies)
        return two_steps((0.6, 1.0), (0.7, 1.0))(policies)

    policy_fit = fit(PROBLEMS[:12], base=Policy(max_passes=2), walk=walk)

    assert len(taken) == 12
    assert all(policy.tau_accept == 1.0 for policy in taken)
    assert all(policy.posterior.num_problems < 12 for policy in taken)
    # The recalibration is fitted on the other folds, too; 12 problems make 10 of them.
    assert len({policy.posterior.offset for policy in taken}) == 10
    assert policy_fit.policy.posterior.offset not in {policy.posterior.offset for policy in taken}


def test_the_guarantee_is_tested_on_the_stopping_rule_that_the_policy_will_follow():
    """Half of the problems stop at the first pass with a wrong answer at 0.6, and would be right after the second: the
    guarantee is only kept by a higher tau_answer, which lifts tau_accept, so that they go on to the second pass."""
    count = 120

    def walk(policies):
        weak = np.arange(len(policies)) % 2 == 0
        return Walk(
            confidence=np.column_stack([np.where(weak, 0.6, 0.9), np.where(weak, 0.95, 0.9)]),
            worth=np.column_stack([np.where(weak, 0.0, 1.0), np.ones(len(policies))]),
        )

    policy_fit = fit(
        synthetic_problems(count, seed=9),
        base=Policy(max_passes=2, tau_accept=0.5),
        walk=walk,
        max_error=0.1,
        costs={"pass": 5.0},
    )

    assert policy_fit.guarantee.certified
    assert policy_fit.policy.tau_accept >= policy_fit.policy.tau_answer > 0.6
    assert policy_fit.guarantee.answered == (policy_fit.confidence >= policy_fit.policy.tau_answer).sum() == count
    assert policy_fit.guarantee.wrong == 0


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_reliability_bins_hold_equal_numbers_by_confidence():
    table = reliability_table(np.array([0.9, 0.1, 0.8, 0.2]), np.array([1.0, 0.0, 0.0, 0.0]), num_bins=2)

    assert table == [
        {"confidence": pytest.approx(0.15), "worth": 0.0, "problems": 2},
        {"confidence": pytest.approx(0.85), "worth": 0.5, "problems": 2},
    ]


# ---- waves -----------------------------------------------------------------------------------------------------------

WAVES = ONE_PASS.replaced(waves=(2,), tau_accept=0.6)


def test_thresholds_and_guarantee_rest_on_what_waves_would_have_sampled():
    """The final selections are those of the cut pools, under the very threshold that the policy has."""
    fitted = fit(base=WAVES.replaced(waves=(4, 2), tau_accept=0.5), max_error=0.45, confidence=0.6)
    policy = fitted.policy

    cut = [cut_pass(pool.candidates, policy)[0] for pool in PROBLEMS]
    assert sum(map(len, cut)) < sum(len(pool.candidates) for pool in PROBLEMS)
    assert fitted.num_problems == len(fitted.confidence) == 60
    assert policy.tau_answer <= policy.tau_accept
    whole = fit(max_error=0.45, confidence=0.6)
    assert not np.array_equal(fitted.confidence, whole.confidence)


def walk_of_two(seen):
    """Stopping later makes every selection surer."""

    def walk(policies):
        seen.append((policies[0].tau_accept, policies[0].tau_settled))
        return Walk(confidence=np.full((60, 1), 0.9 if policies[0].tau_settled >= 0.8 else 0.8), worth=np.ones((60, 1)))

    return walk


def test_a_threshold_above_tau_accept_is_tested_on_the_walk_that_it_implies():
    """With tau_accept 0.6 all are at 0.8; the threshold 0.8 needs tau_accept 0.8, with which all are at 0.9."""
    seen = []
    fitted = fit(base=WAVES, walk=walk_of_two(seen), max_error=0.2, confidence=0.9)

    assert (fitted.policy.tau_accept, fitted.policy.tau_answer) == (0.8, 0.8)
    assert fitted.confidence.tolist() == [0.9] * 60
    assert fitted.policy.tau_settled is None


def test_the_walks_in_waves_are_at_the_policys_tau_accept_the_median_above_it_and_1():
    seen = []
    fit(base=WAVES, walk=walk_of_two(seen), max_error=0.2, confidence=0.9)

    assert seen == [(1.0, 0.6), (1.0, 0.8), (1.0, 1.0)]


@pytest.mark.parametrize(("floor", "certified"), [(-np.inf, True), (0.95, False)])
def test_nothing_is_guaranteed_below_the_floor_of_the_policy_that_a_threshold_implies(floor, certified):
    """The threshold 0.9 needs a tau_accept above 0.6, and longer waves may make what was refused as sure as 0.95."""
    policy = Policy(rule="posterior", posterior=VOTES, max_passes=1, waves=(2,), tau_accept=0.6)
    confidence, worth = np.full((60, 1), 0.9), np.ones((60, 1))

    fitted = fit_thresholds(
        policy,
        lambda each: Walk(confidence=confidence, worth=worth, floor=floor if each.tau_accept > 0.6 else -np.inf),
        config=DecisionConfig(max_error=0.2),
    )

    assert fitted.guarantee.certified is certified


def two_passes(worth):
    """Ten sure of the first pass at 0.9, the others at 0.4 and then at 0.7."""
    first = np.repeat([0.9, 0.4], [10, 50])
    return Walk(confidence=np.stack([first, np.full(60, 0.7)], axis=1), worth=np.stack([worth, worth], axis=1))


@pytest.mark.parametrize("max_error", [None, 0.9])
def test_labels_choose_where_problems_stop_only_where_nothing_is_guaranteed(max_error):
    """A second pass is worth its cost by the labels in the second case alone: it turns wrong into right."""
    policy = Policy(rule="posterior", posterior=VOTES, max_passes=2, tau_accept=0.5)
    steps = two_passes(np.ones(60))
    better = Walk(confidence=steps.confidence, worth=np.stack([np.zeros(60), np.ones(60)], axis=1))
    config = DecisionConfig(max_error=max_error, costs={"pass": 0.05})

    same = {
        fit_thresholds(policy, lambda _, walk=each: walk, config=config).policy.tau_accept for each in (steps, better)
    }

    assert (len(same) == 1) == (max_error is not None)


def test_labels_do_not_choose_the_policy_of_the_table_of_guarantees():
    """By the labels a second pass turns wrong into right; the confidences alone stop elsewhere."""
    policy = Policy(rule="posterior", posterior=VOTES, max_passes=2, tau_accept=0.5)
    asked, unasked = (DecisionConfig(max_error=error, costs={"pass": 0.05}) for error in (0.9, None))
    confidence = two_passes(np.zeros(60)).confidence
    better = Walk(confidence=confidence, worth=np.stack([np.zeros(60), np.ones(60)], axis=1))

    tables = [fit_thresholds(policy, lambda _: better, config=config).guarantees for config in (asked, unasked)]

    assert tables[0] == tables[1]
