"""Tables about certainty: paired tests, signals, calibration."""

from raydebm.evaluation.certainty.reliability import Reliability
from raydebm.evaluation.certainty.uncertainty import FRACTIONS
from raydebm.evaluation.report.table_cells import (
    ECE_HEADERS,
    ECE_IN_WORDS,
    Table,
    ece_cells,
    interval,
    number,
    percent,
    points,
)
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.stats.significance import Comparison, p_text


def comparison_table(comparisons: tuple[Comparison, ...], *, what: str = "pass@1") -> Table:
    """Paired tests of selectors, in words and numbers."""
    right = what == "pass@1"
    more = ("only the first", "only the second") if right else ("sum of gains", "sum of losses")
    counted = (
        "expected number of problems that only one of the two gets right"
        if right
        else "sums over problems of what the first avoids more, and of what the second does"
    )
    return Table(
        title=f"Paired tests, {what}",
        caption=(
            f"Difference in {what} on the same problems, in percentage points with its 95 % bootstrap interval; "
            f"{counted}; two-sided p by the exact McNemar test "
            "where both are right or wrong on every problem, else by 10,000 sign-flip permutations; Holm: corrected "
            "for all comparisons of this table."
        ),
        headers=("comparison", "difference", *more, "n", "test", "p", "p, Holm"),
        rows=tuple(
            (
                f"{row.one} - {row.other}",
                points(row.difference),
                f"{row.only_one:.1f}",
                f"{row.only_other:.1f}",
                str(row.difference.n),
                row.test,
                p_text(row.p_value),
                p_text(row.p_holm),
            )
            for row in comparisons
        ),
    )


def _signal_table(evaluation: Evaluation) -> Table:
    trust = evaluation.trust
    rows = () if trust is None else trust.signals
    best = None if trust is None else trust.best
    what, error = ("1 - violation", "violation") if evaluation.is_continuous else ("accuracy", "error")
    return Table(
        title="Signals of certainty",
        caption=(
            "Each signal's worth for the selections by energy: AUROC for a correct one (50 % is chance), AURC (mean "
            f"{error} over all shares answered, lower is better), PRR (0: no better than chance, 1: perfect), and "
            f"{what} when the least certain fifth is not answered, with the gain over answering everything; a gain "
            "whose interval is above 0 is what abstaining by this signal brings. Set apart: the best one here, found "
            "in hindsight. " + (f"Learned certainty is fitted on {trust.fitted_on}." if trust else "")
        ),
        headers=("signal", "AUROC %", "95 % interval", "AURC", "PRR", f"{what} % at 80 %", "gain", "n"),
        rows=tuple(
            (
                row.name,
                percent(row.auroc),
                interval(row.auroc),
                number(row.aurc),
                number(row.prr, digits=2),
                f"{percent(row.accuracy_at_80)} {interval(row.accuracy_at_80)}",
                points(row.gain_at_80),
                str(row.auroc.n),
            )
            for row in rows
        ),
        emphasised=tuple(index for index, row in enumerate(rows) if best is not None and row.name == best.name),
    )


def _selective_table(evaluation: Evaluation) -> Table:
    rows = () if evaluation.trust is None else evaluation.trust.signals
    what = "1 - violation" if evaluation.is_continuous else "Accuracy"
    return Table(
        title="Selective prediction",
        caption=f"{what} in % (95 % interval) among the answered when this share, the least certain first, is not.",
        headers=("signal", *(f"{100 * fraction:.0f} % left out" for fraction in FRACTIONS)),
        rows=tuple(
            (row.name, *(f"{percent(estimate)} {interval(estimate)}" for estimate in row.selective)) for row in rows
        ),
        emphasised=tuple(index for index, row in enumerate(rows) if row.name == "sigma"),
    )


def _calibration_table(evaluation: Evaluation) -> Table:
    rows = () if evaluation.trust is None else evaluation.trust.reliabilities
    return Table(
        title="Calibration",
        caption=(
            f"Of which probability, and how far it can be taken at its word: {ECE_IN_WORDS}; Brier score (lower is "
            "better), and the Brier score of always saying the mean, which a useful probability beats."
        ),
        headers=("probability", "that", *ECE_HEADERS, "Brier", "Brier of the mean", "n"),
        rows=tuple((row.name, row.event, *reliability_cells(row)) for row in rows),
    )


def reliability_cells(row: Reliability) -> tuple[str, str, str, str, str]:
    """ECE, that of a perfect probability, Brier score, Brier score of always saying the mean, number of problems."""
    base = "-" if row.base_brier is None else f"{row.base_brier:.3f}"
    return *ece_cells(row.ece), number(row.brier), base, str(row.ece.n)


def trust_tables(evaluation: Evaluation) -> list[Table]:
    """Those that have rows."""
    tables = [
        comparison_table(evaluation.violation_comparisons, what="violation avoided"),
        comparison_table(evaluation.comparisons),
        _signal_table(evaluation),
        _selective_table(evaluation),
        _calibration_table(evaluation),
    ]
    return [table for table in tables if table.rows]
