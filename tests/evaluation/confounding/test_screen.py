import math
from dataclasses import replace

import pytest
from hand_made import table_of

from raydebm.evaluation.confounding.screen import screen
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate


@pytest.fixture
def pools(make_pool):
    """Six problems, in each a right and a wrong answer by ``a`` and by ``b``; energies from a rule."""

    def make(energy, *, count=6, rows=((0, "a"), (1, "a"), (1, "b"), (0, "b"))):
        return [
            make_pool(
                *(
                    (correct, {"generator": name, "members": (energy(correct, name, problem),)})
                    for correct, name in rows
                ),
                problem_id=f"p{problem}",
            )
            for problem in range(count)
        ]

    return make


def screened(pools, **options):
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=200, seed=1)
    return screen(table_of(pools), lambda_=1.0, bootstrap=bootstrap, **options)


def rows_of(screening):
    return {row.generator: row for row in screening.generators}


def test_an_energy_that_knows_only_the_writer_by_hand(pools):
    """``a`` always -1, ``b`` always +1: all the variance of correct answers' energies is the writer's."""
    screening = screened(pools(lambda correct, name, problem: -1.0 if name == "a" else 1.0))

    rows = rows_of(screening)
    assert (rows["a"].pick_share.value, rows["b"].pick_share.value) == (1.0, 0.0)
    assert (rows["a"].correct_share.value, rows["a"].excess.value) == (0.5, 0.5)
    assert (rows["a"].energy_correct.value, rows["a"].energy_incorrect.value) == (-1.0, -1.0)
    assert (rows["a"].offset.value, rows["b"].offset.value) == (-1.0, 1.0)
    assert (screening.spread.value, screening.spread_range.value, screening.spread_in_problem.value) == (1.0, 2.0, 1.0)
    assert screening.identity_share.value == 1.0
    assert screening.within_auroc.value == 0.5
    assert (screening.gap_within.value, screening.relative_spread.value) == (0.0, None)
    assert (
        screening.accuracy["energy (paper)"].value == 0.0
    )  # a tie between the two by ``a``, and the first of them is wrong
    assert len(screening.warnings()) == 4


def test_picks_of_a_generator_are_about_the_problems_that_it_answered(make_pool, pools):
    """a answers half of the problems, and is picked there although b is as right as a."""
    other = [
        make_pool(
            (1, {"generator": "b", "members": (1.0,)}),
            (0, {"generator": "c", "members": (2.0,)}),
            problem_id=f"q{index}",
        )
        for index in range(6)
    ]
    row = rows_of(screened(pools(lambda correct, name, problem: -1.0 if name == "a" else 1.0) + other))["a"]

    assert (row.pick_share.value, row.correct_share.value, row.excess.value, row.excess.n) == (1.0, 0.5, 0.5, 6)


def test_an_energy_that_knows_only_the_writer_ranks_nobody_within(make_pool):
    """b's problems are harder where a answered too. Against plain means of the problems b would look ranked."""

    def of(problem_id, *rows):
        energy = {"a": -1.0, "b": 1.0, "c": 3.0}
        return make_pool(
            *((right, {"generator": name, "members": (energy[name],)}) for right, name in rows), problem_id=problem_id
        )

    hard = [of(f"p{index}", (0, "b"), (1, "a"), (0, "a")) for index in range(4)]
    easy = [of(f"q{index}", (1, "b"), (1, "c"), (0, "c")) for index in range(4)]

    assert rows_of(screened(hard + easy))["b"].within_auroc.value == pytest.approx(0.5)


def test_an_author_with_few_wrong_answers_has_an_auroc_without_an_interval(make_pool):
    """a is right six times and wrong once: what one wrong answer ranks says nothing of the next."""
    screening = screened(
        [
            make_pool(
                (right, {"generator": "a", "members": (1.0 - right,)}),
                (1, {"generator": "b", "members": (0.5,)}),
                problem_id=f"p{index}",
            )
            for index, right in enumerate([1, 1, 1, 1, 1, 1, 0])
        ]
    )

    auroc = rows_of(screening)["a"].within_auroc
    assert (auroc.value, auroc.low, auroc.high) == (1.0, None, None)


def test_what_could_not_be_tested_is_said(make_pool):
    """One answer by each of two generators, without energies."""
    screening = screened([make_pool((1, {"generator": "a"}), (0, {"generator": "b"}))])

    assert screening.warnings() == ()
    assert screening.verdict().startswith("nothing could be tested")


def test_an_energy_that_knows_only_correctness_has_no_spread_and_no_warning(pools):
    screening = screened(pools(lambda correct, name, problem: 1.0 - 2.0 * correct))

    assert screening.spread.value == 0.0
    assert screening.identity_share.value is None
    assert screening.within_auroc.value == 1.0
    assert (screening.accuracy["energy (paper)"].value, screening.accuracy["best generator"].value) == (1.0, 0.5)
    assert screening.paper_minus_best_generator.value == 0.5


