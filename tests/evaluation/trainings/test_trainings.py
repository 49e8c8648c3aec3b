"""Trainings of a few problems, by seeds and by folds, every number by hand."""

import json
import math

import numpy as np
import pytest
from hand_made import cells

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.reliability import Stated
from raydebm.evaluation.results.entries import SelectorEntry
from raydebm.evaluation.trainings import Training, TrainingFacts, training_tables, write_summary
from raydebm.evaluation.trainings import summarise as summarised
from raydebm.run.directory import RunDir


def entry(name, correct, *, group="baseline", violation=None):
    values = np.array(correct, dtype=float)
    damage = np.full(len(values), math.nan) if violation is None else np.array(violation, dtype=float)
    return SelectorEntry(
        name=name, group=group, description="", correct=values, violation=damage, unlabeled=np.isnan(values)
    )


def stated(correct, confidence, *, violation=None):
    values = np.array(correct, dtype=float)
    damage = np.full(len(values), math.nan) if violation is None else np.array(violation, dtype=float)
    return Stated(confidence=np.array(confidence, dtype=float), correct=values, violation=damage)


def training(problem_ids, paper, *, seed=0, fold=None, extra=(), decision=None, entries=None):
    selectors = entries or [
        entry("random", [0.5] * len(paper)),
        entry("majority vote", [1.0] + [0.0] * (len(paper) - 1)),
        *extra,
        entry("energy (paper)", paper, group="paper"),
        entry("oracle", [1.0] * len(paper), group="bound"),
    ]
    facts = TrainingFacts(
        seed=seed, fold=fold, num_test=len(paper), num_train=7, num_validation=2, num_pairs=40, lambda_=1.0
    )
    return Training(facts=facts, problem_ids=tuple(problem_ids), entries=selectors, decision=decision)


def summarise(*trainings):
    return summarised(trainings, title="run", task="gsm8k", seed=0)


@pytest.fixture
def seeds():
    return summarise(training("pqr", [1, 1, 0]), training("pqr", [1, 0, 0], seed=1))


@pytest.fixture
def folds():
    return [training("pqr", [1, 1, 0], fold=0), training("st", [0, 0], fold=1)]


# ---- selectors -------------------------------------------------------------------------------------------------------


def test_over_seeds_a_value_is_the_mean_over_problems_of_their_means(seeds):
    row = seeds.row("energy (paper)")

    assert (row.pass_at_1.value, row.pass_at_1.n) == (pytest.approx((1 + 0.5 + 0) / 3), 3)
    assert row.by_seed == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert row.sd_of_seeds == pytest.approx(math.sqrt(2) / 6)
    assert seeds.row("majority vote").sd_of_seeds == 0


def test_over_folds_every_problem_counts_once(folds):
    row = summarise(*folds).row("energy (paper)")

    assert (row.pass_at_1.value, row.pass_at_1.n) == (pytest.approx(2 / 5), 5)
    assert row.by_fold == (pytest.approx(2 / 3), 0.0)
    assert row.sd_of_folds == pytest.approx(math.sqrt(2) / 3)


def test_with_folds_and_seeds_a_problem_counts_by_its_mean_over_the_seeds():
    summary = summarise(
        training("pq", [1, 1], fold=0), training("st", [0, 0], fold=1),
        training("pq", [1, 0], fold=0, seed=1), training("st", [0, 0], fold=1, seed=1),
    )  # fmt: skip
    row = summary.row("energy (paper)")

    assert (summary.seeds, summary.folds) == ((0, 1), (0, 1))
    assert row.pass_at_1.value == pytest.approx((1 + 0.5) / 4)
    assert (row.by_seed, row.by_fold) == ((0.5, 0.25), (0.75, 0.0))


def test_the_gap_closed_and_paper_minus_another_are_those_of_the_means(seeds):
    # random 0.5, oracle 1, paper 0.5: nothing of the gap.
    assert seeds.row("energy (paper)").gap_closed.value == pytest.approx(0)
    assert seeds.row("oracle").gap_closed.value == 1
    assert seeds.row("majority vote").paper_minus.value == pytest.approx((0 + 0.5 + 0) / 3)


def test_two_selectors_are_compared_within_the_trainings_that_have_both():
    """On q paper is right, then unlabeled, and the judge right, then wrong: the one pair that there is differs by 0."""
    summary = summarise(
        training("pqr", [1, 1, 0], extra=[entry("judge", [1, 1, 0])]),
        training("pqr", [1, math.nan, 0], seed=1, extra=[entry("judge", [1, 0, 0])]),
    )

    assert summary.row("judge").paper_minus.value == 0
    # Over the same pairs random is 0.5 and the oracle 1: paper gains 0.5, 0.5 and -0.5 of three times 0.5.
    assert summary.row("energy (paper)").gap_closed.value == pytest.approx(0.5 / 1.5)


