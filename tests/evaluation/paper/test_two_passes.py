"""The paper's table of two passes: which loop fills it, and what the cell says of its rule."""

from dataclasses import replace

import hand_made
import pytest
from hand_made import outcome_of

from raydebm.decision.policy import Policy
from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.report.evaluation_report import figures_of
from raydebm.evaluation.report.evaluation_tables import loop_table
from raydebm.records import Label, Verdict

PAPER = Policy(theta_sigma=0.5, theta_abstain=1.5, signal="pool_mean", num_regenerate=4)
BY_POSTERIOR = {"rule": "posterior", "profile": "vote", "tau_accept": 0.75, "tau_answer": 0.25}


@pytest.fixture(scope="module")
def walked(make_pool, make_item):
    """(pools, outcomes, labels) of four problems: three get a second pass, one of them a right answer from it."""
    pools = [
        make_pool(
            (int(index == 3), {"members": (0.0, 1.0), "generator": "g"}),
            (0, {"members": (1.0, 2.0), "generator": "h"}),
            problem_id=f"p{index}-",
        )
        for index in range(4)
    ]
    second = make_item("second", pass_index=2, problem_id="p0-")
    outcomes = [outcome_of(pools[0], second, first=pools[0].candidates[0], num_passes=2)]
    outcomes += [outcome_of(pool, pool.candidates[0], num_passes=2) for pool in pools[1:3]]
    outcomes += [outcome_of(pools[3], pools[3].candidates[0], num_passes=1)]
    labels = {
        name: Label(candidate_id=name, problem_id=name[:3], verdict=verdict)
        for name, verdict in {
            "second": Verdict.CORRECT, "p1-a": Verdict.INCORRECT, "p2-a": Verdict.INCORRECT, "p3-a": Verdict.CORRECT,
            "p0-a": Verdict.INCORRECT,
        }.items()
    }  # fmt: skip
    return pools, outcomes, labels


def studied(walked, *, name, policy=PAPER):
    pools, outcomes, labels = walked
    return hand_made.studied(
        pools, policy=policy, task="knights_knaves", name=name,
        outcomes=outcomes, labels=labels,
    )  # fmt: skip


@pytest.fixture(scope="module")
def by_paper(walked):
    return studied(walked, name="puzzles")


@pytest.fixture(scope="module")
def by_posterior(by_paper):
    evaluation = replace(by_paper.evaluation, policy=by_paper.evaluation.policy | BY_POSTERIOR)
    return replace(by_paper, name="puzzles, by the posterior", evaluation=evaluation)


def cell(studies, column):
    table = next(table for table in reproduction(studies).tables if table.label == "tab:twopass")
    return dict(table.rows)["K&K, multi"][table.columns.index(column)]


@pytest.mark.parametrize(("column", "value"), [("Triage rate", 0.75), ("Pass-1", 0.25), ("Two-pass", 0.5)])
def test_the_papers_loop_fills_its_table(by_paper, column, value):
    assert cell([by_paper], column).estimate.value == value


def test_difference_and_adoptions_of_the_papers_loop(by_paper):
    assert cell([by_paper], "Delta").estimate.value == 0.25
    assert cell([by_paper], "Pass-2 adopted").measured == "1/3"


@pytest.mark.parametrize("column", ["Triage rate", "Pass-1", "Two-pass", "Delta", "Pass-2 adopted"])
def test_every_cell_names_rule_and_thresholds(by_paper, column):
    assert cell([by_paper], column).reason == (
        "of puzzles; the paper's rule, lambda 1, theta_sigma 0.5, theta_abstain 1.5, signal pool_mean, 4 candidates in "
        "the second pass"
    )


def test_a_loop_by_the_posterior_stays_out_of_the_papers_table(by_posterior):
    absent = cell([by_posterior], "Two-pass")

    assert absent.measured is None
    assert "decide by the posterior; set `decision.rule: paper`" in absent.reason


def test_a_variant_by_the_papers_rule_fills_the_table_of_a_run_by_the_posterior(by_posterior, by_paper):
    assert cell([by_posterior, by_paper], "Two-pass").estimate == by_paper.evaluation.row("all passes").pass_at_1


def test_a_run_with_a_second_pass_comes_before_one_without(walked, by_paper):
    without = studied(walked, name="recorded", policy=PAPER.replaced(max_passes=1))

    assert "of puzzles;" in cell([without, by_paper], "Two-pass").reason


def test_the_triage_caption_names_the_rule_and_only_the_thresholds_that_it_used(by_paper, by_posterior):
    assert loop_table(by_paper.evaluation).caption == (
        "Up to 2 passes over 4 problems, decided by the paper's rule, lambda 1, theta_sigma 0.5, theta_abstain 1.5, "
        "signal pool_mean."
    )
    assert loop_table(by_posterior.evaluation).caption == (
        "Up to 2 passes over 4 problems, decided by the posterior's rule, profile vote, tau_accept 0.75, "
        "tau_answer 0.25."
    )


def test_the_triage_surface_says_where_its_thresholds_do_not_decide(by_paper, by_posterior):
    captions = [
        next(figure.caption for figure in figures_of(each.evaluation) if figure.title == "Triage surface")
        for each in (by_paper, by_posterior)
    ]

    assert ["decides by the posterior instead" in caption for caption in captions] == [False, True]