def test_the_scale_of_the_energies_does_not_change_what_has_no_unit(pools):
    """Who wrote it weighs 1 each way, what is wrong weighs 4: the spread is a quarter of the gap."""

    def energy(correct, name, problem):
        return (-1.0 if name == "a" else 1.0) - 4.0 * correct

    small, large = (screened(pools(lambda *key, scale=scale: scale * energy(*key))) for scale in (1.0, 10.0))

    assert (small.spread.value, large.spread.value) == (1.0, 10.0)
    assert small.gap_within.value == 4.0
    assert small.relative_spread.value == large.relative_spread.value == 0.25
    assert small.identity_share.value == large.identity_share.value


def test_difficult_problems_spread_energies_but_not_within_problems(make_pool):
    """``b`` is right on the easy half only, where all energies are low: its mean is lower, its offset is 0."""
    easy = [((1, "a", -3.0), (1, "b", -3.0))] * 6
    hard = [((1, "a", 3.0), (0, "b", 4.0))] * 6
    pools = [
        make_pool(
            *((correct, {"generator": name, "members": (energy,)}) for correct, name, energy in rows),
            problem_id=f"p{index}",
        )
        for index, rows in enumerate([*easy, *hard])
    ]

    screening = screened(pools)

    assert screening.spread.value == 1.5
    assert screening.spread_in_problem.value == 0.0


def test_one_answer_a_generator_leaves_the_ranking_over_problems(make_pool):
    """Within a problem no two answers share a writer; over problems each writer's right answers still rank lower."""
    pools = []
    for index in range(6):
        right, wrong = ("a", "b") if index % 2 else ("b", "a")
        rows = ((1, {"generator": right, "members": (-1.0,)}), (0, {"generator": wrong, "members": (1.0,)}))
        pools.append(make_pool(*rows, problem_id=f"p{index}"))

    screening = screened(pools)

    assert screening.within_auroc.value == 1.0


def test_unlabeled_unscored_and_greedy_candidates_take_no_part(make_pool):
    rows = (
        (1, {"generator": "a", "members": (-1.0,)}),
        (0, {"generator": "b", "members": (1.0,)}),
        (None, {"generator": "b", "members": (-9.0,), "penalty": math.inf}),
        (1, {"generator": "b", "members": None}),
        (1, {"generator": "b", "members": (-8.0,), "greedy": True}),
    )
    screening = screened([make_pool(*rows, problem_id=f"p{index}") for index in range(6)])

    rows = rows_of(screening)
    assert rows["b"].num_candidates == 6
    assert rows["a"].pick_share.value == 1.0
    assert rows["b"].energy_correct.value is None


def test_a_generator_with_few_correct_answers_has_no_mean_to_compare(pools):
    screening = screened(pools(lambda correct, name, problem: -1.0 if name == "a" else 1.0, count=4))

    assert screening.spread.value is None
    assert screening.identity_share.value == 1.0


def test_the_best_generator_is_the_one_that_validation_chose(pools):
    screening = screened(
        pools(lambda correct, name, problem: 1.0 - 2.0 * correct, rows=((1, "a"), (0, "b"))), best_generator="b"
    )

    assert screening.accuracy["best generator"].value == 0.0


def between(value, low):
    return Estimate(value=value, low=low, high=value, n=9)


@pytest.mark.parametrize(
    ("field", "estimate", "num_warnings"),
    [
        ("identity_share", between(0.21, 0.11), 1),
        ("identity_share", between(0.2, 0.19), 0),
        ("identity_share", between(0.5, 0.1), 0),
        ("within_auroc", between(0.9, 0.5), 1),
        ("within_auroc", between(0.52, 0.51), 0),
        ("paper_minus_best_generator", between(0.3, 0.0), 1),
        ("paper_minus_best_generator", between(0.02, 0.01), 0),
    ],
)
def test_a_warning_needs_a_value_beyond_its_limit_and_an_interval_that_says_so(pools, field, estimate, num_warnings):
    clean = replace(screened(pools(lambda correct, name, problem: 1.0 - 2.0 * correct)), generators=())
    assert clean.warnings() == ()

    assert len(replace(clean, **{field: estimate}).warnings()) == num_warnings


@pytest.mark.parametrize(("value", "low", "warns"), [(0.11, 0.06, True), (0.1, 0.09, False), (0.3, 0.05, False)])
def test_a_favourite_is_picked_ten_points_more_often_than_it_is_right(pools, value, low, warns):
    clean = screened(pools(lambda correct, name, problem: 1.0 - 2.0 * correct))
    favoured = replace(clean.generators[0], excess=between(value, low))

    warnings = replace(clean, generators=(favoured, *clean.generators[1:])).warnings()

    assert warnings == (("picked more often than its share of correct answers: a (+11 points)",) if warns else ())
