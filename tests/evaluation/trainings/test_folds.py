"""Two folds of a few problems, every number by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from raydebm.errors import PoolError
from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.certainty.trust import Certainty
from raydebm.evaluation.results.entries import SelectorEntry
from raydebm.evaluation.trainings.folds import FoldFacts, FoldTraining, fold_pairs, join_folds, summarise_folds
from raydebm.evaluation.trainings.folds_report import document, fold_tables, summary, write_folds
from raydebm.evaluation.trainings.training_values import Training
from raydebm.run.directory import RunDir


def entry(name, correct, *, group="baseline", violation=None):
    values = np.array(correct, dtype=float)
    damage = np.full(len(values), math.nan) if violation is None else np.array(violation, dtype=float)
    return SelectorEntry(
        name=name, group=group, description="", correct=values, violation=damage, unlabeled=np.isnan(values)
    )


def certainty(correct, **signals):
    values = np.array(correct, dtype=float)
    return Certainty(
        signals=tuple(Signal(name, "", np.array(column, dtype=float)) for name, column in signals.items()),
        correct=values,
        violation=np.full(len(values), math.nan),
        reliabilities=(),
    )


def part(fold, problem_ids, ours, *, seed=0, extra=(), about=None):
    entries = [
        entry("random", [0.5] * len(ours)),
        entry("majority vote", [1.0] + [0.0] * (len(ours) - 1)),
        *extra,
        entry("ours", ours, group="ours"),
        entry("oracle", [1.0] * len(ours), group="bound"),
    ]
    facts = FoldFacts(
        fold=fold, seed=seed, num_test=len(ours), num_train=7, num_validation=2, num_pairs=40, lambda_=1.0
    )
    training = Training(seed=seed, problem_ids=tuple(problem_ids), entries=entries, certainty=about)
    return FoldTraining(facts=facts, training=training)


def summarise(*parts):
    return summarise_folds(parts, title="run", task="gsm8k", num_bootstrap=200)


@pytest.fixture
def two():
    return [part(0, "pqr", [1, 1, 0]), part(1, "st", [0, 0])]


def test_every_problem_counts_once_over_all_folds(two):
    row = summarise(*two).row("ours").overall

    assert row.pass_at_1.value == pytest.approx(2 / 5)
    assert row.pass_at_1.n == 5


def test_each_fold_has_its_own_value_and_their_spread_is_the_sample_deviation(two):
    row = summarise(*two).row("ours")

    assert row.by_fold == (pytest.approx(2 / 3), 0.0)
    assert row.sd == pytest.approx(math.sqrt(2) / 3)


def test_selectors_are_compared_over_the_problems_of_all_folds(two):
    comparison = {(row.one, row.other): row for row in summarise(*two).comparisons}["ours", "majority vote"]

    # The vote is right on p and s, ours on p and q.
    assert (comparison.only_one, comparison.only_other, comparison.difference.n) == (1, 1, 5)
    assert comparison.p_value == 1.0


def test_the_order_of_the_folds_changes_nothing(two):
    assert summarise(*two).to_json() == summarise(*reversed(two)).to_json()


def test_a_selector_that_a_fold_lacks_counts_on_the_other_and_is_named():
    fold_summary = summarise(part(0, "pqr", [1, 1, 0], extra=[entry("judge", [1, 1, 0])]), part(1, "st", [0, 0]))

    row = fold_summary.row("judge")
    assert (row.overall.pass_at_1.value, row.overall.pass_at_1.n) == (pytest.approx(2 / 3), 3)
    assert row.by_fold == (pytest.approx(2 / 3), None)
    assert fold_summary.absent == {"judge": (1,)}
    assert "judge in 1" in fold_tables(fold_summary)[0].caption


def test_a_selector_of_a_later_fold_stands_where_it_stood_there():
    joined = join_folds([part(0, "pq", [1, 1]), part(1, "st", [0, 0], extra=[entry("judge", [1, 1])])])

    assert [selector.name for selector in joined.entries] == ["random", "majority vote", "judge", "ours", "oracle"]
    assert np.isnan(joined.entries[2].correct).tolist() == [True, True, False, False]


def test_a_problem_in_two_folds_is_refused():
    with pytest.raises(PoolError, match="problem 'q' is tested by fold 0 and by fold 1"):
        summarise(part(0, "pq", [1, 1]), part(1, "qs", [0, 0]))


@pytest.mark.parametrize(
    "parts",
    [
        [part(0, "pq", [1, 1])],
        [part(0, "pq", [1, 1]), part(1, "st", [0, 0]), part(0, "pq", [1, 1], seed=1)],
        [part(0, "pq", [1, 1]), part(0, "pq", [1, 1])],
    ],
    ids=["one fold", "a seed without one", "one twice"],
)
def test_every_seed_needs_every_fold_once(parts):
    with pytest.raises(PoolError, match="two or more folds, each once for every seed"):
        summarise(*parts)


def test_with_several_seeds_a_problem_counts_by_its_mean_over_them():
    fold_summary = summarise(
        part(0, "pq", [1, 1]), part(1, "st", [0, 0]), part(0, "pq", [1, 0], seed=1), part(1, "st", [0, 0], seed=1)
    )

    row = fold_summary.row("ours")
    assert fold_summary.seeds == (0, 1)
    assert row.overall.pass_at_1.value == pytest.approx((1 + 0.5) / 4)
    assert row.overall.by_seed == (0.5, 0.25)
    assert row.by_fold == (0.75, 0.0)


def test_folds_of_two_seeds_are_not_joined():
    with pytest.raises(PoolError, match=r"of one seed, got seeds \[0, 1\]"):
        join_folds([part(0, "pq", [1, 1]), part(1, "st", [0, 0], seed=1)])


# ---- certainty -------------------------------------------------------------------------------------------------------


def test_a_signal_is_ranked_over_all_problems_as_it_is():
    """Within each fold the signal is perfect; the second fold's scale puts its wrong selection above all others."""
    fold_summary = summarise(
        part(0, "pq", [1, 0], about=certainty([1, 0], margin=[2, 1])),
        part(1, "st", [1, 0], about=certainty([1, 0], margin=[20, 10])),
    )

    (row,) = fold_summary.signals
    # Right: 2 and 20; wrong: 1 and 10. Of four pairs only (2, 10) is in the wrong order.
    assert row.overall.auroc.value == pytest.approx(3 / 4)
    assert row.auroc_by_fold == (1.0, 1.0)


