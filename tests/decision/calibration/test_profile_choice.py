import math

import numpy as np
import pytest

from raydebm.decision.calibration.profile_choice import choose_profile


def worth(wins, losses, ties=0):
    """(vote, challenger): the challenger alone is right on ``wins`` problems, the vote alone on ``losses``."""
    vote = np.repeat([0.0, 1.0, 1.0], [wins, losses, ties])
    return vote, np.repeat([1.0, 0.0, 1.0], [wins, losses, ties])


@pytest.mark.parametrize(
    ("wins", "losses", "p_value", "chosen"),
    [
        (9, 1, 11 / 1024, "posterior"),
        (8, 2, 56 / 1024, "posterior"),
        (7, 3, 176 / 1024, "vote"),
        (0, 0, 1.0, "vote"),
        (0, 9, 1.0, "vote"),
        (4, 0, 1 / 16, "posterior"),
        (3, 0, 1 / 8, "vote"),
    ],
)
def test_one_challenger_replaces_the_vote_by_an_exact_paired_test(wins, losses, p_value, chosen):
    """At level 0.07, half of delta; ties do not count."""
    vote, challenger = worth(wins, losses, ties=50)

    choice = choose_profile({"vote": vote, "posterior": challenger}, delta=0.14)

    (test,) = choice.tests
    assert (test.wins, test.losses, test.p_value) == (wins, losses, pytest.approx(p_value))
    assert choice.profile == chosen


def test_half_of_delta_is_the_posteriors_level():
    vote, challenger = worth(9, 1)  # p = 11/1024 = 0.01074

    assert choose_profile({"vote": vote, "posterior": challenger}, delta=0.0215).profile == "posterior"
    assert choose_profile({"vote": vote, "posterior": challenger}, delta=0.0214).profile == "vote"


def test_the_other_challengers_share_the_other_half():
    vote, challenger = worth(9, 1)

    assert choose_profile({"vote": vote, "energy": challenger}, delta=0.043).profile == "energy"
    assert choose_profile({"vote": vote, "energy": challenger}, delta=0.0429).profile == "vote"


def test_the_better_of_the_two_simplest_comes_first():
    vote, author = worth(2, 1)

    choice = choose_profile({"vote": vote, "best_author": author, "posterior": author}, delta=0.1)

    assert (choice.profile, [test.incumbent for test in choice.tests]) == ("best_author", ["best_author"])


def test_a_richer_profile_must_beat_the_one_that_replaced_the_vote():
    vote, energy = worth(20, 0)

    choice = choose_profile({"vote": vote, "energy": energy, "posterior": energy}, delta=0.1)

    assert choice.profile == "energy"
    assert [(test.challenger, test.incumbent, test.replaced) for test in choice.tests] == [
        ("energy", "vote", True),
        ("posterior", "energy", False),
    ]


def test_unlabelled_problems_do_not_count():
    vote, challenger = worth(9, 1)
    unknown = np.full(5, math.nan)

    choice = choose_profile(
        {"vote": np.concatenate([vote, unknown]), "posterior": np.concatenate([challenger, np.ones(5)])}, delta=0.1
    )

    assert (choice.tests[0].wins, choice.num_problems) == (9, 10)
    assert choice.worth == pytest.approx({"vote": 0.1, "posterior": 14 / 15})


@pytest.mark.parametrize(("num", "chosen"), [(4, "vote"), (5, "posterior")])
def test_the_mean_of_violation_scores_is_tested_by_random_signs(num, chosen):
    """All differences are 0.01: only the choice of no minus reaches their sum, 1 of 16 or of 32; the level is 1/20."""
    vote, challenger = np.repeat([0.5, 0.9], [num, 40]), np.repeat([0.51, 0.9], [num, 40])

    choice = choose_profile({"vote": vote, "posterior": challenger}, delta=0.1)

    assert choice.tests[0].p_value == pytest.approx(0.5**num, abs=0.01)
    assert choice.profile == chosen


def test_who_often_wins_a_little_and_sometimes_loses_much_does_not_replace_the_vote():
    """Mean worth 0.616 against 0.8, with 62 wins and 38 losses: as a sign test p would be 0.0105."""
    vote, challenger = np.repeat([0.8, 1.0], [100, 1]), np.repeat([0.81, 0.3, 1.0], [62, 38, 1])

    choice = choose_profile({"vote": vote, "posterior": challenger}, delta=0.1)

    assert (choice.profile, choice.tests[0].wins, choice.tests[0].losses) == ("vote", 62, 38)
    assert choice.tests[0].p_value > 0.5
