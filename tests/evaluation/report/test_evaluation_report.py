"""The whole evaluation, from pools and outcomes to files."""

import re

import hand_made
import pytest
from hand_made import outcome_of, random_pools

from raydebm.errors import PoolError
from raydebm.evaluation.report.evaluation_report import document, figures_of, write_report
from raydebm.evaluation.report.figures import triage_figure
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.records import Decision, Label, Verdict
from raydebm.run.directory import RunDir


@pytest.fixture(scope="module")
def pools():
    return random_pools(num_problems=20)


def evaluated(pools, **options):
    return hand_made.evaluated(pools, **{"adapters": ("a0", "a1")} | options)


@pytest.fixture(scope="module")
def evaluation(pools):
    return evaluated(pools, title="A <run> & more", seed=7, command="raydebm run --config x.yaml")


@pytest.fixture(scope="module")
def page(evaluation):
    return document(evaluation).html()


def test_fewer_energies_than_names_are_not_given_wrong_names(pools):
    evaluation = evaluated(pools, adapters=("a0", "a1", "a2", "a3"))

    assert evaluation.adapters == ("member 1", "member 2", "member 3")


def test_groups_are_sorted_as_numbers(evaluation):
    assert [row.difficulty for row in evaluation.difficulties] == ["2 people", "10 people"]


@pytest.mark.parametrize(
    ("groups", "ordered"),
    [
        (["over 50 words", "36-50 words", "up to 35 words"], ["up to 35 words", "36-50 words", "over 50 words"]),
        (["HARD", "MEDIUM_HARD", "EASY", "MEDIUM"], ["EASY", "MEDIUM", "MEDIUM_HARD", "HARD"]),
    ],
)
def test_groups_stand_from_easy_to_hard(make_pool, groups, ordered):
    pools = [make_pool((1, {}), problem_id=group, difficulty=group) for group in groups]

    assert [row.difficulty for row in evaluated(pools, adapters=()).difficulties] == ordered


def test_the_loop_is_summarised_by_hand(make_pool, make_item):
    """Fixed by pass 2; broken by pass 2; abstained on a mistake; abstained on a correct one."""
    pools = [make_pool((label, {"members": (0.0,)}), problem_id=f"p{i}") for i, label in enumerate([0, 1, 0, 1])]
    pools.append(make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}), problem_id="p4"))
    better, worse = make_item("better", pass_index=2), make_item("worse", pass_index=2)
    firsts = [pool.candidates[0] for pool in pools]
    outcomes = [
        outcome_of(pools[0], better, first=firsts[0], num_passes=2),
        outcome_of(pools[1], worse, first=firsts[1], num_passes=2),
        outcome_of(pools[2], firsts[2], decision=Decision.ABSTAIN, num_passes=2),
        outcome_of(pools[3], firsts[3], decision=Decision.ABSTAIN, num_passes=2),
        outcome_of(pools[4], firsts[4]),
    ]
    verdicts = {"better": 1, "worse": 0, "p0a": 0, "p1a": 1, "p2a": 0, "p3a": 1, "p4a": 1}
    labels = {
        name: Label(candidate_id=name, problem_id="", verdict=Verdict.CORRECT if correct else Verdict.INCORRECT)
        for name, correct in verdicts.items()
    }

    evaluation = evaluated(pools, outcomes=outcomes, labels=labels)

    loop = evaluation.loop
    assert (loop.coverage.value, loop.answered.value, loop.answered.n) == (0.6, pytest.approx(2 / 3), 3)
    assert loop.regenerated.value == 0.8
    assert (loop.num_adopted, loop.num_fixed, loop.num_broken) == (2, 1, 1)
    assert (loop.num_abstained_incorrect, loop.num_abstained_correct) == (1, 1)
    assert evaluation.row("all passes").pass_at_1.value == 0.6
    assert evaluation.row("all passes, answered only").pass_at_1.n == 3


def test_a_problem_without_outcome_is_an_error(pools):
    with pytest.raises(PoolError, match="20 problems have no outcome of the loop, such as 'p000-'"):
        evaluated(pools, outcomes=[])


