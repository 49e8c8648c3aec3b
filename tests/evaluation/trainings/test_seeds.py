"""Two trainings on three problems, every number by hand."""

import json
import math

import numpy as np
import pytest

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.certainty.trust import Certainty
from raydebm.evaluation.results.entries import SelectorEntry
from raydebm.evaluation.trainings.seeds import seed_tables, summarise_seeds
from raydebm.evaluation.trainings.seeds_report import summary, write_seeds
from raydebm.evaluation.trainings.training_values import Training
from raydebm.run.directory import RunDir


def entry(name, correct, *, group="baseline", violation=None):
    values = np.array(correct, dtype=float)
    damage = np.full(len(values), math.nan) if violation is None else np.array(violation, dtype=float)
    return SelectorEntry(
        name=name, group=group, description="", correct=values, violation=damage, unlabeled=np.isnan(values)
    )


def training(seed, ours, *, problem_ids=("p", "q", "r"), **more):
    entries = [
        entry("random", [0.5] * len(ours)),
        entry("majority vote", [1.0, 0.0, 0.0][: len(ours)]),
        entry("ours", ours, group="ours"),
        entry("oracle", [1.0] * len(ours), group="bound"),
        *more.get("extra", ()),
    ]
    return Training(seed=seed, problem_ids=tuple(problem_ids), entries=entries)


def summarise(*trainings, **options):
    return summarise_seeds(trainings, title="run", task="gsm8k", num_bootstrap=200, **options)


@pytest.fixture
def two():
    return summarise(training(0, [1, 1, 0]), training(1, [1, 0, 0]))


def test_a_value_is_the_mean_over_problems_of_their_means_over_trainings(two):
    row = two.row("ours")
    assert row.pass_at_1.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert row.pass_at_1.n == 3


def test_each_training_has_its_own_value_and_their_spread_is_the_sample_deviation(two):
    row = two.row("ours")
    assert row.by_seed == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert row.sd == pytest.approx(math.sqrt(2) / 6)
    assert two.row("majority vote").sd == 0


def test_the_gap_closed_is_that_of_the_means(two):
    # random 0.5, oracle 1, ours 0.5: nothing of the gap.
    assert two.row("ours").gap_closed.value == pytest.approx(0)
    assert two.row("oracle").gap_closed.value == 1


def test_ours_is_compared_problem_by_problem(two):
    assert two.row("majority vote").ours_minus.value == pytest.approx((0 + 0.5 + 0) / 3)
    comparisons = {(row.one, row.other): row for row in two.comparisons}
    assert set(comparisons) == {("ours", "random"), ("ours", "majority vote")}
    assert comparisons["ours", "majority vote"].difference.n == 3


def test_trainings_may_have_different_test_problems():
    seed_summary = summarise(training(0, [1, 1, 0]), training(1, [0, 0], problem_ids=("q", "s")))
    # p: 1; q: mean of 1 and 0; r: 0; s: 0.
    assert seed_summary.num_problems == 4
    assert seed_summary.row("ours").pass_at_1.value == pytest.approx(1.5 / 4)


def test_a_problem_without_a_value_in_one_training_counts_by_the_other():
    seed_summary = summarise(training(0, [1, math.nan, 0]), training(1, [1, 1, 0]))
    assert seed_summary.row("ours").pass_at_1.value == pytest.approx(2 / 3)


def test_two_selectors_are_compared_within_the_trainings_that_have_both():
    """On q ours is right, then unlabeled, and the judge right, then wrong: the one pair that there is differs by 0."""
    seed_summary = summarise(
        training(0, [1, 1, 0], extra=[entry("judge", [1, 1, 0])]),
        training(1, [1, math.nan, 0], extra=[entry("judge", [1, 0, 0])]),
    )
    assert seed_summary.row("judge").ours_minus.value == 0
    (compared,) = [row for row in seed_summary.comparisons if row.other == "judge"]
    assert (compared.difference.value, compared.only_one) == (0, 0)
    # Over the same pairs random is 0.5 and the oracle 1: ours gains 0.5, 0.5 and -0.5 of three times 0.5.
    assert seed_summary.row("ours").gap_closed.value == pytest.approx(0.5 / 1.5)


def test_a_selector_that_one_training_lacks_is_left_out():
    seed_summary = summarise(training(0, [1, 1, 0], extra=[entry("judge", [1, 1, 1])]), training(1, [1, 0, 0]))
    assert seed_summary.row("judge") is None


def test_where_there_is_a_violation_score_it_decides():
    def of(seed, ours):
        entries = [
            entry("random", [0, 0], violation=[0.5, 0.5]),
            entry("ours", [0, 0], group="ours", violation=ours),
            entry("oracle", [0, 0], group="bound", violation=[0.1, 0.1]),
        ]
        return Training(seed=seed, problem_ids=("p", "q"), entries=entries)

    seed_summary = summarise(of(0, [0.1, 0.3]), of(1, [0.1, 0.1]))
    row = seed_summary.row("ours")
    assert seed_summary.is_continuous
    assert row.mean_violation.value == pytest.approx(0.15)
    assert row.by_seed == (pytest.approx(0.2), pytest.approx(0.1))
    assert row.gap_closed.value == pytest.approx(0.35 / 0.4)
    assert seed_summary.row("random").ours_minus.value == pytest.approx(0.35)


