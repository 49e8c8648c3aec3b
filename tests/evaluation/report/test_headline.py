"""The opening of a report, and its main selectors."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hand_made import evaluated

from raydebm.decision.calibration.profile_choice import ProfileTest
from raydebm.evaluation.certainty.confidence import CheckedGuarantee
from raydebm.evaluation.report.evaluation_report import document
from raydebm.evaluation.report.evaluation_tables import facts, lead, main_rows, main_table, selector_table, sentences
from raydebm.evaluation.results.entries import LoopSummary
from raydebm.evaluation.results.evaluation import TextsRead
from raydebm.evaluation.stats.intervals import Estimate


@pytest.fixture(scope="module")
def evaluation(make_pool):
    """Problem 1: paper right. Problem 2: paper wrong, and one of four candidates right."""
    pools = [
        make_pool((1, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0), "generator": "h"}), problem_id="one"),
        make_pool(
            *[(label, {"members": (float(energy), energy + 0.1)}) for energy, label in enumerate([0, 1, 0, 0])],
            problem_id="two",
        ),
    ]
    return evaluated(pools, adapters=("a0", "a1"))


def certified(max_error, coverage):
    estimate = Estimate(value=coverage, low=None, high=None, n=100)
    return CheckedGuarantee(
        max_error=max_error, confidence=0.9, certified=True, tau=0.5, problems=100, coverage=coverage, upper_bound=None,
        more_problems=None, test_coverage=estimate, test_error=estimate,
    )  # fmt: skip


def decided(evaluation, *promises, **fields):
    """The evaluation with a posterior whose profile is the vote, 41 labelled problems and no tests."""
    given = {"num_labelled": 41, "tests": (), "profile": "vote"} | fields
    study = SimpleNamespace(promises=promises, **given)
    chosen = replace(evaluation.row("majority vote"), name="chosen profile", group="decision")
    return replace(evaluation, decision=study, rows=(*evaluation.rows, chosen))


def test_a_larger_error_is_guaranteed_only_where_it_answers_more(evaluation):
    shown = dict(facts(decided(evaluation, certified(0.1, 0.61), certified(0.2, 0.94), certified(0.3, 0.943))))

    assert shown["can be guaranteed"] == (
        "an error of at most 10 % where 61 % are answered, or an error of at most 20 % where 94 % are answered; "
        "with confidence 0.9"
    )


def test_what_to_use_comes_first_and_bold_by_its_own_name(evaluation):
    chosen = decided(evaluation)

    assert lead(chosen) == "Use the profile vote."
    table = selector_table(chosen)
    assert (table.rows[0][0], table.emphasised) == ("vote (chosen profile)", (0,))
    assert [row.name for row in main_rows(chosen)][:2] == ["chosen profile", "random"]


def test_without_a_posterior_the_papers_rule_comes_first(evaluation):
    assert lead(evaluation).startswith("Use energy (paper): lowest mu + 1 E_constraint, accepted up to a sigma of 0.8")
    names = [row.name for row in main_rows(evaluation)]
    assert (names[0], names[-1]) == ("energy (paper)", "oracle")
    assert not any(name.startswith(("adapter", "generator", "greedy")) for name in names)


def loop_of(**counts):
    nothing = {name: 0 for name in LoopSummary.__dataclass_fields__ if name.startswith("num_")}
    share = Estimate(value=0.75, low=0.5, high=1.0, n=40)
    return LoopSummary(coverage=share, answered=share, first=share, regenerated=share, **{**nothing, **counts})


def test_the_decision_says_answered_right_refused_guaranteed_and_cost(evaluation):
    loop = loop_of(num_problems=40, num_abstained_incorrect=7, num_abstained_correct=3)

    assert facts(replace(evaluation, loop=loop, paid_usd=1234.5)) == (
        ("answered", "75.0 [50.0, 100.0] % of 40 test problems"),
        ("right among them", "75.0 [50.0, 100.0] %"),
        ("refused", "25.0 %: 7 wrong or missing selections and 3 right ones"),
        ("can be guaranteed", "nothing, because no posterior was fitted"),
        ("cost", "this run cost $1,234.50"),
    )


def test_a_run_without_prices_says_so(evaluation):
    assert dict(facts(evaluation)) == {
        "can be guaranteed": "nothing, because no posterior was fitted",
        "cost": "no prices are known",
    }


def test_an_answer_costs_what_its_pool_costs_at_recorded_prices(make_pool):
    pool = make_pool((1, {"members": (0.0,), "cost_usd": 0.002}), (0, {"members": (1.0,), "cost_usd": 0.003}))
    priced = evaluated([pool], adapters=("a0",))

    assert dict(facts(priced))["cost"] == "an answer $0.005 at recorded prices"
    assert dict(facts(replace(priced, paid_usd=2.0)))["cost"] == "this run cost $2.00, an answer $0.005"


def test_labels_that_certify_nothing_say_how_many_more_would(evaluation):
    uncertified = replace(certified(0.1, 0.5), certified=False, more_problems=60)

    shown = dict(facts(decided(evaluation, uncertified, replace(uncertified, more_problems=25))))

    words = "nothing, with 41 labelled problems; about 25 more would do for an error of at most 10 %"
    assert shown["can be guaranteed"] == words


def test_the_best_third_party_baseline_stands_before_the_oracle(evaluation):
    paper, chance = evaluation.row("energy (paper)"), evaluation.row("random")
    external = (replace(chance, name="weak judge", group="external"), replace(paper, name="judge", group="external"))

    names = [row.name for row in main_rows(replace(evaluation, rows=(*external, *evaluation.rows)))]

    assert names[-2:] == ["judge (best of 2, in hindsight)", "oracle"]
    assert not any(name.startswith("weak judge") for name in names)


def test_the_table_of_the_terminal_has_at_most_twelve_rows_and_a_hundred_columns(evaluation):
    everything = [
        replace(evaluation.row("energy (paper)"), name=name, group="paper")
        for name in ("chosen profile", "all passes", "all passes, answered only")
    ]
    judge = replace(evaluation.row("energy (paper)"), name="a third-party judge", group="external")
    table = main_table(replace(evaluation, rows=(judge, *everything, *evaluation.rows)))
    widths = [max(len(row[column]) for row in (table.headers, *table.rows)) for column in range(len(table.headers))]

    assert len(table.rows) == 11
    assert sum(widths) + 3 * len(widths) + 1 <= 100


def test_the_quality_of_the_first_pass_stands_beside_its_rivals(evaluation):
    assert sentences(evaluation) == (
        "After one pass and without refusing, its selections are right on 50.0 [0.0, 100.0] % (random 37.5, majority "
        "vote 37.5, oracle 100.0).",
    )


def test_the_quality_of_graded_answers_is_their_violation(make_pool):
    graded = evaluated([make_pool((0, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0)}), violations=[0.125, 0.5])])

    opening = "After one pass and without refusing, its selections have a mean violation of 0.125 ["
    assert sentences(graded)[-1].startswith(opening)
    assert sentences(graded)[-1].endswith("] (random 0.312, majority vote 0.312, oracle 0.125).")
    answers = replace(graded.row("energy (paper)"), name="all passes, answered only", group="loop")
    shown = dict(facts(replace(graded, loop=loop_of(num_problems=1), rows=(*graded.rows, answers))))
    assert shown["mean violation of these answers"].startswith("0.125 [")
    assert (shown["refused"], "right among them" in shown) == ("25.0 %", False)


def test_how_the_profile_was_chosen(evaluation):
    def says(*tests):
        return sentences(decided(evaluation, tests=tests))[0]

    won = ProfileTest(challenger="posterior", incumbent="vote", wins=9, losses=1, p_value=0.02, replaced=True)
    near, far = (replace(won, wins=7, losses=2, p_value=p_value, replaced=False) for p_value in (0.18, 0.5))

    assert says() == "The recipe names the profile vote."
    assert says(replace(far, challenger="best_author"), near).endswith(
        "41 labelled problems outside the test: no other is shown to be better (nearest: posterior, 7 won, 2 lost, "
        "p = 0.18)."
    )
    assert says(replace(won, incumbent="best_author"), won, far).endswith(
        "it won 9 and lost 1 of the problems on which it differs from vote (p = 0.02)."
    )


def read_of(split, without_problem, *, num_candidates=100):
    return TextsRead(
        split=split, num_candidates=num_candidates, without_problem=without_problem, problem_cut=4, answer_cut=52
    )


def test_where_the_scorer_read_no_problem_the_report_opens_with_a_warning(evaluation):
    read = (read_of("validation", 10), read_of("test", 11), read_of("train", 84))
    opening = sentences(replace(evaluation, texts_read=read))[0]

    assert opening.startswith(
        "Warning: the scorer read nothing of the problem for 11 % of the 100 candidates of test and 84 % of the 100"
    )
    page = document(replace(evaluation, texts_read=read)).markdown().splitlines()
    assert opening in page[:8]
    assert "| validation | 100 | 10.0 | 4.0 | 52.0 |" in page


@pytest.mark.parametrize("read", [(), (read_of("test", None),), (read_of("test", 10),)])
def test_there_is_no_warning_where_a_tenth_lacks_its_problem_or_nothing_is_known(evaluation, read):
    assert len(sentences(replace(evaluation, texts_read=read))) == 1


def test_the_report_opens_with_the_decision_then_one_figure_and_folds_the_rest(evaluation):
    page = document(evaluation).html()
    top, rest = page.split("</header>")

    assert top.count("<svg") == 1
    places = [top.index(part) for part in ("Use energy (paper)", "no prices are known", "After one pass", "<svg")]
    assert places == sorted(places)
    assert "<table" not in top
    assert rest.count("<table") == sum("<table" in part for part in rest.split("<details>")[1:])
    assert rest.count("<svg") == sum("<svg" in part for part in rest.split("<details>")[1:])
    assert "<details open" not in page
