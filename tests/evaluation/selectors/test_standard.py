import math
from typing import NamedTuple

import numpy as np
import pytest
from hand_made import table_of
from hypothesis import given
from hypothesis import strategies as st

from raydebm.evaluation.selectors import best_generator_of, standard_selectors, values_of


class OneValue(NamedTuple):
    correct: float
    violation: float


def selectors(*pools, lambda_=1.0, **options):
    return {selector.name: selector for selector in standard_selectors(table_of(pools), lambda_=lambda_, **options)}


def worth(name, pool, **options):
    return value_of(selectors(pool, **options)[name], pool).correct


def value_of(selector, pool):
    """Of one pool: (correct, violation)."""
    values = values_of(selector, table_of([pool]))
    return OneValue(float(values.correct[0]), float(values.violation[0]))


def test_random_is_the_share_of_correct_candidates(make_pool):
    assert worth("random", make_pool((1, {}), (0, {}), (0, {}), (0, {}))) == 0.25


def test_unlabeled_candidates_are_left_out_not_counted_as_wrong(make_pool):
    assert worth("random", make_pool((1, {}), (0, {}), (None, {}), (None, {}))) == 0.5


def test_a_choice_without_label_has_no_value(make_pool):
    pool = make_pool((None, {"members": (0.0,)}), (1, {"members": (1.0,)}))

    assert math.isnan(worth("energy (paper)", pool))


def test_greedy_is_the_mean_over_generators_and_not_part_of_random(make_pool):
    pool = make_pool(
        (0, {"generator": "g"}),
        (0, {"generator": "h"}),
        (0, {"generator": "i"}),
        (1, {"generator": "g", "greedy": True}),
        (1, {"generator": "h", "greedy": True}),
        (0, {"generator": "i", "greedy": True}),
    )

    assert worth("greedy", pool) == pytest.approx(2 / 3)
    assert worth("random", pool) == 0.0
    assert worth("greedy h", pool) == 1.0


def test_a_model_that_answers_once_is_a_selector_of_its_own_and_no_part_of_greedy(make_pool):
    pool = make_pool(
        (0, {"generator": "g"}), (0, {"generator": "g", "greedy": True}), (1, {"generator": "opus", "greedy": True})
    )

    assert (worth("single-shot opus", pool), worth("greedy", pool), worth("random", pool)) == (1.0, 0.0, 0.0)
    assert not {"generator opus", "greedy opus"}.intersection(selectors(pool))


def test_without_greedy_samples_of_the_pools_generators_there_is_no_greedy_row(make_pool):
    pool = make_pool((0, {"generator": "g"}), (1, {"generator": "opus", "greedy": True}))

    assert "greedy" not in selectors(pool)


def test_first_is_the_first_that_was_written(make_pool):
    assert worth("first", make_pool((None, {"text": None}), (1, {}), (0, {}))) == 1.0


def test_shortest_shares_ties(make_pool):
    pool = make_pool((1, {"text": "ab"}), (0, {"text": "cd"}), (0, {"text": "abc"}), (None, {"text": None}))

    assert worth("shortest", pool) == 0.5


def test_longest_is_not_a_candidate_without_text(make_pool):
    pool = make_pool((0, {"text": "ab"}), (1, {"text": "abc"}), (None, {"text": None}))

    assert worth("longest", pool) == 1.0


def test_majority_counts_answers_and_the_unparsed_do_not_vote(make_pool):
    unparsed = {"penalty": math.inf}
    pool = make_pool(
        (1, {"key": "x"}), (1, {"key": "x"}), (0, {"key": "y"}), (0, unparsed), (0, unparsed), (0, unparsed)
    )

    assert worth("majority vote", pool) == 1.0


def test_a_tied_vote_is_shared_between_the_answers_not_the_candidates(make_pool):
    pool = make_pool((1, {"key": "x"}), (0, {"key": "y"}), (0, {"key": "z"}), (0, {"key": "z"}), (1, {"key": "x"}))

    assert worth("majority vote", pool) == 0.5


def test_when_nothing_is_labelled_a_rule_that_cannot_choose_has_no_value(make_pool):
    pool = make_pool((None, {"penalty": math.inf, "text": None}))

    assert math.isnan(worth("majority vote", pool))


