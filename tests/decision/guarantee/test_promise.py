import pytest

from raydebm.decision.evidence.posterior import special_case
from raydebm.decision.guarantee.promise import with_promise
from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError

POLICY = Policy(rule="posterior", posterior=special_case("votes"), max_passes=1, tau_accept=0.8, tau_answer=0.5)
UNCERTIFIED = {"max_error": 0.01, "confidence": 0.9, "certified": False, "problems": 40}
RIGHT = [0.9] * 40
"""40 right answers of 40 certify an error of a tenth: 0.9^40 = 0.0148 < 0.1 / 4."""


def promised(policy=POLICY, confidence_of=RIGHT, worth=(1.0,) * 40, max_error=0.1, **options):
    return with_promise(policy, confidence_of, worth, max_error=max_error, confidence=0.9, **options)


def test_the_certified_threshold_is_answered_from():
    policy = promised()

    assert (policy.tau_answer, policy.tau_accept) == (0.9, 0.9)
    assert policy.guarantee == {
        "max_error": 0.1,
        "confidence": 0.9,
        "certified": True,
        "problems": 40,
        "tau": 0.9,
        "thresholds": [0.9],
    }


def test_a_higher_threshold_is_promised_only_where_the_walk_certified_it():
    """The most confident of 100 answers is wrong: 0.9^60 + 6 x 0.9^59 = 0.0138 < 0.025 certifies the 60 most confident
    answers and, further on, all; 0.9^40 + 4 x 0.9^39 = 0.0805 certifies nothing of fewer. Of the 2 most confident ones
    half are wrong."""
    confidence_of = [(990 - 4 * place) / 1000 for place in range(100)]
    policy = promised(confidence_of=confidence_of, worth=[0.0, *[1.0] * 99])

    thresholds = policy.guarantee["thresholds"]
    assert (policy.tau_answer, thresholds[0], thresholds[-1]) == (0.594, confidence_of[59], confidence_of[99])
    assert policy.changed({"tau_answer": confidence_of[59]}).guarantee["certified"] is True
    assert policy.changed({"tau_answer": confidence_of[59] - 0.001}).guarantee["certified"] is False
    assert policy.changed({"tau_answer": confidence_of[1]}).guarantee["certified"] is False


def test_where_nothing_is_certified_only_proven_answers_are_given_out():
    policy = promised(max_error=0.01)

    assert (policy.tau_answer, policy.tau_accept, policy.guarantee["certified"]) == (1.0, 1.0, False)
    assert policy.guarantee["thresholds"] == []


def test_nothing_is_promised_below_the_floor():
    """80 right answers certify 0.7, half of them 0.9, and none is above 0.95."""
    both = {"confidence_of": RIGHT + [0.7] * 40, "worth": [1.0] * 80}

    assert [promised(**both, floor=floor).tau_answer for floor in (None, 0.7, 0.8, 0.95)] == [0.7, 0.7, 0.9, 1.0]


def test_the_promise_says_which_outcomes_it_rests_on():
    assert promised(outcomes={"decisions": 40}).guarantee["outcomes"] == {"decisions": 40}
    assert "outcomes" not in promised().guarantee


def test_a_problem_without_a_selection_is_never_answered():
    assert promised(confidence_of=[None, *RIGHT], worth=[0.0, *[1.0] * 40]).guarantee["certified"]


def test_a_paper_policy_with_a_posterior_decides_by_it():
    assert promised(POLICY.replaced(rule="paper")).rule == "posterior"


@pytest.mark.parametrize("change", [{"max_passes": 2, "guarantee": UNCERTIFIED}, {"waves": (2, 2)}])
def test_a_threshold_that_changes_where_sampling_ends_is_refused(change):
    with pytest.raises(ConfigError, match=r"needs a threshold of 0\.9, above the policy's tau_accept 0\.8"):
        promised(POLICY.replaced(**change))


def test_labels_that_chose_where_passes_end_test_no_promise():
    """Without a promise ``tau_accept`` maximises the gain by labels; with one it follows from confidences."""
    twice = POLICY.replaced(max_passes=2, tau_accept=0.9)

    with pytest.raises(ConfigError, match="the labels chose where this policy of several passes stops"):
        promised(twice)
    assert promised(twice.replaced(guarantee=UNCERTIFIED)).guarantee["certified"]


def test_a_policy_without_a_posterior_is_refused():
    with pytest.raises(ConfigError, match="has none; run `raydebm calibrate`"):
        promised(Policy())


def test_no_labelled_problem_is_refused():
    with pytest.raises(ConfigError, match="needs labelled problems"):
        promised(confidence_of=[], worth=[])