def test_a_signal_that_is_the_same_within_a_fold_still_tells_folds_apart():
    fold_summary = summarise(
        part(0, "pq", [1, 1], about=certainty([1, 1], penalty=[0, 0])),
        part(1, "st", [1, 0], about=certainty([1, 0], penalty=[-1, -1])),
    )

    (row,) = fold_summary.signals
    # Right: 0, 0, -1; wrong: -1. Two pairs in order, one tie.
    assert row.overall.auroc.value == pytest.approx(2.5 / 3)
    assert row.auroc_by_fold == (None, 0.5)


def test_a_signal_that_is_the_same_for_all_problems_is_left_out():
    parts = [part(fold, ids, [1, 0], about=certainty([1, 0], penalty=[0, 0])) for fold, ids in ((0, "pq"), (1, "st"))]

    assert summarise(*parts).signals == ()


def test_the_least_certain_fifth_is_one_of_all_problems():
    fold_summary = summarise(
        part(0, "pqr", [1, 1, 1], about=certainty([1, 1, 1], margin=[5, 4, 3])),
        part(1, "st", [1, 0], about=certainty([1, 0], margin=[2, 1])),
    )

    (row,) = fold_summary.signals
    assert row.overall.right_at_80.value == 1.0
    assert row.overall.gain_at_80.value == pytest.approx(1 / 5)
    assert row.auroc_by_fold == (None, 1.0)


def test_a_signal_that_a_fold_lacks_says_nothing_there():
    fold_summary = summarise(
        part(0, "pq", [1, 0], about=certainty([1, 0], margin=[2, 1])),
        part(1, "st", [1, 0], about=certainty([1, 0], share=[2, 1])),
    )

    assert {row.overall.name: row.overall.auroc.n for row in fold_summary.signals} == {"margin": 2, "share": 2}
    assert fold_summary.absent == {"margin": (1,), "share": (0,)}


