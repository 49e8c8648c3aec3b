"""Studies on pools small enough to work out by hand."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hand_made import table_of

from raydebm.evaluation.report.study_tables import transfer_table
from raydebm.evaluation.results.entries import dimension_table
from raydebm.evaluation.selectors import standard_selectors
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.studies.generators import generator_rows
from raydebm.evaluation.studies.scorers import ScoredRun, judge_agreement, rated_picks, transfer
from raydebm.evaluation.studies.sizes import ensemble_sizes, pool_sizes, subsets
from raydebm.evaluation.studies.study import example_of, overview, ridges, training_pool
from raydebm.evaluation.studies.two_terms import decomposition, variance_partition


def bootstrap(pools):
    return Bootstrap.of(len(pools), num_bootstrap=100, seed=0)


# ---- ensemble size ---------------------------------------------------------------------------------------------------


def test_one_adapter_is_the_mean_of_the_adapters_alone(make_pool):
    """Adapter 0 is right, adapter 1 wrong, their mean right."""
    pools = [make_pool((1, {"members": (0.0, 1.0)}), (0, {"members": (2.0, 0.0)}))]

    one, two = ensemble_sizes(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools), seed=0, theory=None)

    assert (one.num_subsets, one.pass_at_1.value, one.worst, one.best) == (2, 0.5, 0.0, 1.0)
    assert (two.num_subsets, two.pass_at_1.value, two.pair_accuracy.value) == (1, 1.0, 1.0)
    assert one.sigma_auroc.value is None


def test_sigma_of_two_adapters_tells_which_selection_is_wrong(make_pool):
    pools = [
        make_pool((1, {"members": (0.0, 0.0)}), problem_id="p"),
        make_pool((0, {"members": (0.0, 2.0)}), problem_id="q"),
    ]

    _, two = ensemble_sizes(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools), seed=0, theory=None)

    assert two.sigma_auroc.value == two.mu_sigma_auroc.value == 1.0


@pytest.fixture
def constrained(make_pool):
    """mu prefers the wrong candidate, which breaks a constraint: by mu 0, by E (lambda 1) 1."""
    return [
        make_pool((0, {"members": (0.0, 0.0), "penalty": 1.0}), (1, {"members": (0.5, 0.5)}), violations=[0.8, 0.2])
    ]


def test_every_k_is_selected_by_e_and_by_mu_alone(constrained):
    for row in ensemble_sizes(
        table_of(constrained), lambda_=1.0, bootstrap=bootstrap(constrained), seed=0, theory=None
    ):
        assert (row.pass_at_1.value, row.mu_pass_at_1.value) == (1.0, 0.0)
        assert (row.mean_violation.value, row.mu_mean_violation.value) == (0.2, 0.8)


def test_every_n_is_selected_by_e_and_by_mu_alone(constrained):
    one, two = pool_sizes(table_of(constrained), lambda_=1.0, bootstrap=bootstrap(constrained))

    assert [row.pass_at_1["energy (paper)"].value for row in (one, two)] == [0.5, 1.0]
    assert [row.pass_at_1["mu only"].value for row in (one, two)] == [0.5, 0.0]
    assert [row.violation["mu only"].value for row in (one, two)] == [0.5, 0.8]


def test_many_adapters_are_sampled_without_repetition():
    sample = subsets(12, 6, seed=0)

    assert len(set(sample)) == 40
    assert subsets(5, 3, seed=0) == list(combinations(range(5), 3))


# ---- pool size -------------------------------------------------------------------------------------------------------


def test_expectations_over_subsets_are_exact(make_pool):
    """Against all subsets of 2 and of 3 out of 5, one by one."""
    labels, energies = [0, 1, 0, 1, 0], [0.3, 0.1, 0.0, 0.9, 0.5]
    pool = make_pool(*[(label, {"members": (energy,)}) for label, energy in zip(labels, energies, strict=True)])
    rows = pool_sizes(table_of([pool]), lambda_=1.0, bootstrap=bootstrap([pool]))
    by_size = {row.n: row.pass_at_1 for row in rows}

    for size in (1, 2, 4, 5):
        drawn = list(combinations(range(5), size))
        best = np.mean([labels[min(subset, key=lambda i: energies[i])] for subset in drawn])
        oracle = np.mean([max(labels[i] for i in subset) for subset in drawn])
        assert by_size[size]["energy (paper)"].value == pytest.approx(best)
        assert by_size[size]["oracle"].value == pytest.approx(oracle)
        assert by_size[size]["random"].value == pytest.approx(0.4)


def test_what_could_not_be_checked_is_no_wrong_answer_in_a_small_pool(make_pool):
    """Of one candidate drawn, the one that hung says nothing, and the other one is right."""
    hung = {"penalty": math.inf, "members": (0.0,)}
    pool = make_pool((1, {"members": (1.0,)}), (None, hung))

    one, two = pool_sizes(table_of([pool]), lambda_=1.0, bootstrap=bootstrap([pool]))

    assert {name: estimate.value for name, estimate in one.pass_at_1.items()} == dict.fromkeys(one.pass_at_1, 1.0)
    assert two.pass_at_1["energy (paper)"].value == 1.0


def test_what_cannot_be_selected_loses_and_a_smaller_pool_is_used_whole(make_pool):
    pools = [
        make_pool((1, {"members": (5.0,)}), (0, {"members": (0.0,), "penalty": math.inf}), problem_id="two"),
        make_pool((0, {"members": (0.0,), "penalty": math.inf}), problem_id="one"),
    ]

    rows = pool_sizes(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert [row.n for row in rows] == [1, 2]
    assert [row.pass_at_1["energy (paper)"].value for row in rows] == [0.25, 0.5]


# ---- generators ------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_writers(make_pool):
    """g is right at high energy, h wrong at low energy: the scorer prefers h."""
    return [
        make_pool(
            (1, {"generator": "g", "members": (2.0,), "text": "xxxx"}),
            (0, {"generator": "g", "members": (3.0,), "finish_reason": "length"}),
            (0, {"generator": "h", "members": (0.0,)}),
            (1, {"generator": "h", "members": (1.0,), "finish_reason": "stop"}),
            problem_id=name,
        )
        for name in ("p", "q")
    ]


def test_generators_by_hand(two_writers):
    g, h = generator_rows(table_of(two_writers), lambda_=1.0, bootstrap=bootstrap(two_writers))

    assert (g.name, g.num_candidates, g.accuracy.value, g.picked.value, h.picked.value) == ("g", 4, 0.5, 0.0, 1.0)
    assert (g.mu_correct.value, h.mu_correct.value) == (2.0, 1.0)
    assert (g.truncated_frac, h.truncated_frac) == (1.0, 0.0)


def test_the_papers_picks_are_over_all_problems(make_pool):
    """One problem is solved and one is not; h is picked on the second alone."""
    good, bad = {"members": (0.0,)}, {"members": (1.0,)}
    pools = [
        make_pool((1, {"generator": "g", **good}), (0, {"generator": "h", **bad}), problem_id="solved"),
        make_pool((0, {"generator": "g", **bad}), (0, {"generator": "h", **good}), problem_id="hopeless"),
    ]

    _, h = generator_rows(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert (h.picked.value, h.picked.n) == (0.5, 2)


def test_a_generator_that_only_failed_has_a_row(make_pool):
    pools = [make_pool((1, {"generator": "g"}), (None, {"generator": "h", "text": None, "penalty": math.inf}))]

    g, h = generator_rows(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert (g.num_candidates, g.num_failed, h.num_candidates, h.num_failed) == (1, 0, 0, 1)
    assert h.accuracy.value is None


def test_failed_requests_cost_a_choice_nothing(make_pool):
    """With one candidate every way of choosing is random choice, also where half of the requests brought none."""
    failed = (None, {"text": None, "penalty": math.inf})
    pool = make_pool((1, {"members": (0.0,)}), failed, (0, {"members": (1.0,)}), failed)

    one = pool_sizes(table_of([pool]), lambda_=1.0, bootstrap=bootstrap([pool]))[0]

    assert one.n == 1
    assert (
        one.pass_at_1["energy (paper)"].value == one.pass_at_1["random"].value == one.pass_at_1["oracle"].value == 0.5
    )


# ---- the two terms ---------------------------------------------------------------------------------------------------


@pytest.fixture
def at_odds(make_pool):
    """mu prefers a, the constraint c; at lambda 1 the sum prefers b (0.4 + 0.4)."""
    return [
        make_pool(
            (0, {"members": (0.0,), "penalty": 1.0}),
            (1, {"members": (0.4,), "penalty": 0.4}),
            (0, {"members": (1.0,), "penalty": 0.0}),
        )
    ]


def test_the_sum_may_choose_what_neither_term_would(at_odds):
    breakdown = decomposition(table_of(at_odds), lambda_=1.0, bootstrap=bootstrap(at_odds), seed=0)

    assert (breakdown.agree.value, breakdown.neither.value, breakdown.num_constrained) == (0.0, 1.0, 1)
    assert [point.selected for point in breakdown.points] == [False, False, True]
    assert breakdown.points[-1].correct is True


def test_mu_agrees_with_the_constraint_where_it_selects_what_violates_least(make_pool):
    pools = [make_pool((1, {"members": (0.0,), "penalty": 0.0}), (0, {"members": (1.0,), "penalty": 1.0}))]

    breakdown = decomposition(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools), seed=0)

    assert (breakdown.agree.value, breakdown.agree_alone.value, breakdown.neither.value) == (1.0, 1.0, 0.0)


def test_without_constraints_that_tell_apart_there_is_no_decomposition(make_pool):
    pools = [make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}))]

    assert decomposition(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools), seed=0) is None


# ---- overview, dimensions --------------------------------------------------------------------------------------------


def test_overview_counts(make_pool):
    pools = [
        make_pool((1, {"members": (0.0,)}), (0, {"broken": [("budget", 0.5)], "penalty": 0.5}), problem_id="a"),
        make_pool((None, {"text": None, "penalty": math.inf}), (0, {"penalty": math.inf}), (0, {}), problem_id="b"),
        make_pool((1, {}), (1, {}), problem_id="c"),
    ]

    facts = overview(table_of(pools), bootstrap(pools))

    assert (facts.num_problems, facts.fewest, facts.most) == (3, 2, 2)
    assert (facts.accuracy.value, facts.mixed.value, facts.solvable.value) == pytest.approx((1 / 2, 1 / 3, 2 / 3))
    assert facts.constraints == {"budget": 1}


def test_an_example_is_the_selection_of_the_first_pool_with_something_to_choose(make_pool):
    """E of b's candidates: 0.5 + 0 and 0.2 + 2 * 1.0, so that lambda 2 selects the first."""
    pools = [
        make_pool((1, {"members": (0.0,)}), problem_id="a"),
        make_pool(
            (0, {"members": (0.5,), "text": "so\n\n it is  7", "generator": "g"}),
            (1, {"members": (0.2,), "penalty": 1.0}),
            problem_id="b",
        ),
    ]

    shown = example_of(table_of(pools), lambda_=2.0)

    assert (shown.problem_id, shown.text, shown.generator, shown.correct) == ("b", "so it is 7", "g", False)
    assert (shown.energy, shown.violation) == (0.5, None)


