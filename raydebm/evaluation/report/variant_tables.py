"""Variants of a scorer as tables of text."""

from raydebm.evaluation.report.table_cells import Table, number, percent, with_interval
from raydebm.evaluation.report.trust_tables import comparison_table
from raydebm.evaluation.studies.variants import VariantRow, VariantStudy


def variant_tables(study: VariantStudy) -> list[Table]:
    """The scorers side by side, and the paired tests against the recipe's own."""
    tests = comparison_table(study.comparisons)
    return [_scorer_table(study), *([tests] if tests.rows else [])]


def _scorer_table(study: VariantStudy) -> Table:
    continuous = any(row.violation.value is not None for row in study.rows)
    return Table(
        title=study.title,
        caption=(
            "The recipe's own scorer first. pass@1 in % by E and by mu alone, each on the candidates of the generators "
            "that the scorer was trained on, with 95 % intervals. Parameters: trained ones, heads included. "
            "Sigma-AUROC: of the selections by mu alone (50 % is chance). Of sigma squared by constraints: the share "
            "of the members' variance that moves with E_constraint, over candidates that it tells apart; a single "
            "adapter has no sigma."
        ),
        headers=(
            "scorer", "generators", "most candidates", "backbone", "adapters", "parameters", "pass@1 % by E", "by mu",
            *(("mean violation by E", "by mu") if continuous else ()),
            "sigma-AUROC %", "of sigma squared by constraints %",
        ),
        rows=tuple(_cells(row, continuous=continuous) for row in study.rows),
    )  # fmt: skip


def _cells(row: VariantRow, *, continuous: bool) -> tuple[str, ...]:
    return (
        row.name,
        ", ".join(row.generators),
        str(row.most),
        row.backbone,
        str(row.num_adapters),
        f"{row.num_parameters:,}",
        with_interval(row.by_energy),
        with_interval(row.by_mu),
        *((number(row.violation), number(row.mu_violation)) if continuous else ()),
        percent(row.sigma_auroc),
        with_interval(row.constraint_share),
    )
