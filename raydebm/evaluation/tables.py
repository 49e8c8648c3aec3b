"""An evaluation as tables of text, the same ones for Markdown, HTML and the terminal."""

from raydebm.evaluation.entries import ALL_PASSES, OURS, SelectorRow
from raydebm.evaluation.results import Evaluation
from raydebm.evaluation.table_cells import Table, interval, number, percent, points, with_interval
from raydebm.evaluation.trust_tables import trust_tables


def selector_table(evaluation: Evaluation) -> Table:
    """One row per selector; the main result."""
    continuous = any(row.mean_violation.value is not None for row in evaluation.rows)
    headers = [
        "selector",
        "pass@1 %",
        "95 % interval",
        "gap closed %",
        "95 % interval",
        "ours minus it",
        "n",
        "unlabeled",
    ]
    if continuous:
        headers += ["mean violation", "violation gap closed %"]
    rows = []
    for row in evaluation.rows:
        cells = [
            row.name,
            percent(row.pass_at_1),
            interval(row.pass_at_1),
            percent(row.gap_closed),
            interval(row.gap_closed),
            "" if row.name == OURS else points(row.ours_minus),
            str(row.pass_at_1.n),
            str(row.num_unlabeled),
        ]
        if continuous:
            cells += [number(row.mean_violation), with_interval(row.violation_gap_closed)]
        rows.append(tuple(cells))
    return Table(
        title="Selectors",
        caption=(
            "Share of problems whose chosen candidate is correct. Gap closed: 0 is random choice, 100 the oracle. "
            "Ours minus it: difference in percentage points on the same problems; an interval without 0 is a "
            "difference that resampling the problems does not explain. Unlabeled: problems left out because the choice "
            "has no label, or because the selector has nothing there (a judge without scores, say)."
        ),
        headers=tuple(headers),
        rows=tuple(rows),
        emphasised=tuple(index for index, row in enumerate(evaluation.rows) if row.group == "ours"),
    )


def energy_table(evaluation: Evaluation) -> Table:
    return Table(
        title="Energies",
        caption=(
            "How each energy orders the candidates of a problem, averaged over problems with both correct and "
            "incorrect ones (n). Pair accuracy and tau-b: higher is better, chance is 50 % and 0. Energy gap: mean "
            "energy of incorrect minus that of correct candidates."
        ),
        headers=("energy", "pair accuracy %", "95 % interval", "Kendall tau-b", "energy gap", "n"),
        rows=tuple(
            (
                row.name,
                percent(row.pair_accuracy),
                interval(row.pair_accuracy),
                number(row.kendall_tau_b),
                number(row.energy_gap),
                str(row.pair_accuracy.n),
            )
            for row in evaluation.energies
        ),
        emphasised=tuple(index for index, row in enumerate(evaluation.energies) if row.name == "E"),
    )


def theory_table(evaluation: Evaluation) -> Table:
    theory = evaluation.theory
    rows: list[tuple[str, ...]] = []
    if theory is not None:
        rows = [
            ("adapters (K)", str(theory.num_adapters), ""),
            ("pairs", str(theory.num_pairs), ""),
            ("q, one adapter ranks a pair correctly, %", percent(theory.q), interval(theory.q)),
            (
                "rho, correlation of two adapters",
                number(theory.rho).split(" [")[0],
                interval(theory.rho, scale=1, digits=3),
            ),
            ("P(K, q, rho) predicted, %", "-" if theory.predicted is None else f"{100 * theory.predicted:.1f}", ""),
            ("its limit for K to infinity, %", "-" if theory.ceiling is None else f"{100 * theory.ceiling:.1f}", ""),
            ("measured for the ensemble mean, %", percent(theory.measured), interval(theory.measured)),
        ]
    return Table(
        title="Ensemble theory",
        caption=(
            "What correlated adapters can gain by averaging (Gaussian approximation of a majority vote), beside what "
            "was measured. The closer rho is to 1, the less a further adapter adds."
        ),
        headers=("quantity", "value", "95 % interval"),
        rows=tuple(rows),
    )


def loop_table(evaluation: Evaluation) -> Table:
    loop = evaluation.loop
    rows: list[tuple[str, ...]] = []
    if loop is not None:
        first = evaluation.row(OURS)
        last = evaluation.row(ALL_PASSES)
        rows = [
            ("answered, %", percent(loop.coverage), interval(loop.coverage)),
            ("correct among answered, %", percent(loop.answered), interval(loop.answered)),
            ("correct after the first pass, no abstention, %", *_both(first)),
            *([("correct after all passes, no abstention, %", *_both(last))] if last else []),
            ("a later pass was asked for, %", percent(loop.regenerated), interval(loop.regenerated)),
            ("problems whose last pass drew nothing", str(loop.num_failed_passes), ""),
            ("selections taken from a later pass", str(loop.num_adopted), ""),
            ("turned from incorrect to correct", str(loop.num_fixed), ""),
            ("turned from correct to incorrect", str(loop.num_broken), ""),
            ("abstained, selection incorrect or none", str(loop.num_abstained_incorrect), ""),
            ("abstained, selection correct", str(loop.num_abstained_correct), ""),
            ("answered without a label", str(loop.num_unlabeled), ""),
        ]
    policy = evaluation.policy
    return Table(
        title="Triage",
        caption=(
            f"Up to {policy['max_passes']} passes over {0 if loop is None else loop.num_problems} problems; "
            f"lambda {policy['lambda']:g}, theta_sigma {policy['theta_sigma']:g}, "
            f"theta_abstain {policy['theta_abstain']:g}, signal {policy['signal']}."
        ),
        headers=("what", "value", "95 % interval"),
        rows=tuple(rows),
    )


def _both(row: SelectorRow | None) -> tuple[str, str]:
    return ("-", "-") if row is None else (percent(row.pass_at_1), interval(row.pass_at_1))


def difficulty_table(evaluation: Evaluation) -> Table:
    names = list(dict.fromkeys(name for row in evaluation.difficulties for name in row.pass_at_1))
    return Table(
        title="By difficulty",
        caption="pass@1 in % with its 95 % interval, per group of problems.",
        headers=("group", "problems", *names),
        rows=tuple(
            (
                row.difficulty,
                str(row.num_problems),
                *(with_interval(row.pass_at_1[name]) for name in names),
            )
            for row in evaluation.difficulties
        ),
    )


def tables(evaluation: Evaluation) -> list[Table]:
    """All tables that have rows."""
    found = [
        selector_table(evaluation),
        loop_table(evaluation),
        *trust_tables(evaluation),
        energy_table(evaluation),
        theory_table(evaluation),
        difficulty_table(evaluation),
    ]
    return [table for table in found if table.rows]