def test_an_example_shows_the_beginning_of_the_problem_and_the_end_of_the_answer(make_pool):
    pool = make_pool((1, {"members": (0.0,), "text": "a" * 300 + "z"}))
    pool = replace(pool, problem=replace(pool.problem, prompt="first" + "b" * 300))

    shown = example_of(table_of(pool), lambda_=1.0)

    assert shown.prompt == "first" + "b" * 235 + " ..."
    assert shown.text == "... " + "a" * 239 + "z"


def test_the_best_quarter_by_generator(make_pool):
    """Of eight candidates two are the best quarter: one of g's four, and one of h's."""
    rows = [(0, {"generator": name}) for name in "gggghhhh"]
    pools = [make_pool(*rows, violations=[0.1, 0.5, 0.6, 0.7, 0.2, 0.8, 0.9, 1.0])]

    g, h = generator_rows(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert (g.best_quarter.value, h.best_quarter.value) == (0.25, 0.25)


def test_the_training_pool_by_hand(make_pool):
    """Of the problem with violations g has one of the best two of eight, and h the other; the second has no scores."""
    rows = [(0, {"generator": name}) for name in "gggghhhh"]
    graded = make_pool(*rows, violations=[0.1, 0.5, 0.6, 0.7, 0.2, 0.8, 0.9, 1.0], problem_id="p")
    plain = make_pool((1, {"generator": "g"}), (1, {"generator": "g"}), problem_id="q")

    pool = training_pool(table_of([graded, plain]), seed=0)

    assert (pool.num_problems, pool.num_all_correct, pool.accuracy.value) == (2, 1, 0.5)
    assert {name: share.value for name, share in pool.by_generator.items()} == {"g": 0.5, "h": 0.0}
    assert {name: (share.value, share.n) for name, share in pool.best_quarter.items()} == {
        "g": (0.25, 1), "h": (0.25, 1),
    }  # fmt: skip


def test_dimensions_of_labels_by_selector(make_pool):
    pools = [
        make_pool(
            (0, {"members": (0.0,)}),
            (0, {"members": (1.0,)}),
            violations=[0.1, 0.5],
            dimensions=[{"budget": 0.2, "diversity": 0.0}, {"budget": 0.6, "diversity": 0.4}],
        )
    ]
    wanted = [
        selector
        for selector in standard_selectors(table_of(pools), lambda_=1.0)
        if selector.name in ("energy (paper)", "random")
    ]

    table = dimension_table(table_of(pools), wanted, bootstrap(pools))

    assert (table.source, table.selectors) == ("labels", ("random", "energy (paper)"))
    assert [(name, [e.value for e in values]) for name, values in table.rows] == [
        ("budget", [pytest.approx(0.4), 0.2]),
        ("diversity", [pytest.approx(0.2), 0.0]),
    ]


def test_ridges_are_shares_of_each_class_in_common_bins(make_pool):
    given = [(1, 0.0, "g"), (0, 1.0, "g"), (0, 1.0, "h")]
    pool = make_pool(*((label, {"members": (mu,), "generator": name}) for label, mu, name in given))

    every, g, h = ridges(table_of(pool))

    assert (every.name, every.num_correct, every.num_incorrect, len(every.edges)) == ("all", 1, 2, 33)
    assert (every.correct[0], sum(every.correct), every.incorrect[-1], sum(every.incorrect)) == (1.0, 1.0, 1.0, 1.0)
    assert (g.num_incorrect, h.num_correct, h.correct, h.edges) == (1, 0, (), every.edges)
    assert ridges(table_of(make_pool((1, {})))) == ()


def test_a_rule_that_chooses_nothing_has_all_parts_of_the_violation(make_pool):
    unparsed = {"penalty": math.inf, "members": (0.0,)}
    pools = [
        make_pool((0, unparsed), violations=[0.6], dimensions=[{"budget": 0.6}], problem_id="p"),
        make_pool((0, {"members": (0.0,)}), violations=[0.1], dimensions=[{"budget": 0.1}], problem_id="q"),
    ]
    paper = [
        selector for selector in standard_selectors(table_of(pools), lambda_=1.0) if selector.name == "energy (paper)"
    ]

    (budget,) = dimension_table(table_of(pools), paper, bootstrap(pools)).rows

    assert (budget[1][0].value, budget[1][0].n) == (pytest.approx((1 + 0.1) / 2), 2)


def test_without_dimensions_the_constraints_penalties_are_shown(make_pool):
    pools = [make_pool((1, {}), (0, {"broken": [("budget", 0.5), ("budget", 0.25)], "penalty": 0.75}))]
    chance = [selector for selector in standard_selectors(table_of(pools), lambda_=1.0) if selector.name == "random"]

    table = dimension_table(table_of(pools), chance, bootstrap(pools))

    assert table.source == "constraint penalties of parsed candidates"
    assert table.rows[0][1][0].value == pytest.approx(0.375)


# ---- several scorers and runs ----------------------------------------------------------------------------------------


def test_judges_that_agree_in_rank_correlate_fully(make_pool):
    scores = {"p": {"one": [9.0, 2.0], "other": [0.9, 0.1]}, "q": {"one": [8.0, 1.0], "other": [0.8, None]}}
    pools = [
        make_pool((1, {"members": (right,)}), (0, {"members": (wrong,)}), scores=scores[name], problem_id=name)
        for name, right, wrong in (("p", 0.0, 6.0), ("q", 1.0, 5.0))
    ]

    rows = {(row.one, row.other): row for row in judge_agreement(table_of(pools), bootstrap(pools))}

    agreed = rows["one", "other"].spearman
    assert (agreed.value, agreed.low, agreed.high) == pytest.approx((1.0, 1.0, 1.0))
    assert (rows["one", "other"].num_candidates, rows["one", "other"].spearman.n) == (3, 2)
    assert rows["one", "-mu"].spearman.value == pytest.approx(0.8)


def scored(make_pool, energies, names="pq"):
    return [
        make_pool((1, {"members": (energy,)}), (0, {"members": (0.0,)}), problem_id=name)
        for name, energy in zip(names, energies, strict=True)
    ]


def test_transfer_compares_on_the_problems_that_all_cover(make_pool):
    runs = [
        ScoredRun(source="A", target="T", pools=table_of(scored(make_pool, (-1.0, -1.0, -1.0), "pqr")), in_domain=True),
        ScoredRun(source="B", target="T", pools=table_of(scored(make_pool, (1.0, -1.0), "qp"))),
        ScoredRun(source="A", target="U", pools=table_of(scored(make_pool, (1.0, 1.0)))),
    ]

    matrix = transfer(runs, title="t")

    assert (matrix.sources, matrix.targets) == (("A", "B"), ("T", "U"))
    assert (matrix.cell("A", "T").by_mu.pass_at_1.value, matrix.cell("A", "T").by_mu.pass_at_1.n) == (1.0, 2)
    assert (matrix.cell("B", "T").by_mu.pass_at_1.value, matrix.cell("B", "T").by_mu.lift.value) == (0.5, 0.0)
    assert matrix.cell("B", "U") is None
    assert [(row.one, row.difference.value) for row in matrix.comparisons] == [("B on T", -0.5)]
    assert matrix.random["U"].value == 0.5


def test_an_exact_constraint_of_the_target_is_no_merit_of_the_source(make_pool):
    """The source's mu prefers the wrong candidate, which the target's constraint excludes."""
    pools = [make_pool((0, {"members": (0.0,), "penalty": 1.0}), (1, {"members": (0.5,)}))]

    right = [make_pool((0, {"members": (0.5,)}), (1, {"members": (0.0,)}))]
    runs = [
        ScoredRun(source="A", target="T", pools=table_of(pools)),
        ScoredRun(source="B", target="T", pools=table_of(right), in_domain=True),
    ]

    matrix = transfer(runs, title="t")
    cell, (compared,) = matrix.cell("A", "T"), matrix.comparisons

    assert (compared.one, compared.other, compared.difference.value) == ("A on T", "B", -1.0)
    (first, second, vote, chance) = transfer_table(matrix).rows
    assert [first[1].partition(" ")[0], "*" in first[1], "*" in second[1], vote[2], chance[2]] == [
        "0.0", False, True, "-", "-",
    ]  # fmt: skip
    assert (cell.by_mu.pass_at_1.value, cell.by_mu.lift.value) == (0.0, -0.5)
    assert (cell.by_energy.pass_at_1.value, cell.by_energy.lift.value) == (1.0, 0.5)


def test_one_run_twice_is_an_error(make_pool):
    run = ScoredRun(source="A", target="T", pools=table_of(scored(make_pool, (1.0, 1.0))))

    with pytest.raises(ValueError, match="same source and target"):
        transfer([run, run], title="t")


def test_a_training_pool_by_generator(make_pool):
    """g: 1 of 2 and 1 of 1 correct, so 75 %; h: none of its one. All: mean of 1/3 and 1."""
    pools = [
        make_pool((1, {"generator": "g"}), (0, {"generator": "g"}), (0, {"generator": "h"}), problem_id="p"),
        make_pool((1, {"generator": "g"}), problem_id="q"),
    ]

    training = training_pool(table_of(pools), seed=0)

    assert (training.num_problems, training.accuracy.value) == (2, pytest.approx(2 / 3))
    assert {name: value.value for name, value in training.by_generator.items()} == {"g": 0.75, "h": 0.0}
    assert training.best_quarter == {}
    assert training_pool(table_of([]), seed=0) is None


def test_a_training_pool_may_have_energies_of_different_numbers_of_adapters(make_pool):
    """Out of bag, a problem's candidates are scored by the adapters that did not learn from it."""
    one = make_pool((1, {"members": (0.1,)}), problem_id="p")
    two = make_pool((0, {"members": (0.1, 0.2)}), problem_id="q")
    assert training_pool(table_of([one, two]), seed=0).accuracy.value == 0.5


def test_the_variance_of_two_adapters_that_weigh_the_constraint_differently(make_pool):
    """Energies 0, 1 and 0, 3 at penalties 0, 1: slopes 1 and 3. Sigma squared is 0 and 1, mean 0.5; the parts along the
    constraint are -0.5, 0.5 and -1.5, 1.5, the rest 0.5 and 1.5 for both candidates: variance 0.25 each."""
    pool = make_pool((1, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 3.0), "penalty": 1.0}))

    partition = variance_partition(table_of([pool]), lambda_=2.0, bootstrap=bootstrap([pool]))

    assert partition.slopes == (1.0, 3.0)
    assert (partition.num_problems, partition.num_candidates, partition.variance.value) == (1, 2, 0.5)
    assert (partition.quality.value, partition.constraint.value, partition.covariance.value) == (0.5, 0.5, 0.0)
    assert partition.identity_error < 1e-12


