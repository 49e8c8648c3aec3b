"""The rule that decided in words; the posterior in tables: what was chosen, how good it is, what may be promised."""

from collections.abc import Mapping
from typing import Any

from raydebm.evaluation.certainty.confidence import DecisionStudy, Promise
from raydebm.evaluation.report.table_cells import (
    ECE_HEADERS,
    ECE_IN_WORDS,
    Table,
    ece_cells,
    number,
    percent,
    with_interval,
)
from raydebm.evaluation.results.evaluation import Evaluation


def rule_in_words(policy: Mapping[str, Any]) -> str:
    """The rule by which the loop decided, with the thresholds that it used and no others.

    Args:
        policy: ``Evaluation.policy``.
    """
    if policy["rule"] == "posterior":
        return (
            f"the posterior's rule, profile {policy['profile']}, tau_accept {policy['tau_accept']:g}, "
            f"tau_answer {policy['tau_answer']:g}"
        )
    return (
        f"the paper's rule, lambda {policy['lambda']:g}, theta_sigma {policy['theta_sigma']:g}, "
        f"theta_abstain {policy['theta_abstain']:g}, signal {policy['signal']}"
    )


def _promise_table(study: DecisionStudy) -> Table:
    """What may be promised."""
    return Table(
        title="What may be promised",
        caption=(
            "For each error: the lowest certified threshold of confidence (learn-then-test, exact binomial; "
            "betting for violation scores), the share of the labelled problems that it answers, and what "
            "happens on the test problems at this threshold."
        ),
        headers=(
            "error at most",
            "threshold",
            "coverage %",
            "upper bound %",
            "problems",
            "test coverage %",
            "test error %",
        ),
        rows=tuple(_promise_cells(row) for row in study.promises),
    )


def _promise_cells(row: Promise) -> tuple[str, ...]:
    share = f"{100 * row.max_error:g} %"
    if not row.certified or row.tau is None or row.upper_bound is None:
        more = "" if row.more_problems is None else f", {row.more_problems} more problems would probably do"
        return (share, f"not certified{more}", "-", "-", str(row.problems), "-", "-")
    return (
        share,
        f"{row.tau:.3f}",
        f"{100 * row.coverage:.1f}",
        f"{100 * row.upper_bound:.1f}",
        str(row.problems),
        percent(row.test_coverage),
        with_interval(row.test_error),
    )


def _profile_table(study: DecisionStudy) -> Table:
    """The tests by which the profile was chosen."""
    return Table(
        title="Choice of the profile",
        caption=(
            "Exact paired tests on labelled problems outside the test, each decided by a posterior that did not see "
            "it. A challenger replaces the incumbent only where p is small enough (docs/evaluation.md)."
        ),
        headers=("challenger", "incumbent", "won", "lost", "p", "replaced"),
        rows=tuple(
            (
                test.challenger,
                test.incumbent,
                str(test.wins),
                str(test.losses),
                f"{test.p_value:.3g}",
                "yes" if test.replaced else "no",
            )
            for test in study.tests
        ),
    )


def _confidence_table(study: DecisionStudy) -> Table:
    """What the posterior's confidence is worth on the test problems."""
    row = study.confidence
    what = "1 - violation" if study.reliability.event.startswith("1 - violation") else "correct"
    return Table(
        title="Confidence",
        caption=f"The posterior's confidence, of {study.reliability.event!r}, and what happened on the test problems. "
        f"ECE: {ECE_IN_WORDS}.",
        headers=("AUROC", *ECE_HEADERS, "Brier", f"80 % most certain, {what} %", "n"),
        rows=(
            (
                number(row.auroc),
                *ece_cells(study.reliability.ece),
                number(study.reliability.brier),
                with_interval(row.accuracy_at_80),
                str(row.auroc.n),
            ),
        ),
    )


def decision_tables(evaluation: Evaluation) -> list[Table]:
    """Those that have rows."""
    study = evaluation.decision
    if study is None:
        return []
    return [table for table in (_promise_table(study), _confidence_table(study), _profile_table(study)) if table.rows]