def test_folds_without_energies_have_no_signals(two):
    assert summarise(*two).signals == ()
    assert "Signals of certainty" not in [table.title for table in fold_tables(summarise(*two))]


@pytest.mark.parametrize("name", ["confidence", "learned certainty"])
def test_the_calibration_of_a_confidence_is_over_the_problems_of_all_folds(name):
    fold_summary = summarise(
        part(0, "pq", [1, 0], about=certainty([1, 0], **{name: [0.9, 0.2]})),
        part(1, "st", [1, 0], about=certainty([1, 0], **{name: [0.6, 0.4]})),
    )

    (row,) = fold_summary.confidence
    assert (row.name, row.ece.n) == (name, 4)
    assert row.ece.value == pytest.approx((0.1 + 0.2 + 0.4 + 0.4) / 4)


def test_a_signal_has_an_auroc_but_no_interval_with_few_wrong_selections():
    """Over both folds the correct ones have 2 and 4, the others 1 and 3: three of four pairs are in order."""
    (row,) = summarise(
        part(0, "pq", [1, 0], about=certainty([1, 0], margin=[2, 1])),
        part(1, "st", [1, 0], about=certainty([1, 0], margin=[4, 3])),
    ).signals

    assert (row.overall.auroc.value, row.overall.auroc.low) == (0.75, None)


def graded(correct, violation, **signals):
    return replace(certainty(correct, **signals), violation=np.array(violation, dtype=float))


def test_a_confidence_in_graded_answers_is_about_one_minus_the_violation():
    """No plan is without violations, and the confidence says by how much: off by 0, 0.1, 0 and 0.1."""
    about = [
        part(0, "pq", [0, 0], about=graded([0, 0], [0.1, 0.3], confidence=[0.9, 0.8])),
        part(1, "st", [0, 0], about=graded([0, 0], [0.5, 0.7], confidence=[0.5, 0.4])),
    ]

    (row,) = summarise(*about).confidence
    assert row.event == "1 - violation of the selection"
    assert row.ece.value == pytest.approx(0.05)


def test_learned_certainty_in_graded_answers_is_about_what_it_was_fitted_on():
    name = "learned certainty"
    (row,) = summarise(
        part(0, "pq", [1, 0], about=graded([1, 0], [0.1, 0.3], **{name: [0.9, 0.8]})),
        part(1, "st", [0, 0], about=graded([0, 0], [0.5, 0.7], **{name: [0.5, 0.4]})),
    ).confidence

    assert row.event == "the selection is correct"
    assert row.ece.value == pytest.approx((0.1 + 0.8 + 0.5 + 0.4) / 4)


def test_the_most_certain_of_graded_decisions_are_worth_one_minus_their_violation():
    """Of five, the four most certain violate 0.1, 0.2, 0.3 and 0.4."""
    parts = [
        part(0, "pq", [0, 0], about=graded([0, 0], [0.1, 0.2], confidence=[0.9, 0.8])),
        part(1, "stu", [0, 0, 0], about=graded([0, 0, 0], [0.3, 0.4, 1.0], confidence=[0.7, 0.6, 0.1])),
    ]
    decided = [replace(part, training=replace(part.training, decision=part.training.certainty)) for part in parts]

    (row,) = summarise(*decided).decision
    assert row.accuracy_at_80.value == pytest.approx(0.75)


def test_a_signal_that_is_no_probability_has_no_calibration():
    parts = [part(fold, ids, [1, 0], about=certainty([1, 0], margin=[2, 1])) for fold, ids in ((0, "pq"), (1, "st"))]

    assert summarise(*parts).confidence == ()


def test_with_several_seeds_each_has_its_calibration():
    parts = [
        part(fold, ids, [1, 0], seed=seed, about=certainty([1, 0], confidence=[0.9, 0.2]))
        for seed in (0, 1)
        for fold, ids in ((0, "pq"), (1, "st"))
    ]

    assert [row.name for row in summarise(*parts).confidence] == ["confidence, seed 0", "confidence, seed 1"]


# ---- pairs of selectors ----------------------------------------------------------------------------------------------


