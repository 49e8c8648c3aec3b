"""Cells of the report's tables: numbers, units, signs, dashes, order and bold rows, all by hand."""

import math
from dataclasses import replace

import hand_made
import pytest
from hand_made import cells, table_of

from raydebm.decision.calibration.profile_choice import ProfileTest
from raydebm.evaluation.certainty.confidence import CheckedGuarantee, DecisionStudy
from raydebm.evaluation.certainty.reliability import CalibrationError, Reliability
from raydebm.evaluation.certainty.signals import SignalRow
from raydebm.evaluation.report import evaluation_tables as tables
from raydebm.evaluation.report.document import decimal, markdown_table, number, points, text_of
from raydebm.evaluation.report.study_tables import study_tables, variant_tables
from raydebm.evaluation.results.energy_metrics import EnergyMeasureRow, EnsembleTheory
from raydebm.evaluation.results.entries import DifficultyRow
from raydebm.evaluation.results.evaluation import Counts, TextsRead
from raydebm.evaluation.stats.intervals import NOTHING, Estimate
from raydebm.evaluation.stats.significance import Comparison
from raydebm.evaluation.studies.scorers import Selected, VariantRow, VariantStudy
from raydebm.evaluation.studies.study import study


def e(value, n=10):
    return Estimate(value=value, low=None if value is None else value / 2, high=value, n=n)


def row(table, name):
    return next(each for each in cells(table) if each[0] == name)


def evaluated(*pools, **options):
    return hand_made.evaluated(pools, **{"adapters": ("a0", "a1")} | options)


@pytest.fixture(scope="module")
def plain(make_pool):
    """p: right by energy, chance 1/2, 1 and 3 cents. q: wrong by energy, one of four right, 2 cents each."""
    p = [(1, {"members": (0.0, 0.0), "cost_usd": 0.01}), (0, {"members": (1.0, 1.0), "cost_usd": 0.03})]
    q = [(y, {"members": (x, x + 0.1), "cost_usd": 0.02}) for x, y in enumerate((0, 1, 0, 0))]
    return evaluated(make_pool(*p, problem_id="p"), make_pool(*q, problem_id="q"))


@pytest.fixture(scope="module")
def graded(make_pool):
    return evaluated(make_pool((0, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0)}), violations=[0.1, 0.5]))


def test_estimates_as_text():
    assert [text_of(cell) for cell in (None, "", 12345, e(0.5), NOTHING)] == [
        "-",
        "",
        "12,345",
        "50.0 [25.0, 50.0]",
        "-",
    ]
    assert number(e(1234.5), digits=1) == "1234.5 [617.2, 1234.5]"
    assert (number(e(0.25), signed=True), points(e(0.125))) == ("+0.250 [0.125, 0.250]", "+12.5 [6.2, 12.5]")
    assert points(-e(0.125)) == "-12.5 [-12.5, -6.2]"
    assert (decimal(None), decimal(0.0), decimal(0.1234, 1, scale=100)) == ("-", "0.000", "12.3")


def test_candidates_are_counted_by_what_they_lack(make_pool):
    failed = (None, {"text": None, "penalty": math.inf})
    unparsed = (0, {"penalty": math.inf, "members": (0.0,)})
    pool = make_pool(
        (1, {"members": (0.0,)}), (None, {"members": (0.0,)}), (0, {}), unparsed, failed, (1, {"greedy": True})
    )

    assert evaluated(pool, adapters=("a0",)).counts == Counts(
        problems=1, candidates=4, greedy=1, failed=1, unparsed=1, unscored=1, unlabeled=1
    )
    assert evaluated(make_pool((1, {})), adapters=()).counts.greedy == 0


def test_selectors_by_share_right(plain):
    table = tables.selector_table(plain)

    assert table.headers == ("selector", "pass@1 %", "gap closed %", "energy (paper) minus this", "n", "unlabeled")
    assert (cells(table)[0], table.emphasised) == (("energy (paper)", "50.0", "20.0", "", "2", "0"), (0,))
    assert row(table, "random")[1:] == ("37.5", "0.0", "+12.5", "2", "0")
    assert row(table, "oracle")[1:] == ("100.0", "100.0", "-50.0", "2", "0")
    written = markdown_table(table).splitlines()
    assert written[1] == "|---|---:|---:|---:|---:|---:|"
    assert written[2].startswith("| **energy (paper)** | **50.0 [")
    assert written[2].endswith("|  | **2** | **0** |")


def test_selectors_by_violation(graded):
    table = tables.selector_table(graded)

    assert cells(table)[0] == ("energy (paper)", "0.100", "100.0", "", "0.0", "1", "0")
    assert row(table, "random")[1:] == ("0.300", "0.0", "+0.200", "0.0", "1", "0")


