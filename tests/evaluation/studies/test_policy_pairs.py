"""Two policies compared on the decisions that both of them made."""

from datetime import UTC, datetime, timedelta

import pytest

from raydebm.decisions.paired import PairedDecision, PolicyChoice
from raydebm.errors import PoolError
from raydebm.evaluation.studies.policy_pairs import compare_policies

START = datetime(2026, 5, 1, tzinfo=UTC)
RIGHT, WRONG, REFUSED, UNJUDGED = (True, True), (True, False), (False, False), (True, None)
"""(answered, right)."""


def decision(index, first, second, *, agrees=None, problem=None, has_outcome=True, role="first", versions=("a", "b")):
    choices = [
        PolicyChoice(version=version, answered=answered, right=right, num_candidates=number, cost_usd=0.5 * number)
        for (answered, right), version, number in zip((first, second), versions, (4, 3), strict=True)
    ]
    return PairedDecision(
        record_id=str(index),
        time=START + timedelta(seconds=index),
        problem=("t", problem or f"p{index}"),
        role=role,
        first=choices[0],
        second=choices[1],
        agrees=first == second if agrees is None else agrees,
        exact=True,
        has_outcome=has_outcome,
    )


TEN = [
    *(decision(index, RIGHT, RIGHT) for index in range(6)),
    *(decision(index, WRONG, RIGHT) for index in range(6, 9)),
    decision(9, RIGHT, REFUSED, role="canary"),
]
"""Both right six times, the second alone three times, the first alone once, where the second refused."""


def test_right_answers_are_compared_by_hand():
    comparison = compare_policies(TEN).right
    assert comparison.difference.value == pytest.approx(0.2)  # 9 of 10 and 7 of 10
    assert (comparison.only_one, comparison.only_other) == (3, 1)
    assert comparison.p_value == pytest.approx(0.625)  # (1 + 4 + 4 + 1) / 16
    assert comparison.test == "McNemar, exact"


def test_wrong_answers_are_compared_by_hand():
    comparison = compare_policies(TEN).wrong
    assert comparison.difference.value == pytest.approx(-0.3)
    assert comparison.p_value == pytest.approx(0.25)  # 2 / 8


def test_coverage_is_compared_by_hand():
    comparison = compare_policies(TEN).answered
    assert (comparison.difference.value, comparison.p_value) == (pytest.approx(-0.1), 1.0)


def test_holms_correction_counts_the_three_tests():
    comparison = compare_policies(TEN)
    assert comparison.wrong.p_holm == pytest.approx(0.75)


def test_the_figures_of_each_policy():
    comparison = compare_policies(TEN)
    first, second = comparison.first, comparison.second
    assert (first.version, first.answered, first.right, first.wrong, first.decided) == ("a", 10, 7, 3, 9)
    assert (second.version, second.answered, second.right, second.wrong, second.decided) == ("b", 9, 9, 0, 1)


def test_what_decisions_take_is_compared():
    comparison = compare_policies(TEN)
    assert (comparison.first.candidates, comparison.second.candidates) == (4, 3)
    assert (comparison.candidates.value, comparison.cost_usd.value) == (-1, -0.5)
    assert comparison.cost_p == pytest.approx(2 / 1024, abs=0.002)  # all ten signs alike


def test_decisions_on_which_they_agree_are_counted():
    comparison = compare_policies(TEN)
    assert (comparison.num_decisions, comparison.num_agree, comparison.num_differ, comparison.num_outcomes) == (
        10,
        6,
        4,
        10,
    )


def test_agreement_alone_decides_no_test():
    comparison = compare_policies(TEN[:6])
    assert (comparison.right.p_value, comparison.right.difference.value, comparison.outcomes_needed) == (1.0, 0.0, None)


def test_the_newest_decision_about_a_problem_counts():
    comparison = compare_policies([decision(0, WRONG, RIGHT, problem="p"), decision(1, RIGHT, RIGHT, problem="p")])
    assert (comparison.num_decisions, comparison.num_repeated, comparison.num_differ) == (1, 1, 0)


def test_a_choice_that_is_not_known_is_counted_and_left_out():
    unknown = decision(10, RIGHT, REFUSED)
    unknown = PairedDecision(**{name: getattr(unknown, name) for name in unknown.__slots__} | {"agrees": None})
    comparison = compare_policies([*TEN, unknown])
    assert (comparison.num_unknown, comparison.num_decisions, comparison.num_outcomes) == (1, 11, 10)


def test_an_outcome_that_does_not_judge_the_other_choice_is_counted_and_left_out():
    comparison = compare_policies([*TEN, decision(10, WRONG, UNJUDGED)])
    assert (comparison.num_unjudged, comparison.num_outcomes, comparison.num_differ) == (1, 10, 5)


def test_decisions_without_an_outcome_count_for_coverage_alone():
    both = decision(10, REFUSED, REFUSED, has_outcome=False)
    comparison = compare_policies([*TEN, both])
    assert (comparison.num_outcomes, comparison.right.difference.n, comparison.answered.difference.n) == (10, 10, 11)


def test_without_outcomes_nothing_is_said_of_right_and_wrong():
    comparison = compare_policies([decision(0, UNJUDGED, REFUSED, has_outcome=False)])
    assert (comparison.right.p_value, comparison.right.difference.value, comparison.answered.difference.value) == (
        None,
        None,
        -1,
    )


def test_how_many_outcomes_more_would_show_a_difference():
    """4 of 10 discordant: (1.95996 sqrt(0.4) + 0.84162 sqrt(0.4 - 0.01))^2 / 0.01 = 311.6, so 312, less the 10."""
    assert compare_policies(TEN, margin=0.1).outcomes_needed == 302


def test_the_newest_pair_of_policies_is_compared_by_default():
    other = [decision(index, RIGHT, RIGHT, versions=("b", "c")) for index in (20, 21)]
    assert compare_policies([*TEN, *other]).second.version == "c"
    assert compare_policies([*TEN, *other], versions=("a", "b")).num_decisions == 10


@pytest.mark.parametrize("decisions", [[], TEN])
def test_a_pair_without_decisions_is_refused(decisions):
    with pytest.raises(PoolError, match="by policies x and y as two policies side by side"):
        compare_policies(decisions, versions=("x", "y"))


def test_nothing_stored_is_refused_with_what_starts_it():
    with pytest.raises(PoolError, match=r"`raydebm policies try POLICY\.json`"):
        compare_policies([])