def test_selectors_are_compared_over_the_problems_of_all_folds(folds):
    comparison = {(row.one, row.other): row for row in summarise(*folds).comparisons}["energy (paper)", "majority vote"]

    # The vote is right on p and s, paper on p and q.
    assert (comparison.only_one, comparison.only_other, comparison.difference.n) == (1, 1, 5)
    assert comparison.p_value == 1.0


def test_a_selector_that_one_seed_lacks_is_left_out():
    judge = [entry("judge", [1, 1, 1])]

    assert summarise(training("pqr", [1, 1, 0], extra=judge), training("pqr", [1, 0, 0], seed=1)).row("judge") is None


def test_a_selector_that_a_fold_lacks_counts_on_the_other():
    judge = [entry("judge", [1, 1, 0])]
    summary = summarise(training("pqr", [1, 1, 0], fold=0, extra=judge), training("st", [0, 0], fold=1))
    row = summary.row("judge")

    assert [each.name for each in summary.rows] == ["random", "majority vote", "judge", "energy (paper)", "oracle"]
    assert (row.pass_at_1.value, row.pass_at_1.n) == (pytest.approx(2 / 3), 3)
    assert row.by_fold == (pytest.approx(2 / 3), None)


def test_where_there_is_a_violation_score_it_decides():
    """Also where one problem has none."""

    def of(seed, paper):
        entries = [
            entry("random", [0, 0, 0], violation=[0.5, 0.5, math.nan]),
            entry("energy (paper)", [0, 0, 0], group="paper", violation=[*paper, math.nan]),
            entry("oracle", [0, 0, 0], group="bound", violation=[0.1, 0.1, math.nan]),
        ]
        return training("pqr", [0, 0, 0], seed=seed, entries=entries)

    summary = summarise(of(0, [0.1, 0.3]), of(1, [0.1, 0.1]))
    row = summary.row("energy (paper)")

    assert summary.is_continuous
    assert row.mean_violation.value == pytest.approx(0.15)
    assert row.by_seed == (pytest.approx(0.2), pytest.approx(0.1))
    assert row.gap_closed.value == pytest.approx(0.35 / 0.4)
    assert summary.row("random").paper_minus.value == pytest.approx(0.35)
    shown = {row[0]: row[1:-1] for row in training_tables(summary)[0].rows}
    assert [cell.partition(" ")[0] for cell in shown["random"]] == ["0.500", "0.0", "0.000", "0.0", "+0.350"]
    assert [row[1:] for row in training_tables(summary)[1].rows][:2] == [("0.500", "0.500"), ("0.200", "0.100")]


@pytest.mark.parametrize(
    ("trainings", "message"),
    [
        ([("pq", 0, None)], "two or more"),
        ([("pq", 1, None), ("pq", 1, None)], "two or more"),
        ([("pq", 0, 0)], "two or more"),
        ([("pq", 0, 0), ("st", 0, 1), ("pq", 1, 0)], "each once for every seed"),
        ([("pq", 0, 0), ("qs", 0, 1)], "problem 'q' is tested by folds 0 and 1"),
    ],
    ids=["one", "a seed twice", "one fold", "a seed without a fold", "a problem in two folds"],
)
def test_trainings_that_make_no_summary_are_refused(trainings, message):
    with pytest.raises(PoolError, match=message):
        summarise(*(training(ids, [1, 1], seed=seed, fold=fold) for ids, seed, fold in trainings))


# ---- certainty -------------------------------------------------------------------------------------------------------


def test_the_calibration_of_the_confidence_is_over_the_problems_of_all_folds():
    (row,) = summarise(
        training("pq", [1, 0], fold=0, decision=stated([1, 0], [0.9, 0.2])),
        training("st", [1, 0], fold=1, decision=stated([1, 0], [0.6, 0.4])),
    ).confidence

    assert (row.name, row.ece.n) == ("confidence", 4)
    assert row.ece.value == pytest.approx((0.1 + 0.2 + 0.4 + 0.4) / 4)


def test_with_several_seeds_each_has_its_calibration():
    trainings = [training("pq", [1, 0], seed=seed, decision=stated([1, 0], [0.9, 0.2])) for seed in (0, 1)]

    assert [row.name for row in summarise(*trainings).confidence] == ["confidence, seed 0", "confidence, seed 1"]


