"""The decision by the posterior in words and tables: what was chosen, how good it is, what may be promised."""

from raydebm.evaluation.confidence import CHOSEN, DecisionStudy, Promise
from raydebm.evaluation.entries import OURS, VOTE
from raydebm.evaluation.results import Evaluation
from raydebm.evaluation.table_cells import Table, number, percent, with_interval


def recommendation(evaluation: Evaluation) -> str:
    """Which profile was chosen and why, how good it is, and what may be promised; empty without a posterior."""
    found = evaluation.decision
    if found is None:
        return ""
    return " ".join([_choice(found), _quality(evaluation, found), _promised(found)])


def _choice(found: DecisionStudy) -> str:
    replaced = [test for test in found.tests if test.replaced]
    on = f"on {found.num_labelled} labelled problems outside the test"
    if replaced:
        last = replaced[-1]
        return (
            f"Recommended profile: {found.profile}; {on} it won {last.wins} and lost {last.losses} of the problems on "
            f"which it differs from {last.incumbent} (p = {last.p_value:.2g})."
        )
    if not found.tests:
        return f"Profile: {found.profile}, as the recipe says."
    nearest = min(found.tests, key=lambda test: test.p_value)
    return (
        f"Recommended profile: {found.profile}; {on} no other profile is shown to be better (nearest: "
        f"{nearest.challenger}, {nearest.wins} won, {nearest.losses} lost, p = {nearest.p_value:.2g})."
    )


def _quality(evaluation: Evaluation, found: DecisionStudy) -> str:
    row, rivals = evaluation.row(CHOSEN), [(name, evaluation.row(name)) for name in (VOTE, OURS)]
    beside = ", ".join(f"{name} {percent(rival.pass_at_1)}" for name, rival in rivals if rival is not None)
    accuracy = "-" if row is None else with_interval(row.pass_at_1)
    return (
        f"On the test problems its selection is correct on {accuracy} % ({beside}); AUROC of its confidence "
        f"{number(found.confidence.auroc)}, expected calibration error {number(found.reliability.ece)}."
    )


def _promised(found: DecisionStudy) -> str:
    certified = [row for row in found.promises if row.certified]
    if not certified:
        more = [row.more_problems for row in found.promises if row.more_problems is not None]
        hint = f"; about {min(more)} more labelled problems would do for the largest" if more else ""
        return f"Nothing can be promised with these labelled problems{hint}."
    parts = [
        f"an error of at most {100 * row.max_error:g} % at coverage {100 * row.coverage:.0f} %" for row in certified
    ]
    return f"With confidence {certified[0].confidence:g} may be promised: {', or '.join(parts)}."


def promise_table(found: DecisionStudy) -> Table:
    """What may be promised."""
    return Table(
        title="What may be promised",
        caption=(
            "For each error: the lowest certified threshold of confidence (learn-then-test, exact binomial; "
            "Hoeffding-Bentkus for violation scores), the share of the labelled problems that it answers, and what "
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
        rows=tuple(_promise_cells(row) for row in found.promises),
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


def profile_table(found: DecisionStudy) -> Table:
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
            for test in found.tests
        ),
    )


def confidence_table(found: DecisionStudy) -> Table:
    """What the posterior's confidence is worth on the test problems."""
    row = found.confidence
    return Table(
        title="Confidence",
        caption="The posterior's probability that its selection is right, beside what happened on the test problems.",
        headers=("AUROC", "ECE", "Brier", "80 % most certain, correct %", "n"),
        rows=(
            (
                number(row.auroc),
                number(found.reliability.ece),
                number(found.reliability.brier),
                with_interval(row.accuracy_at_80),
                str(row.auroc.n),
            ),
        ),
    )


def decision_tables(evaluation: Evaluation) -> list[Table]:
    """Those that have rows."""
    found = evaluation.decision
    if found is None:
        return []
    return [table for table in (promise_table(found), confidence_table(found), profile_table(found)) if table.rows]
