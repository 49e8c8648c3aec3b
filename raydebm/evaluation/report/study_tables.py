"""Tables of the studies as text, including transfer and variants."""

from collections.abc import Callable

from raydebm.evaluation.report.document import (
    Cell,
    Table,
    decimal,
    facts_table,
    number,
    percent,
    points,
    table_of,
    with_interval,
)
from raydebm.evaluation.report.evaluation_tables import comparison_table
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.generators import GeneratorRow
from raydebm.evaluation.studies.scorers import Transfer, VariantRow, VariantStudy
from raydebm.evaluation.studies.sizes import EnsembleSize, PoolSize
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.two_terms import Decomposition, VariancePartition


def study_tables(results: StudyResults) -> list[Table]:
    tables = [
        _overview_table(results),
        _generator_table(results),
        _ensemble_table(results),
        _pool_size_table(results),
        *([] if results.decomposition is None else [_terms_table(results.decomposition)]),
        *([] if results.variance is None else [_variance_table(results.variance)]),
        _judge_table(results),
        _rated_table(results),
    ]
    return [table for table in tables if table.rows]


def _overview_table(results: StudyResults) -> Table:
    overview = results.overview
    return facts_table(
        "The pool",
        "The evaluated pool. A selector matters only on problems with correct and incorrect candidates.",
        [
            ("candidates per problem", overview.size),
            ("candidates correct, %", overview.accuracy),
            *([("mean violation of candidates", number(overview.mean_violation))] if overview.mean_violation.n else []),
            ("problems with a correct candidate, %", overview.solvable),
            ("problems with correct and incorrect ones, %", overview.mixed),
            *((f"candidates that break the constraint {name}", count) for name, count in overview.constraints.items()),
        ],
    )


def _generator_table(results: StudyResults) -> Table:
    violation: dict[str, Callable[[GeneratorRow], Cell]] = {"mean violation": lambda row: number(row.mean_violation)}
    return table_of(
        "Generators",
        "Accuracy: mean over problems of the share correct. Failed: requests without an answer; they count in no "
        "other column. Picked: share of the selections that this generator wrote. Standard deviation over generators "
        f"of the mean mu of correct candidates: {number(results.energy_spread, digits=2)}.",
        results.generators,
        {
            "generator": lambda row: row.name,
            "candidates": lambda row: row.num_candidates,
            "failed": lambda row: row.num_failed,
            "correct %": lambda row: row.accuracy,
            **(violation if results.evaluation.is_continuous else {}),
            "unparsed": lambda row: row.num_unparsed,
            "characters": lambda row: decimal(row.characters, 0),
            "tokens": lambda row: decimal(row.completion_tokens, 0),
            "cut off %": lambda row: decimal(row.truncated_frac, 1, scale=100),
            "picked %": lambda row: row.picked,
            "mu of correct": lambda row: number(row.mu_correct, digits=2),
        },
    )


def _ensemble_table(results: StudyResults) -> Table:
    violations: dict[str, Callable[[EnsembleSize], Cell]] = {
        "mean violation by E": lambda row: number(row.mean_violation),
        "mean violation by mu": lambda row: number(row.mu_mean_violation),
    }

    def extremes(row: EnsembleSize) -> str:
        return f"{decimal(row.worst, 1, scale=100)} - {decimal(row.best, 1, scale=100)}"

    return table_of(
        "Ensemble size (K)",
        "Means over all subsets of K adapters (a random 40 where there are more), selection by E (mu of the subset "
        "plus the constraint term) and by mu alone; worst and best: single subsets, by E. P(K, q, rho): "
        "prediction of the theory for pairs.",
        results.ensemble_sizes,
        {
            "K": lambda row: row.num_adapters,
            "subsets": lambda row: f"{row.num_subsets} of {row.num_possible}",
            "pass@1 % by E": lambda row: row.pass_at_1,
            "pass@1 % by mu": lambda row: row.mu_pass_at_1,
            "worst - best %": extremes,
            "pairs ranked correctly %": lambda row: row.pair_accuracy,
            "P(K, q, rho) %": lambda row: decimal(row.predicted_pair_accuracy, 1, scale=100),
            "sigma-AUROC % by E": lambda row: row.sigma_auroc,
            "sigma-AUROC % by mu": lambda row: row.mu_sigma_auroc,
            **(violations if results.evaluation.is_continuous else {}),
        },
    )