def test_costs_are_ordered_by_price_and_the_front_is_bold(plain):
    table = tables.cost_table(plain)

    # The first candidates cost 1 and 2 cents and are as often right as the energy, which pays for whole pools: 4 and 8.
    assert (cells(table)[0], table.emphasised) == (("first", "50.0", "1.0", "0.0", "15.00", "yes"), (0,))
    assert row(table, "random")[1:] == ("37.5", "1.0", "0.0", "20.00", "")
    assert row(table, "energy (paper)")[1:] == ("50.0", "3.0", "3.0", "60.00", "")
    assert row(table, "majority vote")[1:] == ("37.5", "3.0", "0.0", "60.00", "")
    prices = [float(each[4]) for each in cells(table)]
    assert prices == sorted(prices)


def test_costs_of_graded_answers_without_prices(graded):
    table = tables.cost_table(graded)

    assert table.headers[1] == "mean violation"
    assert row(table, "first")[1:] == ("0.100", "1.0", "0.0", "-", "yes")
    assert row(table, "energy (paper)") == ("energy (paper)", "0.100", "2.0", "2.0", "-", "")
    assert "No price is known" in table.caption


def test_energies_have_an_n_of_their_own_for_each_figure(plain):
    rows = tuple(
        EnergyMeasureRow(
            name=name, pair_accuracy=e(0.75, 4), kendall_tau_b=e(0.5, 3), energy_gap=e(1.25, 2),
            mean_difference=NOTHING, mean_correct=NOTHING, mean_incorrect=NOTHING,
        )
        for name in ("mu", "E")
    )  # fmt: skip
    table = tables.energy_table(type("Given", (), {"energies": rows}))

    assert cells(table)[1] == ("E", "75.0", "4", "0.500", "3", "1.250", "2")
    assert table.emphasised == (1,)


def test_paired_tests():
    tested = Comparison(
        one="a", other="b", difference=e(0.125, 8), only_one=3.0, only_other=1.5, p_value=0.0004, p_holm=0.05,
        test="McNemar, exact",
    )  # fmt: skip

    table = tables.comparison_table([tested])
    assert cells(table) == [("a - b", "+12.5", "3.0", "1.5", "8", "McNemar, exact", "<0.001", "0.050")]
    assert table.headers[2:4] == ("only the first", "only the second")
    assert tables.comparison_table([tested], what="violation avoided").headers[2:4] == (
        "sum of gains", "sum of losses",
    )  # fmt: skip


@pytest.mark.parametrize(("p_holm", "difference", "verdict"), [
    (0.05, 0.1, "not shown"), (0.0499, 0.1, "better"), (0.0499, -0.1, "worse"), (None, 0.1, "not shown"),
])  # fmt: skip
def test_a_difference_is_shown_below_five_per_cent(p_holm, difference, verdict):
    tested = Comparison(
        one="a", other="b", difference=e(difference), only_one=0, only_other=0, p_value=None, p_holm=p_holm, test="none"
    )
    assert tested.verdict == verdict


def confident(**changes):
    study_of = {
        "profile": "vote", "num_labelled": 90, "weights": {}, "tests": (), "promises": (),
        "confidence": SignalRow(
            name="confidence", description="", auroc=e(0.9), accuracy_at_80=e(0.8), gain_at_80=e(0.05)
        ),
        "reliability": Reliability(
            name="confidence", event="the selection is correct", ece=CalibrationError(value=0.04, n=10),
            brier=e(0.2), base_brier=None, bins=(),
        ),
    }  # fmt: skip
    return DecisionStudy(**study_of | changes)


def test_what_may_be_guaranteed_has_dashes_where_nothing_is_certified(plain):
    guarantee = {
        "max_error": 0.05, "confidence": 0.9, "certified": True, "tau": 0.875, "problems": 90, "coverage": 0.625,
        "upper_bound": 0.049, "more_problems": None, "test_coverage": e(0.5), "test_error": e(0.25),
    }  # fmt: skip
    short = guarantee | {"certified": False, "tau": None, "upper_bound": None, "more_problems": 12}
    decision = confident(promises=(CheckedGuarantee(**guarantee), CheckedGuarantee(**short)))

    table = tables._guarantee_table(decision)
    assert cells(table) == [
        ("5 %", "0.875", "62.5", "4.9", "90", "50.0", "25.0"),
        ("5 %", "not certified, 12 more problems would probably do", "-", "-", "90", "-", "-"),
    ]


def test_the_choice_of_the_profile():
    test = ProfileTest(challenger="vote", incumbent="best_author", wins=7, losses=2, p_value=0.08984, replaced=True)
    (shown,) = cells(tables._profile_table(confident(tests=(test,))))

    assert shown == ("vote", "best_author", "7", "2", "0.0898", "yes")


def test_the_confidence_leads_the_signals_and_their_calibration(plain):
    signals, calibration = tables._trust_tables(
        type("Given", (), {"trust": plain.trust, "decision": confident(), "is_continuous": False})
    )

    assert cells(signals)[0] == ("confidence", "90.0", "80.0", "+5.0", "10")
    assert signals.emphasised == (0,)
    assert cells(calibration)[0] == ("confidence", "the selection is correct", "0.040", "-", "0.200", "-", "10")
    assert len(cells(signals)) == len(plain.trust.signals) + 1


