"""Fields of structured answers in the evaluation, by hand: two problems of two fields each."""

import pytest

from raydebm.evaluation.certainty.confidence import field_study
from raydebm.evaluation.report.evaluation_tables import _field_tables
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    FieldBelief,
    Label,
    Outcome,
    Problem,
    ScoredCandidate,
    Verdict,
)


def outcome(name, confidences, *, selected=True):
    best = ScoredCandidate(
        candidate=Candidate(candidate_id=f"c{name}", task="t", problem_id=name, generator="ann", text="x"),
        report=ConstraintReport(candidate_id=f"c{name}", answer="x", vote_key="x", penalty=0.0),
        energies=None,
    )
    return Outcome(
        problem=Problem(task="t", problem_id=name, prompt="p"),
        decision=Decision.ACCEPT,
        best=best if selected else None,
        passes=(),
        pool=(best,),
        reason="",
        fields=tuple(
            FieldBelief(path=path, value=1, confidence=p, num_candidates=1) for path, p in confidences.items()
        ),
    )


def label(name, fields):
    return Label(candidate_id=f"c{name}", problem_id=name, verdict=Verdict.INCORRECT, fields=fields)


OUTCOMES = [outcome("b", {"items[0].price": 0.9, "total": 0.6}), outcome("a", {"items[7].price": 0.4, "total": 0.8})]
LABELS = {
    "ca": label("a", {"items[7].price": False, "total": True}),
    "cb": label("b", {"items[0].price": True, "total": False}),
}


def study(outcomes=OUTCOMES, labels=LABELS, *, tau_field=0.7):
    bootstrap = Bootstrap.of(2, num_bootstrap=50, seed=0)
    return field_study(outcomes, labels, problem_ids=["a", "b"], tau_field=tau_field, bootstrap=bootstrap)


def test_fields_are_counted_together_and_by_kind():
    every, *kinds = study().rows

    assert (every.kind, every.num, every.right.value) == ("all", 4, 0.5)
    assert [(row.kind, row.num) for row in kinds] == [("items[*].price", 2), ("total", 2)]
    assert kinds[0].confidence == pytest.approx(0.65)


def test_the_error_is_that_of_the_fields_that_are_not_flagged():
    """0.9 and 0.8 are at or above 0.7, and both are right; the wrong ones, 0.6 and 0.4, are flagged."""
    every = study().rows[0]

    assert (every.shown.value, every.error.value, every.auroc.value) == (0.5, 0.0, 1.0)


def test_a_field_at_the_threshold_is_not_flagged():
    assert study(tau_field=0.9).rows[0].shown.value == 0.25


def test_the_most_frequent_kinds_have_rows(monkeypatch):
    monkeypatch.setattr("raydebm.evaluation.certainty.confidence.MAX_KINDS", 2)
    more = [*OUTCOMES[:1], outcome("a", {"items[7].price": 0.4, "total": 0.8, "date": 0.5})]

    assert [row.kind for row in study(more).rows] == ["all", "items[*].price", "total"]


def test_the_brier_score_is_over_fields():
    assert study().reliability.brier.value == pytest.approx((0.01 + 0.36 + 0.16 + 0.04) / 4)


def test_a_field_that_neither_answer_nor_reference_has_is_rightly_missing():
    assert study(labels={"ca": label("a", {"total": False})}).rows[0].right.value == 0.5


@pytest.mark.parametrize(
    ("outcomes", "labels"),
    [(OUTCOMES, {}), ([outcome("a", {"total": 0.9}, selected=False)], LABELS), ([], LABELS)],
    ids=["no label", "no selection", "no loop"],
)
def test_without_labelled_fields_there_is_nothing(outcomes, labels):
    assert study(outcomes, labels) is None


def test_the_report_shows_all_fields_first():
    table, calibration = _field_tables(study())

    assert "all" in str(table.rows[0][0])
    assert len(calibration.rows) == 1