def test_adapters_that_agree_about_the_constraint_have_no_variance_of_it(make_pool):
    pools = [
        make_pool(
            (1, {"members": (0.0, 1.0)}), (0, {"members": (2.0, 3.0), "penalty": 1.0}), (0, {"penalty": math.inf}),
            problem_id="p",
        ),
        make_pool((1, {"members": (5.0, 9.0)}), (0, {"members": (1.0, 2.0)}), problem_id="the same penalty"),
    ]  # fmt: skip

    partition = variance_partition(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert (partition.quality.value, partition.constraint.value, partition.slopes) == (1.0, 0.0, (2.0, 2.0))
    assert (partition.num_problems, partition.num_candidates) == (1, 2)


def test_no_partition_with_one_adapter_or_without_a_constraint_that_tells_apart(make_pool):
    one = make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,), "penalty": 1.0}))
    even = make_pool((1, {"members": (0.0, 1.0)}), (0, {"members": (1.0, 3.0)}))

    for pool in (one, even):
        assert variance_partition(table_of([pool]), lambda_=1.0, bootstrap=bootstrap([pool])) is None


def test_a_judges_rating_of_the_picks_beside_the_oracles(make_pool):
    """p: paper is a (rated 4), the oracle's are b and c, equal in violation (2 and 3). q: paper is the oracle's, 5."""
    pools = [
        make_pool(
            *[(0, {"members": (energy,)}) for energy in (0.0, 1.0, 2.0)],
            violations=[0.5, 0.1, 0.1], scores={"judge": [4, 2, 3]}, problem_id="p",
        ),
        make_pool(
            *[(0, {"members": (energy,)}) for energy in (0.0, 1.0)],
            violations=[0.0, 0.3], scores={"judge": [5, 1]}, problem_id="q",
        ),
    ]  # fmt: skip

    (ratings,) = rated_picks(table_of(pools), lambda_=1.0, bootstrap=bootstrap(pools))

    assert (ratings.paper.value, ratings.oracle.value, ratings.random.value) == (4.5, 3.75, 3.0)
    assert (ratings.paper_minus_oracle.value, ratings.paper_minus_oracle.n) == (0.75, 2)


def test_without_violation_scores_the_oracles_picks_are_the_correct_ones(make_pool):
    pool = make_pool((1, {"members": (1.0,)}), (0, {"members": (0.0,)}), scores={"judge": [5, math.nan]})

    (ratings,) = rated_picks(table_of([pool]), lambda_=1.0, bootstrap=bootstrap([pool]))

    assert (ratings.oracle.value, ratings.paper.value, ratings.paper_minus_oracle.n) == (5.0, None, 0)
