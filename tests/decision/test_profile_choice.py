import json
import math

import numpy as np
import pytest

from raydebm.decision.profile_choice import choose_profile


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
    """At level 0.07 with one challenger; ties do not count."""
    vote, challenger = worth(wins, losses, ties=50)

    found = choose_profile({"vote": vote, "posterior": challenger}, delta=0.07)

    (test,) = found.tests
    assert (test.wins, test.losses, test.p_value) == (wins, losses, pytest.approx(p_value))
    assert found.profile == chosen


def test_the_level_is_shared_among_the_challengers():
    vote, challenger = worth(9, 1)
    same = {"vote": vote, "best_author": vote, "energy": vote}

    assert choose_profile({**same, "posterior": challenger}, delta=0.033).profile == "posterior"  # 11/1024 <= 0.011
    assert choose_profile({**same, "posterior": challenger}, delta=0.032).profile == "vote"


def test_a_richer_profile_must_beat_the_one_that_replaced_the_vote():
    vote, energy = worth(20, 0)

    found = choose_profile({"vote": vote, "energy": energy, "posterior": energy}, delta=0.1)

    assert found.profile == "energy"
    assert [(test.challenger, test.incumbent, test.replaced) for test in found.tests] == [
        ("energy", "vote", True),
        ("posterior", "energy", False),
    ]


def test_unlabelled_problems_do_not_count():
    vote, challenger = worth(9, 1)
    unknown = np.full(5, math.nan)

    found = choose_profile(
        {"vote": np.concatenate([vote, unknown]), "posterior": np.concatenate([challenger, np.ones(5)])}, delta=0.1
    )

    assert (found.tests[0].wins, found.num_problems) == (9, 10)
    assert found.worth == pytest.approx({"vote": 0.1, "posterior": 14 / 15})


def test_violation_scores_are_compared_by_which_is_lower():
    vote, challenger = np.full(10, 0.7), np.full(10, 0.71)

    assert choose_profile({"vote": vote, "posterior": challenger}, delta=0.1).tests[0].wins == 10


def test_the_vote_alone_is_chosen_without_a_test():
    found = choose_profile({"vote": np.array([1.0, 0.0])}, delta=0.1)

    assert (found.profile, found.tests) == ("vote", ())


def test_choice_is_json():
    vote, challenger = worth(9, 1)
    found = choose_profile({"vote": vote, "posterior": challenger}, delta=0.1)

    value = json.loads(json.dumps(found.to_json()))

    assert value["profile"] == "posterior"
    assert value["tests"][0]["p_value"] == pytest.approx(11 / 1024)
