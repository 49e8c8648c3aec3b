"""Transfer between tasks as tables of text."""

from raydebm.evaluation.report.table_cells import Table, points, with_interval
from raydebm.evaluation.report.trust_tables import comparison_table
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.transfer import Transfer


def transfer_tables(transfer: Transfer) -> list[Table]:
    """The matrix, and the paired tests where some pool has two scorers."""
    tests = comparison_table(transfer.comparisons)
    return [transfer_table(transfer), *([tests] if tests.rows else [])]


def transfer_table(transfer: Transfer) -> Table:
    """pass@1 by mu alone with the lift over random choice, then by E; an asterisk marks the in-domain scorer."""

    def line(name: str, estimates: dict[str, Estimate]) -> tuple[str, ...]:
        shown = (with_interval(estimates[target]) if target in estimates else "-" for target in transfer.targets)
        return (name, *(cell for text in shown for cell in (text, "-")))

    rows: list[tuple[str, ...]] = []
    for source in transfer.sources:
        cells = []
        for target in transfer.targets:
            cell = transfer.cell(source, target)
            mark = "*" if cell is not None and cell.in_domain else ""
            if cell is None:
                cells += ["-", "-"]
                continue
            cells.append(f"{with_interval(cell.by_mu.pass_at_1)}{mark} ({points(cell.by_mu.lift)})")
            cells.append(with_interval(cell.by_energy.pass_at_1))
        rows.append((source, *cells))
    return Table(
        title=transfer.title,
        caption=(
            "pass@1 in % of the selections of each scorer (rows) on each pool (columns) by mu alone, in brackets the "
            "difference to random choice in points; then by E, with the constraints and lambda of the pool's own "
            "run, which owe nothing to the scorer. * the scorer trained on that task. 95 % intervals over problems "
            "that all rows cover."
            + "".join(f" Left out: {cell.source} on {cell.target}, {cell.reason}." for cell in transfer.refused)
        ),
        headers=("trained on", *(text for target in transfer.targets for text in (target, f"{target}, by E"))),
        rows=(*rows, line("self-consistency", transfer.vote), line("random", transfer.random)),
    )