def test_a_generator_is_the_mean_of_its_candidates(make_pool):
    pool = make_pool((1, {"generator": "g"}), (0, {"generator": "g"}), (0, {"generator": "h"}))

    assert worth("generator g", pool) == 0.5
    assert worth("generator h", pool) == 0.0


def test_the_best_generator_is_chosen_on_other_problems_when_there_are_any(make_pool):
    test = make_pool((1, {"generator": "g"}), (0, {"generator": "h"}))
    validation = make_pool((0, {"generator": "g"}), (1, {"generator": "h"}))

    assert worth("best generator", test, best_generator=best_generator_of(table_of([validation]))) == 0.0
    assert worth("best generator (chosen in hindsight)", test) == 1.0


def test_the_best_generator_is_not_the_one_that_answered_the_easier_problems(make_pool):
    """easy answers p alone; on p it is right half of the time, and common always. On q common is always wrong."""
    pools = [
        make_pool((1, {"generator": "easy"}), (0, {"generator": "easy"}), (1, {"generator": "common"}), problem_id="p"),
        *(make_pool((0, {"generator": "common"}), problem_id=f"q{index}") for index in range(3)),
    ]

    assert best_generator_of(table_of(pools)) == "common"


def test_the_best_generator_is_one_of_those_that_can_be_compared(make_pool):
    """c beats d by more than a beats b, on other problems: nothing says that it is better than a."""
    pools = [
        *(make_pool((1, {"generator": "a"}), (1, {"generator": "b"}), problem_id=f"p{index}") for index in range(3)),
        make_pool((1, {"generator": "a"}), (0, {"generator": "b"}), problem_id="p3"),
        make_pool((1, {"generator": "c"}), (0, {"generator": "d"}), problem_id="q"),
    ]

    assert best_generator_of(table_of(pools)) == "a"


def test_unlabeled_candidates_take_no_weight_from_their_answer(make_pool):
    """x and y tie; that two of the three x have no label leaves x half of the chance."""
    pool = make_pool(*[(label, {"key": "x"}) for label in (1, None, None)], *[(0, {"key": "y"})] * 3)

    assert worth("majority vote", pool) == pytest.approx(0.5)


def test_with_violation_scores_the_best_generator_is_the_one_that_violates_least(make_pool):
    pool = make_pool(
        (1, {"generator": "g"}), (0, {"generator": "g"}), (0, {"generator": "h"}), violations=[0.0, 0.9, 0.2]
    )

    assert best_generator_of(table_of([pool])) == "h"


def test_the_oracle_takes_the_lowest_violation_score(make_pool):
    pool = make_pool((0, {}), (0, {}), (0, {}), violations=[0.4, 0.1, 0.3])

    assert value_of(selectors(pool)["oracle"], pool).violation == 0.1


def test_a_rule_that_cannot_choose_violates_all_of_what_others_violate_in_part(make_pool):
    unparsed = {"penalty": math.inf, "members": (0.0,)}
    pool = make_pool((0, unparsed), (0, unparsed), violations=[1.0, 0.5])

    assert value_of(selectors(pool)["energy (paper)"], pool).violation == 1.0


def test_each_adapter_chooses_alone_and_mu_by_their_mean(make_pool):
    pool = make_pool((1, {"members": (0.0, 5.0)}), (0, {"members": (1.0, 1.0)}))

    assert worth("adapter a0", pool) == 1.0
    assert worth("adapter a1", pool) == 0.0
    assert worth("mu only", pool) == 0.0


def test_constraint_only_shares_ties(make_pool):
    pool = make_pool((1, {}), (0, {}), (0, {}), (1, {"penalty": 1.0}), (1, {"penalty": math.inf}))

    assert worth("constraint only", pool) == pytest.approx(1 / 3)


def test_the_papers_rule_weighs_the_constraint(make_pool):
    pool = make_pool((1, {"members": (1.0,)}), (0, {"members": (0.0,), "penalty": 0.6}))

    assert worth("energy (paper)", pool, lambda_=1.0) == 0.0
    assert worth("energy (paper)", pool, lambda_=2.0) == 1.0