def _pool_size_table(results: StudyResults) -> Table:
    names = list(results.pool_sizes[-1].pass_at_1) if results.pool_sizes else []
    violated = list(results.pool_sizes[-1].violation) if results.pool_sizes else []

    def share(name: str) -> Callable[[PoolSize], Cell]:
        return lambda row: row.pass_at_1[name]

    def violation(name: str) -> Callable[[PoolSize], Cell]:
        return lambda row: number(row.violation[name])

    return table_of(
        "Candidates per problem (N)",
        "Expected pass@1 in % with n random candidates of each pool, computed exactly. "
        "Smaller pools are used whole." + (" Last columns: mean violation, lower is better." if violated else ""),
        results.pool_sizes,
        {
            "n": lambda row: row.n,
            **{name: share(name) for name in names},
            **{f"violation, {name}": violation(name) for name in violated},
        },
    )


def _terms_table(terms: Decomposition) -> Table:
    return facts_table(
        "The two terms",
        "Agreement of the selections by mu, by E_constraint and by their sum E, in % of the problems on which both "
        "terms select a candidate.",
        (
            ("problems whose candidates differ in E_constraint", terms.num_constrained),
            ("mu selects a candidate of lowest E_constraint", terms.agree),
            ("mu selects the only candidate of lowest E_constraint", terms.agree_alone),
            ("E selects another candidate than either term", terms.neither),
        ),
    )


def _variance_table(partition: VariancePartition) -> Table:
    return facts_table(
        "Partitioned variance",
        "Parts of sigma squared, over problems whose candidates differ in E_constraint. The analytic term itself adds "
        "nothing (first row, rounding only). Within each problem, the energy of each adapter is split into a part "
        "proportional to E_constraint and a rest. A share of the first part above 0 means that sigma contains "
        "uncertainty about constraints, because the adapters learnt from labels that depend on them. Shares in % of "
        "sigma squared; they add up to 100.",
        (
            ("largest difference of sigma with and without the analytic term", f"{partition.identity_error:.1e}"),
            ("problems / candidates", f"{partition.num_problems} / {partition.num_candidates:,}"),
            ("mean sigma squared", number(partition.variance, digits=4)),
            ("variance of the rest", partition.quality),
            ("variance of the part proportional to E_constraint", partition.constraint),
            ("twice their covariance", partition.covariance),
            ("energy per unit of E_constraint, by adapter", ", ".join(f"{slope:.2f}" for slope in partition.slopes)),
        ),
    )


def _judge_table(results: StudyResults) -> Table:
    return table_of(
        "Agreement of scorers",
        "Spearman's rank correlation over all candidates that both have scored, with signs such that higher scores are "
        "better; intervals resample problems (n).",
        results.judges,
        {
            "one": lambda row: row.one,
            "other": lambda row: row.other,
            "Spearman": lambda row: number(row.spearman, digits=2),
            "candidates": lambda row: row.num_candidates,
            "n": lambda row: row.spearman.n,
        },
    )


def _rated_table(results: StudyResults) -> Table:
    return table_of(
        "Other scorers' ratings of the selections",
        "Mean score by each other scorer (a judge's rating, a model's reward) of the selections by E, of the best "
        "candidates by their labels (lowest violation, else correct; averaged over ties) and of all candidates; "
        "the difference is paired over problems.",
        results.rated,
        {
            "scorer": lambda row: row.name,
            PAPER_RULE: lambda row: number(row.paper, digits=2),
            "oracle": lambda row: number(row.oracle, digits=2),
            "random": lambda row: number(row.random, digits=2),
            f"{PAPER_RULE} minus oracle": lambda row: number(row.paper_minus_oracle, digits=2, signed=True),
            "n": lambda row: row.paper_minus_oracle.n,
        },
    )