def test_shares_of_what_was_read_and_what_was_not_recorded():
    read = TextsRead(split="test", num_candidates=8, without_problem=1, problem_cut=0, answer_cut=None)

    assert cells(tables.texts_table([read])) == [("test", "8", "12.5", "0.0", "not recorded")]
    assert cells(tables.texts_table([])) == [("all", "-", *["not recorded"] * 3)]


def test_groups_of_difficulty_without_a_violation_have_a_dash():
    group = DifficultyRow(difficulty="easy", num_problems=3, pass_at_1={"random": e(0.5)}, mean_violation={})
    given = {"difficulties": (group,)}

    by_share, by_violation = (
        cells(tables._difficulty_table(type("Given", (), given | {"is_continuous": graded})))
        for graded in (False, True)
    )
    assert (by_share, by_violation) == ([("easy", "3", "50.0")], [("easy", "3", "-")])


def test_the_theory_of_the_ensemble():
    theory = EnsembleTheory(
        num_adapters=5, q=e(0.75), rho=e(0.25), predicted=0.8125, ceiling=None, measured=e(0.8), num_pairs=1200
    )

    assert [each[1] for each in cells(tables._theory_table(theory))] == [
        "5", "1,200", "75.0", "0.250", "81.2", "-", "80.0",
    ]  # fmt: skip


def test_tables_of_a_study(plain, make_pool):
    """One pool of 2: right and wrong, lambda 1; both adapters are right."""
    pool = table_of([make_pool((1, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0), "penalty": 1.0}))])
    results = study(hand_made.evaluated(pool, adapters=("a0", "a1")), pool)
    by_title = {table.title: table for table in study_tables(results)}

    assert row(by_title["Ensemble size (K)"], "2")[:5] == ("2", "1 of 1", "100.0", "100.0", "100.0 - 100.0")
    assert row(by_title["Ensemble size (K)"], "1")[1] == "2 of 2"
    sizes = by_title["Candidates per problem (N)"]
    assert sizes.headers[:4] == ("n", "energy (paper)", "mu only", "random")
    assert cells(sizes)[0][:4] == ("1", "50.0", "50.0", "50.0")
    # Cut off: no finish reason is known.
    assert row(by_title["Generators"], "g") == ("g", "2", "0", "50.0", "0", "4", "-", "-", "100.0", "0.00")
    assert [each[1] for each in cells(by_title["The two terms"])] == ["1", "100.0", "100.0", "0.0"]
    assert row(by_title["The pool"], "candidates per problem")[1] == "2"
    assert row(by_title["The pool"], "problems with correct and incorrect ones, %")[1] == "100.0"


def test_tables_of_a_study_of_graded_answers(make_pool):
    """g, of mu 2, violates 0.25; h, of mu 1 and a penalty of 2, violates 0.75: E chooses g, and mu alone h."""
    pool = table_of(
        make_pool(
            (0, {"members": (1.0, 3.0), "generator": "g", "text": "12345678"}),
            (0, {"members": (0.0, 2.0), "generator": "h", "penalty": 2.0, "broken": [("budget", 2.0)]}),
            violations=[0.25, 0.75], scores={"judge": [4.0, 1.0]}, problem_id=name, difficulty=group,
        )
        for name, group in (("p", "easy"), ("q", ""))
    )  # fmt: skip
    tables_of_it = study_tables(study(hand_made.evaluated(pool, adapters=("a0", "a1")), pool))
    by_title = {table.title: cells(table) for table in tables_of_it}

    assert [each[1] for each in by_title["The pool"]] == ["2", "0.0", "0.500", "0.0", "0.0", "2"]
    assert by_title["Generators"][1] == ("h", "2", "0", "0.0", "0.750", "0", "4", "-", "-", "0.0", "-")
    assert by_title["Ensemble size (K)"][1][-2:] == ("0.250", "0.750")
    assert by_title["Candidates per problem (N)"][1][-4:] == ("0.250", "0.750", "0.500", "0.250")
    assert [each[1] for each in by_title["Partitioned variance"]] == [
        "0.0e+00", "2 / 4", "1.0000", "100.0", "0.0", "0.0", "-0.50, -0.50",
    ]  # fmt: skip
    assert by_title["Other scorers' ratings of the selections"] == [("judge", "4.00", "4.00", "2.50", "+0.00", "2")]
    # In every resample the order is the same.
    assert tables_of_it[-2].rows[0] == ("judge", "-mu", "-1.00 [-1.00, -1.00]", "4", "2")


def test_variants_without_violations_have_no_such_columns():
    by_mu = Selected(pass_at_1=e(0.5), lift=NOTHING, mean_violation=NOTHING, sigma_auroc=e(0.6))
    one = VariantRow(
        name="own", generators=("g", "h"), most=8, backbone="b", num_adapters=5, num_parameters=12000, by_mu=by_mu,
        by_energy=replace(by_mu, pass_at_1=e(0.75)), constraint_share=NOTHING,
    )  # fmt: skip
    (table,) = variant_tables(VariantStudy(title="Variants", rows=(one,), comparisons=()))

    assert cells(table) == [("own", "g, h", "8", "b", "5", "12,000", "75.0", "50.0", "60.0", "-")]