def test_a_further_rule_of_ours_is_compared_with_the_vote_the_best_author_and_the_paper():
    groups = {"majority vote": "baseline", "best generator": "generator", "posterior": "ours", "ours": "ours"}

    assert fold_pairs(groups) == [
        ("ours", "majority vote"),
        ("ours", "best generator"),
        ("posterior", "majority vote"),
        ("posterior", "best generator"),
        ("posterior", "ours"),
    ]


def test_the_decision_is_compared_with_ours_once():
    groups = {"ours": "ours", "posterior": "decision"}

    assert fold_pairs(groups) == [("ours", "posterior")]


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_confidence():
    return [
        part(0, "pqr", [1, 1, 0], about=certainty([1, 1, 0], confidence=[0.9, 0.8, 0.3])),
        part(1, "st", [0, 0], about=certainty([0, 0], confidence=[0.5, 0.1])),
    ]


def test_every_row_of_every_table_is_as_long_as_its_headers(with_confidence):
    tables = fold_tables(summarise(*with_confidence))

    assert [table.title for table in tables] == [
        "Selectors",
        "Fold by fold",
        "What each fold was tested and trained on",
        "Signals of certainty",
        "Paired tests, pass@1",
        "Calibration of confidence",
        "Reliability of confidence",
        "What the scorer read",
    ]
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.headers)}


def test_the_documents_hold_the_same_numbers(with_confidence, tmp_path):
    fold_summary = summarise(*with_confidence)
    address = write_folds(fold_summary, with_confidence, RunDir(str(tmp_path)), command="raydebm seeds --folds 2")

    folder = tmp_path / "folds"
    assert address == str(folder / "report.html")
    assert json.loads((folder / "folds.json").read_text())["num_problems"] == 5
    for text in ((folder / "report.html").read_text(), (folder / "report.md").read_text()):
        assert "5 problems of task gsm8k, each tested once in 2 folds, by one training on the other folds." in text
        assert "raydebm seeds --folds 2" in text
        assert "40.0" in text


def test_the_summary_says_what_abstaining_by_confidence_brings_and_how_far_it_is_off(with_confidence):
    text = summary(summarise(*with_confidence))

    # The least certain of five is wrong, two of five are right: 2/4 - 2/5.
    assert "accuracy changes by confidence +10.0" in text
    assert "hindsight" not in text
    # Bins of one: 0.9, 0.8 (right), 0.5, 0.3, 0.1 (wrong).
    # Bins of one: a perfect one is off by 2 p (1 - p) on average,
    # 0.18, 0.32, 0.5, 0.42 and 0.18: 0.32.
    assert "ECE of confidence: 0.240 (a perfectly calibrated one: 0.3" in text


def test_the_tables_by_problem_have_each_problem_once_per_selector(with_confidence, tmp_path):
    write_folds(summarise(*with_confidence), with_confidence, RunDir(str(tmp_path)), command="c")

    rows = pq.read_table(tmp_path / "folds" / "selectors.parquet").to_pylist()
    ours = {row["problem_id"]: (row["fold"], row["correct"]) for row in rows if row["selector"] == "ours"}
    assert ours == {"p": (0, 1.0), "q": (0, 1.0), "r": (0, 0.0), "s": (1, 0.0), "t": (1, 0.0)}
    assert len(rows) == 4 * 5

    signals = pq.read_table(tmp_path / "folds" / "signals.parquet").to_pylist()
    assert [(row["problem_id"], row["value"]) for row in signals] == list(
        zip("pqrst", [0.9, 0.8, 0.3, 0.5, 0.1], strict=True)
    )


def test_where_there_is_a_violation_score_it_decides():
    def of(fold, ids, violation):
        fold_training = part(fold, ids, [0, 0])
        entries = [replace(e, violation=np.array([0.5, 0.5])) for e in fold_training.training.entries]
        entries[2] = replace(entries[2], violation=np.array(violation))
        return replace(fold_training, training=replace(fold_training.training, entries=entries))

    fold_summary = summarise(of(0, "pq", [0.1, 0.3]), of(1, "st", [0.1, 0.1]))

    assert fold_summary.is_continuous
    assert fold_summary.row("ours").by_fold == (pytest.approx(0.2), pytest.approx(0.1))
    assert "mean violation of each fold" in document(fold_summary, command="c").markdown()
    assert "Mean violation (lower is better): mu + lambda E 0.150" in summary(fold_summary)