# ---- several scorers -------------------------------------------------------------------------------------------------


def transfer_tables(transfer: Transfer) -> list[Table]:
    """The matrix, and the paired tests if some pool has two scorers."""
    tests = comparison_table(transfer.comparisons)
    return [transfer_table(transfer), *([tests] if tests.rows else [])]


def transfer_table(transfer: Transfer) -> Table:
    """pass@1 by mu with the lift over random choice, then by E. An asterisk marks the in-domain scorer."""

    def scored(source: str, target: str) -> tuple[str, str]:
        cell = transfer.cell(source, target)
        if cell is None:
            return "-", "-"
        mark = "*" if cell.in_domain else ""
        by_mu = f"{with_interval(cell.by_mu.pass_at_1)}{mark} ({points(cell.by_mu.lift)})"
        return by_mu, with_interval(cell.by_energy.pass_at_1)

    def by_chance(estimates: dict[str, Estimate], target: str) -> tuple[str, str]:
        return (with_interval(estimates[target]) if target in estimates else "-"), "-"

    lines = [
        *((source, [scored(source, target) for target in transfer.targets]) for source in transfer.sources),
        ("self-consistency", [by_chance(transfer.vote, target) for target in transfer.targets]),
        ("random", [by_chance(transfer.random, target) for target in transfer.targets]),
    ]
    return Table(
        title=transfer.title,
        caption="pass@1 in % of the selections of each scorer (rows) on each pool (columns) by mu alone, in brackets "
        "the difference from random choice in points; then by E, with the constraints and lambda of the "
        "pool's own run, which do not depend on the scorer. * the scorer was trained on that task. 95 % "
        "intervals over problems that all rows cover."
        + "".join(f" Left out: {cell.source} on {cell.target}, {cell.reason}." for cell in transfer.refused),
        headers=("trained on", *(text for target in transfer.targets for text in (target, f"{target}, by E"))),
        rows=tuple((name, *(text for pair in pairs for text in pair)) for name, pairs in lines),
    )


def variant_tables(study: VariantStudy) -> list[Table]:
    """Scorers side by side, and the paired tests against the recipe's own."""
    violations: dict[str, Callable[[VariantRow], Cell]] = {
        "mean violation by E": lambda row: number(row.by_energy.mean_violation),
        "mean violation by mu": lambda row: number(row.by_mu.mean_violation),
    }
    scorers = table_of(
        study.title,
        "The recipe's own scorer first. pass@1 in % by E and by mu alone, each on the candidates of the generators "
        "that the scorer was trained on, with 95 % intervals. Parameters: trained ones, heads included. "
        "Sigma-AUROC: of the selections by mu alone (50 % is chance). Sigma squared from constraints: the share "
        "of the adapters' variance that is proportional to E_constraint, over problems whose candidates differ in it; "
        "a single adapter has no sigma.",
        study.rows,
        {
            "scorer": lambda row: row.name,
            "generators": lambda row: ", ".join(row.generators),
            "candidates per problem, at most": lambda row: row.most,
            "backbone": lambda row: row.backbone,
            "adapters": lambda row: row.num_adapters,
            "parameters": lambda row: row.num_parameters,
            "pass@1 % by E": lambda row: row.by_energy.pass_at_1,
            "pass@1 % by mu": lambda row: row.by_mu.pass_at_1,
            **(violations if any(row.by_energy.mean_violation.value is not None for row in study.rows) else {}),
            "sigma-AUROC %": lambda row: percent(row.by_mu.sigma_auroc),
            "sigma squared from constraints %": lambda row: row.constraint_share,
        },
    )
    tests = comparison_table(study.comparisons)
    return [scorers, *([tests] if tests.rows else [])]