def test_the_confidence_in_graded_answers_is_about_their_violation():
    """No plan is without violations, and the confidence says by how much: off by 0, 0.1, 0 and 0.1."""
    (row,) = summarise(
        training("pq", [0, 0], fold=0, decision=stated([0, 0], [0.9, 0.8], violation=[0.1, 0.3])),
        training("st", [0, 0], fold=1, decision=stated([0, 0], [0.5, 0.4], violation=[0.5, 0.7])),
    ).confidence

    assert (row.event, row.ece.value) == ("1 - violation of the selection", pytest.approx(0.05))


def test_the_most_certain_of_graded_decisions_are_worth_one_minus_their_violation():
    """Of five, the four most certain violate 0.1, 0.2, 0.3 and 0.4."""
    (row,) = summarise(
        training("pq", [0, 0], fold=0, decision=stated([0, 0], [0.9, 0.8], violation=[0.1, 0.2])),
        training("stu", [0] * 3, fold=1, decision=stated([0] * 3, [0.7, 0.6, 0.1], violation=[0.3, 0.4, 1.0])),
    ).decision

    assert row.accuracy_at_80.value == pytest.approx(0.75)


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_confidence():
    def chosen(correct):
        return [entry("chosen profile", correct, group="decision")]

    certain = stated([1, 1, 0], [0.9, 0.8, 0.3]), stated([1, 0], [0.5, 0.1])
    return [
        training("pqr", [1, 1, 0], fold=0, decision=certain[0], extra=chosen([1, 1, 0])),
        training("st", [0, 0], fold=1, decision=certain[1], extra=chosen([1, 0])),
    ]


def test_the_tables_of_folds(with_confidence):
    selectors, by_fold, facts, tests, confidence, *others = training_tables(summarise(*with_confidence))

    # 3 of 5 are right, 2 of 3 and 1 of 2 by fold; half would be by chance, and the paper's rule has 2.
    assert (cells(selectors)[0], selectors.emphasised) == (
        ("chosen profile", "60.0", "11.8", "20.0", "-20.0", "5"), (0,),
    )  # fmt: skip
    assert cells(selectors)[3] == ("energy (paper)", "40.0", "47.1", "-20.0", "", "5")
    assert selectors.caption.startswith("5 problems, means over seeds 0, each tested once by a training on other folds")
    assert (by_fold.title, by_fold.headers) == ("Fold by fold", ("selector", "fold 0", "fold 1"))
    assert (cells(by_fold)[2], by_fold.emphasised) == (("chosen profile", "66.7", "50.0"), (2,))
    assert cells(facts)[1] == ("1", "0", "2", "7", "2", "40", "1", "-", "-", "-")
    assert tests.title == "Paired tests, pass@1"
    # Without the least certain, which is wrong, 3 of 4 are right.
    assert (cells(confidence), confidence.headers[2]) == (
        [("confidence", "1.000", "75.0", "+15.0", "5")], "80 % most certain, correct %",
    )  # fmt: skip
    assert [table.title for table in others] == ["Calibration of confidence", "What the scorer read"]


def test_the_tables_of_seeds_begin_with_the_papers_rule(seeds):
    selectors, by_seed, *_ = training_tables(seeds)

    assert cells(selectors)[0] == ("energy (paper)", "50.0", "23.6", "0.0", "", "3")
    assert (by_seed.title, by_seed.emphasised) == ("Training by training", (2,))
    assert cells(by_seed)[2] == ("energy (paper)", "66.7", "33.3")


def test_the_documents_hold_the_same_numbers(with_confidence, tmp_path):
    address = write_summary(summarise(*with_confidence), RunDir(str(tmp_path)), command="raydebm seeds --folds 2")
    folder = tmp_path / "folds"

    assert address == str(folder / "report.html")
    assert json.loads((folder / "folds.json").read_text())["num_problems"] == 5
    for text in ((folder / "report.html").read_text(), (folder / "report.md").read_text()):
        assert "5 problems of task gsm8k, each tested once in 2 folds, by one training on the other folds." in text
        assert "raydebm seeds --folds 2" in text
        assert "40.0" in text


def test_without_folds_the_documents_are_of_the_seeds(seeds, tmp_path):
    address = write_summary(seeds, RunDir(str(tmp_path)), command="raydebm seeds")

    assert address == str(tmp_path / "seeds" / "report.html")
    assert json.loads((tmp_path / "seeds" / "seeds.json").read_text())["seeds"] == [0, 1]
    text = (tmp_path / "seeds" / "report.md").read_text()
    assert "run: 2 seeds" in text
    assert "2 trainings on 3 test problems of task gsm8k." in text