def test_pools_without_any_label_are_an_error(make_pool):
    with pytest.raises(PoolError, match="of 1 pools none has a label"):
        evaluated([make_pool((None, {}))])


def test_the_page_stands_alone_and_escapes_what_it_is_given(page):
    assert not re.search(r"<(?:script|link|iframe)|(?:src|href)=.(?!#|data:)", page)
    assert "A &lt;run&gt; &amp; more" in page
    assert page.count("<svg") == 4
    assert len(page) < 2_000_000


@pytest.mark.parametrize(
    "stated", ["raydebm run --config x.yaml", "run 7, candidate order 42", "2000 resamples", "numpy "]
)
def test_reports_state_seeds_command_and_versions(evaluation, page, stated):
    assert stated in page
    assert stated in document(evaluation).markdown()


def test_files_are_written_where_asked(tmp_path, evaluation):
    page = write_report(evaluation, RunDir(str(tmp_path)))

    assert page == str(tmp_path / "evaluation" / "report.html")
    written = {file.name for file in (tmp_path / "evaluation").iterdir()}
    assert written == {"metrics.json", "report.md", "report.html", "main_selectors.svg"}
    assert Evaluation.from_json(RunDir(str(tmp_path)).read_json("evaluation", "metrics.json")) == evaluation


def test_a_threshold_above_the_plot_is_named_in_its_legend_alone(evaluation):
    (axes,) = triage_figure(evaluation.picks, theta_sigma=0.1, theta_abstain=9.0).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"theta_sigma = 0.1", "theta_abstain = 9 (above the plot)"} <= set(labels)


def test_pass_at_n_and_selective_accuracy_by_e_and_by_mu_alone(make_pool):
    """mu prefers the wrong candidate, which breaks a constraint; the right one is less certain."""
    wrong = {"members": (0.0, 0.0), "penalty": 1.0}
    pools = [make_pool((0, wrong), (1, {"members": (0.0, 1.0)}), problem_id=name) for name in "pq"]

    evaluation = evaluated(pools)

    assert [(row.by_energy.value, row.by_mu.value) for row in evaluation.pass_at_n] == [(1.0, 0.0), (1.0, 1.0)]
    assert {row.pass_at_1.value for row in evaluation.selective} == {1.0}
    assert {row.pass_at_1.value for row in evaluation.mu_selective} == {0.0}


def test_the_most_uncertain_selections_are_dropped_first(make_pool):
    """The selection of q is wrong, and its adapters differ by 2."""
    pools = [
        make_pool((1, {"members": (0.0, 0.0)}), problem_id="p"),
        make_pool((0, {"members": (0.0, 2.0)}), problem_id="q"),
    ]

    by_share = {row.abstain_frac: row.pass_at_1.value for row in evaluated(pools).selective}

    assert (by_share[0.0], by_share[0.5]) == (0.5, 1.0)


def test_energies_of_a_violation_task_are_judged_by_what_was_trained(make_pool):
    """No plan is without violation; of four, mu puts the best one first and the second best last."""
    energies, violations = (0.0, 1.0, 2.0, 3.0), [0.1, 0.3, 0.4, 0.2]
    rows = [(0, {"members": (energy, energy + 0.1)}) for energy in energies]
    pools = [make_pool(*rows, violations=violations, problem_id=name) for name in "pq"]

    evaluation = evaluated(pools)

    [mu] = [row for row in evaluation.energies if row.name == "mu"]
    assert (mu.pair_accuracy.value, mu.energy_gap.value) == (1.0, pytest.approx(2.0))
    assert evaluation.theory.num_pairs == 6
    assert evaluation.row("energy (paper)").pass_at_1.value == 0.0


def test_pass_at_n_of_a_violation_task_counts_up_to_the_tolerance(make_pool):
    pool = make_pool((0, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0)}), violations=[0.3, 0.15])

    evaluation = evaluated([pool])

    assert (evaluation.tolerance, [row.by_energy.value for row in evaluation.pass_at_n]) == (0.15, [0.0, 1.0])
    assert any("a violation score of 0.15" in figure.caption for figure in figures_of(evaluation))