@pytest.mark.parametrize("seeds", [(0,), (1, 1)])
def test_fewer_than_two_different_seeds_are_refused(seeds):
    with pytest.raises(PoolError, match="two or more"):
        summarise(*(training(seed, [1, 0, 0]) for seed in seeds))


def test_every_row_of_every_table_is_as_long_as_its_headers(two):
    for table in seed_tables(two):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headers)}


def of_many(num_won):
    """Random is wrong on the first ``num_won`` of 30 problems, which ours gets right, and right on the others."""
    ids = tuple(f"p{index}" for index in range(30))
    random = [0] * num_won + [1] * (30 - num_won)
    entries = [entry("random", random), entry("ours", [1] * 30, group="ours"), entry("oracle", [1] * 30, group="bound")]
    return summarise(*(Training(seed=seed, problem_ids=ids, entries=entries) for seed in range(2)))


def test_the_summary_names_what_the_paired_tests_show():
    """Six of six problems on which they differ: p = 2 / 2**6."""
    text = summary(of_many(6))

    assert "2 trainings on 30 test problems of task gsm8k" in text
    assert "mu + lambda E 100.0 [88.4, 100.0]" in text
    assert "Better than (p < 0.05 after Holm's correction): random." in text


def test_the_summary_does_not_claim_what_only_the_interval_shows():
    """Five of five problems: the interval is above 0, and p = 2 / 2**5 = 0.06."""
    seed_summary = of_many(5)

    assert seed_summary.row("random").ours_minus.low > 0
    assert "Better than" not in summary(seed_summary)


def test_the_documents_hold_the_same_numbers(two, tmp_path):
    address = write_seeds(two, RunDir(str(tmp_path)), command="raydebm seeds")
    page = (tmp_path / "seeds" / "report.html").read_text()
    assert address == str(tmp_path / "seeds" / "report.html")
    assert json.loads((tmp_path / "seeds" / "seeds.json").read_text())["seeds"] == [0, 1]
    for text in (page, (tmp_path / "seeds" / "report.md").read_text()):
        assert "66.7" in text
        assert "raydebm seeds" in text


def certainty(signal, correct, *, violation=None, name="sigma"):
    values = np.array(correct, dtype=float)
    damage = np.full(len(values), math.nan) if violation is None else np.array(violation, dtype=float)
    return Certainty(
        signals=(Signal(name, "", np.array(signal, dtype=float)),), correct=values, violation=damage, reliabilities=()
    )


FIVE = ("p", "q", "r", "s", "t")


def trained(seed, about, *, violation=None):
    entries = [
        entry(name, [0.0] * 5, group=group, violation=violation)
        for name, group in (("random", "baseline"), ("ours", "ours"), ("oracle", "bound"))
    ]
    return Training(seed=seed, problem_ids=FIVE, entries=entries, certainty=about)


def test_abstention_gains_what_the_least_certain_fifth_costs_averaged_over_trainings():
    # The least certain of five is wrong in one training (3/4 - 3/5), right in the other (2/4 - 3/5).
    first = trained(0, certainty([5, 4, 3, 2, 1], [1, 1, 1, 0, 0]))
    second = trained(1, certainty([1, 2, 3, 4, 5], [1, 1, 1, 0, 0]))

    (row,) = summarise(first, second).signals

    assert row.by_seed == (pytest.approx(0.15), pytest.approx(-0.1))
    assert row.right_at_80.value == pytest.approx(0.625)
    assert row.gain_at_80.value == pytest.approx(0.025)
    assert row.gain_at_80.n == 5


def test_where_a_task_has_violations_abstention_is_judged_by_them():
    violation = [0.0, 0.0, 0.5, 0.5, 1.0]
    both = [
        trained(seed, certainty([5, 4, 3, 2, 1], [0] * 5, violation=violation), violation=violation) for seed in (0, 1)
    ]

    (row,) = summarise(*both).signals

    assert row.right_at_80.value == pytest.approx(1 - 0.25)
    assert row.gain_at_80.value == pytest.approx(0.4 - 0.25)


def test_a_signal_that_one_training_lacks_is_left_out():
    first = trained(0, certainty([5, 4, 3, 2, 1], [1, 1, 1, 0, 0]))
    second = trained(1, certainty([5, 4, 3, 2, 1], [1, 1, 1, 0, 0], name="margin"))

    assert summarise(first, second).signals == ()


def test_the_summary_says_whether_abstaining_helps():
    good = [trained(seed, certainty([5, 4, 3, 2, 1], [1, 1, 1, 1, 0])) for seed in (0, 1)]

    text = summary(summarise(*good))

    assert "by sigma +20.0" in text


def test_trainings_without_energies_have_no_table_of_signals(two):
    assert "Leaving the least certain fifth unanswered" not in [table.title for table in seed_tables(two)]