@pytest.mark.parametrize("name", ["mu only", "adapter a0"])
def test_what_does_not_parse_is_no_choice_by_mu_alone(make_pool, name):
    unparsed = (0, {"members": (0.0,), "penalty": math.inf})

    assert worth(name, make_pool((1, {"members": (1.0,)}), unparsed)) == 1.0
    assert worth(name, make_pool(unparsed)) == 0.0


def test_mu_only_is_the_papers_rule_with_lambda_0(make_pool):
    """Ties of mu go to the smaller id."""
    pool = make_pool((0, {"members": (1.0,)}), (1, {"members": (0.5,), "penalty": 9.0}), (0, {"members": (0.5,)}))

    assert worth("mu only", pool) == worth("energy (paper)", pool, lambda_=0.0) == 1.0


def test_energy_weighted_vote_lets_good_candidates_outvote_many(make_pool):
    """exp(0) = 1 against 2 exp(-1) = 0.74."""
    pool = make_pool(
        (1, {"members": (0.0,), "key": "x"}), (0, {"members": (1.0,), "key": "y"}), (0, {"members": (1.0,), "key": "y"})
    )

    assert worth("energy-weighted vote", pool) == 1.0
    assert worth("majority vote", pool) == 0.0


def test_energy_weighted_vote_survives_extreme_energies(make_pool):
    pool = make_pool((1, {"members": (-5000.0,), "key": "x"}), (0, {"members": (5000.0,), "key": "y"}))

    assert worth("energy-weighted vote", pool) == 1.0


def test_oracle_takes_a_correct_one_if_there_is_one(make_pool):
    assert worth("oracle", make_pool((0, {}), (1, {}), (None, {}))) == 1.0
    assert worth("oracle", make_pool((0, {}), (None, {}))) == 0.0


def test_without_energies_only_selectors_that_need_none_appear(make_pool):
    names = set(selectors(make_pool((1, {}))))

    assert names == {"random", "first", "shortest", "longest", "majority vote", "constraint only", "oracle"}


@given(data=st.data())
def test_probabilities_sum_to_one_or_nothing_and_no_selector_beats_the_oracle(data, make_pool):
    number = st.floats(-3, 3)
    rows = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, None]),
                st.fixed_dictionaries(
                    {
                        "members": st.none() | st.tuples(number, number),
                        "penalty": st.sampled_from([0.0, 1.0, math.inf]),
                        "key": st.sampled_from("xy"),
                        "generator": st.sampled_from("gh"),
                        "text": st.sampled_from(["a", "bb", None]),
                        "greedy": st.booleans(),
                    }
                ),
            ),
            min_size=1,
            max_size=6,
        )
    )
    pool = make_pool(*rows)
    by_name = selectors(pool)
    bound = value_of(by_name["oracle"], pool).correct

    for name, selector in by_name.items():
        among, weights = selector.choices(table_of([pool]))
        assert weights.shape == (len(among.candidates),)
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1.0) or weights.sum() == 0.0
        value = value_of(selector, pool).correct
        if not name.startswith(("greedy", "single-shot")) and not np.isnan(value) and not np.isnan(bound):
            assert value <= bound


def test_another_scorer_chooses_its_highest_score_and_shares_ties(make_pool):
    pool = make_pool((1, {}), (0, {}), (0, {}), (1, {}), scores={"judge": [9.0, 9.0, 1.0, None]})

    assert worth("judge", pool) == 0.5
    assert selectors(pool)["judge"].group == "external"


def test_a_problem_that_another_scorer_never_saw_is_left_out_not_wrong(make_pool):
    seen = make_pool((1, {}), scores={"judge": [1.0]})
    unseen = make_pool((0, {}), scores={"judge": [None]})
    judge = selectors(seen)["judge"]

    assert value_of(judge, seen).correct == 1.0
    assert math.isnan(value_of(judge, unseen).correct)


def test_a_problem_that_a_generator_was_not_asked_is_left_out_of_its_row(make_pool):
    both = make_pool((1, {"generator": "g"}), (0, {"generator": "h"}))
    only_h = make_pool((0, {"generator": "h"}))

    assert math.isnan(value_of(selectors(both)["generator g"], only_h).correct)
